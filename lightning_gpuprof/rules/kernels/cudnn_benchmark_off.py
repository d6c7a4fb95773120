"""Finds convolutions of equal shapes in every step for which cuDNN does not try its algorithms."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.trace.operators import OperatorShapes
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    condition,
    threshold,
)
from lightning_gpuprof.rules.kernels.device_kernels import DeviceWindow, class_us, device_run
from lightning_gpuprof.rules.wording import millis, percent


@dataclass(frozen=True, kw_only=True)
class CudnnBenchmarkOff(BaseRule):
    """Convolutions take a large part of the step, their shapes do not change, and cuDNN guesses the algorithm.

    ## What it means

    With `torch.backends.cudnn.benchmark` cuDNN tries its algorithms for each new shape once and keeps the fastest;
    without it, it takes the one that its heuristics choose.

    ## How it is measured

    The setting, and in trace windows with shapes: convolutions take at least a fifth of the untraced step, and each
    convolution of the same shapes occurs equally often in all steps. What another algorithm gains only a run shows, so
    this is information without a gain.

    ## When it is wrong

    - Inputs whose size varies, also the last, smaller batch of an epoch, make cuDNN try again for each new shape.
      Shapes outside of the windows are not seen.
    - It is silent with `deterministic=True`, which rules the choice out, and where the host sets the pace.

    ## What to do

    `Trainer(benchmark=True)`, and `drop_last=True` in the DataLoader.

    ## Example

    "cudnn.benchmark is off: set Trainer(benchmark=True)" for a ResNet whose convolutions take 63 % of the step.
    """

    id = "cudnn-benchmark-off"

    least_ratio: float = threshold(0.20, source="the method: convolutions of at least a fifth of the step")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the setting beside the convolutions of all windows."""
        run = device_run(metrics)
        if run is None:
            return None
        benchmark = condition(metrics, "flags.cudnn_benchmark")
        if benchmark is None:
            raise MissingSignal("the setting of cudnn.benchmark is not known")
        fixed = (condition(metrics, "flags.cudnn_deterministic"), condition(metrics, "flags.deterministic_algorithms"))
        if benchmark is True or True in fixed or run.host_sets_the_pace:
            return None
        convolutions = run.measure(lambda window: window.per_step_ms(class_us(window, "convolution")))
        ratio = convolutions.lower_ms / run.period_ms
        if ratio < self.least_ratio:
            return None
        rows = [_convolutions(window) for window in run.windows]
        if not all(rows):
            raise MissingSignal("the shapes of convolutions were not recorded: TraceConfig(record_shapes=True)")
        if not all(_equal_in_all_steps(window, found) for window, found in zip(run.windows, rows, strict=True)):
            return None
        drop_last = condition(metrics, "loader.drop_last")
        also = ", and drop_last=True in the DataLoader (it is False)" if drop_last is False else ""
        return self.finding(
            severity="info",
            subject="convolutions",
            summary=(
                f"Convolutions take {millis(convolutions.ms)} of a step of {millis(run.period_ms)} "
                f"({percent(min(1.0, convolutions.ms / run.period_ms))}) with the same shapes in every traced step, "
                "and cuDNN does not try which of its algorithms is fastest for them."
            ),
            advice=f"cudnn.benchmark is off: set Trainer(benchmark=True){also}.",
            evidence=(
                self.evidence(
                    "least_ratio", min(1.0, convolutions.ms / run.period_ms), "convolutions, share of the step"
                ),
                Evidence(name="cudnn.benchmark", value="False"),
                Evidence(name="period", value=run.period_ms, unit="ms"),
            ),
            confidence=0.5,
        )


def _convolutions(window: DeviceWindow) -> list[OperatorShapes]:
    operators = window.analysis.operators
    rows = operators.shapes if operators is not None else None
    return [row for row in rows or () if "conv" in row.operator and row.device_self_us and row.input_shape]


def _equal_in_all_steps(window: DeviceWindow, rows: list[OperatorShapes]) -> bool:
    return window.steps > 1 and all(row.occurrences % window.steps == 0 for row in rows)
