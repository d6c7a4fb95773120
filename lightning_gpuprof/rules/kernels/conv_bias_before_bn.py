"""Points out convolutions whose bias the BatchNorm behind them takes out again."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import BaseRule, MissingSignal, condition, threshold
from lightning_gpuprof.rules.wording import counted


@dataclass(frozen=True, kw_only=True)
class ConvBiasBeforeBn(BaseRule):
    """Convolutions right before a BatchNorm have a bias, which the norm takes out again.

    ## What it means

    BatchNorm subtracts the mean of each channel, and with it the bias of the convolution before. The bias is added, its
    gradient is computed and the optimizer updates it, for nothing.

    ## How it is measured

    From the modules of the model: convolutions with a bias that stand right before a BatchNorm in a `Sequential`. It is
    information only, without a gain: what it saves is little and was not measured.

    ## When it is wrong

    - Models that call their layers in `forward` instead of a `Sequential` are not seen.
    - A pretrained checkpoint that has the bias needs it to load.

    ## What to do

    `nn.Conv2d(..., bias=False)`.

    ## Example

    "Set bias=False in 16 of 20 convolutions: a BatchNorm follows right after each."
    """

    id = "conv-bias-before-bn"

    least_count: int = threshold(1, source="PyTorch tuning guide")

    def check(self, metrics: Metrics) -> Finding | None:
        """Look at the model's layers."""
        count = condition(metrics, "model.conv_bias_before_norm")
        if not isinstance(count, int) or isinstance(count, bool):
            raise MissingSignal("the layers of the model were not looked at")
        if count < self.least_count:
            return None
        convolutions = condition(metrics, "model.convolutions")
        whole = f" of {convolutions}" if isinstance(convolutions, int) and convolutions >= count else ""
        return self.finding(
            severity="info",
            subject=str(condition(metrics, "model.class") or "the model"),
            summary=f"{counted(count, 'convolution')}{whole} right before a BatchNorm have a bias that has no effect.",
            advice=f"Set bias=False in these {count:,}: nn.Conv2d(..., bias=False).",
            evidence=(self.evidence("least_count", count, "convolutions with a bias before a BatchNorm"),),
            confidence=0.9,
        )
