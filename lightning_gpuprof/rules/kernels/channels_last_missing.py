"""Finds that cuDNN changes the memory layout around convolutions, because the model is not in channels_last."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    condition,
    gain,
    severity,
    threshold,
    worthwhile,
)
from lightning_gpuprof.rules.kernels.device_kernels import (
    DeviceWindow,
    class_us,
    device_run,
    kernel_rows_us,
    short_name,
)
from lightning_gpuprof.rules.wording import millis, percent

_LAYOUT_CHANGE = re.compile(r"nchwToNhwc|nhwcToNchw", re.IGNORECASE)
"""Kernels of cuDNN that only change the layout; those that compute in a layout have it in their names differently."""


@dataclass(frozen=True, kw_only=True)
class ChannelsLastMissing(BaseRule):
    """cuDNN turns tensors from NCHW to NHWC before convolutions and back after them.

    ## What it means

    Tensor cores convolve in the layout NHWC, which torch calls channels_last. For a model in the default layout cuDNN
    converts inputs, weights and results around each convolution.

    ## How it is measured

    In trace windows: the time of cuDNN's kernels `nchwToNhwc` and `nhwcToNchw` against that of convolutions, and
    against the period of untraced steps. Only the 20 longest kernels are known by name, so the time is a lower bound.
    The gain is that time.

    ## When it is wrong

    - Convolutions that are not 4-dimensional, and operators without a channels_last form, keep their conversions.
    - It is silent where the host sets the pace.

    ## What to do

    `self.model.to(memory_format=torch.channels_last)` in `__init__` or `configure_model`, and the same for the batch:
    `x = x.to(memory_format=torch.channels_last)` in `on_after_batch_transfer`.

    ## Example

    ResNet in TF32 on an A100: "conversions between NCHW and NHWC take 5.04 ms of a step, 37 % of the convolutions'
    time".
    """

    id = "channels-last-missing"

    least_of_convolutions_ratio: float = threshold(0.10, source="TraceLens: transposes above 10 % of convolutions")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the layout changes of all windows."""
        run = device_run(metrics)
        if run is None:
            return None
        if run.host_sets_the_pace:
            return None
        changes = run.measure(lambda window: window.per_step_ms(_changes_us(window)))
        convolutions = run.measure(lambda window: window.per_step_ms(class_us(window, "convolution")))
        if convolutions.ms <= 0:
            return None
        of_convolutions = changes.lower_ms / convolutions.ms
        if of_convolutions < self.least_of_convolutions_ratio or not worthwhile(changes.ms, run.period_ms):
            return None
        names = [short_name(row.name) for row in run.windows[0].kernels.kernels if _LAYOUT_CHANGE.search(row.name)]
        return self.finding(
            severity=severity(changes.lower_ms / run.period_ms, metrics.steps.steady_count),
            subject=names[0] if names else "convolutions",
            summary=(
                f"Conversions between NCHW and NHWC take {millis(changes.ms)} of a step of {millis(run.period_ms)} "
                f"({percent(min(1.0, changes.ms / run.period_ms))}), {percent(changes.ms / convolutions.ms)} of the "
                f"{millis(convolutions.ms)} of the convolutions themselves."
            ),
            advice=_advice(metrics),
            evidence=(
                self.evidence(
                    "least_of_convolutions_ratio", changes.ms / convolutions.ms, "layout changes over convolutions"
                ),
                Evidence(name="layout changes per step", value=changes.ms, unit="ms"),
                Evidence(name="convolutions per step", value=convolutions.ms, unit="ms"),
                Evidence(name="period", value=run.period_ms, unit="ms"),
            ),
            gain=gain(changes.ms, changes.lower_ms, run.period_ms),
            confidence=0.8,
            explains=claims.LAYOUT_CHANGES,
        )


def _changes_us(window: DeviceWindow) -> float:
    return kernel_rows_us(window, lambda row: row.kernel_class == "copy" and bool(_LAYOUT_CHANGE.search(row.name)))


def _advice(metrics: Metrics) -> str:
    convolutions = condition(metrics, "model.convolutions")
    already = condition(metrics, "model.channels_last_convolutions")
    batch = "x = x.to(memory_format=torch.channels_last) in on_after_batch_transfer"
    if isinstance(already, int) and isinstance(convolutions, int) and 0 < convolutions <= already:
        return (
            f"All {convolutions} convolutions are in channels_last, but their inputs are not: {batch}; and look for "
            ".view(), .permute() or .contiguous() between layers that change it back."
        )
    of_model = f"{already or 0} of {convolutions} convolutions are in channels_last: " if convolutions else ""
    return f"{of_model}call self.model.to(memory_format=torch.channels_last) in __init__, and {batch}."
