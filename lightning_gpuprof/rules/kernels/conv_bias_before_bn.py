"""Convolutions right before a BatchNorm have a bias, which the BatchNorm cancels.

## What it means
BatchNorm subtracts the mean of each channel, and with it the bias of the convolution before. Adding the bias, computing
its gradient and updating it are wasted work.

## How it is measured
From the modules of the model: convolutions with a bias right before a BatchNorm in a `Sequential`. Information only:
what it saves is little and is not measured.

## When it is wrong
- Models that call their layers in `forward` instead of a `Sequential` are not seen.
- A pretrained checkpoint that has the bias needs it to load.

## What to do
`nn.Conv2d(..., bias=False)`.
"""

from lightning_gpuprof.rules.base import BaseRule, Change, Finding, Metrics, MissingSignal, counted, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet

_COUNT, _ALL = "model.conv_bias_before_norm", "model.convolutions"


class ConvBiasBeforeBn(BaseRule):
    id = "conv-bias-before-bn"
    title = "BatchNorm cancels the convolutions' bias"

    least_count: int = threshold(1, source="PyTorch tuning guide")

    examples = (
        fires("16 of 20 convolutions have a bias", "info", "16 convolutions of 20", run={_COUNT: 16, _ALL: 20}),
        quiet("none has", run={_COUNT: 0, _ALL: 20}),
        looks_alike("there are only convolutions without a norm", run={_COUNT: 0, _ALL: 16}),
        not_evaluated("the model was not inspected", "layers of the model"),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        count = metrics.condition(_COUNT)
        if not isinstance(count, int) or isinstance(count, bool):
            raise MissingSignal("the layers of the model were not inspected")
        if count < self.least_count:
            return None
        convolutions = metrics.condition(_ALL)
        whole = f" of {convolutions}" if isinstance(convolutions, int) and convolutions >= count else ""
        return self.finding(
            subject=str(metrics.condition("model.class") or "the model"),
            summary=f"{counted(count, 'convolution')}{whole} {'has' if count == 1 else 'have'} a bias right before a "
            "BatchNorm, which cancels it.",
            advice="Drop the bias, which has no effect there: nn.Conv2d(..., bias=False).",
            evidence=(self.evidence("least_count", count, "convolutions with a bias before a BatchNorm"),),
            confidence=0.9,
            change=Change(call="nn.Conv2d", arguments={"bias": False}, before={"bias": True}),
        )
