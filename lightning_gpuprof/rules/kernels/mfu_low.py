"""Finds that a model of matrix products reaches little of the device's peak, and says where the rest goes."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.trace.roofline import Roofline
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    threshold,
)
from lightning_gpuprof.rules.kernels.device_kernels import DeviceRun, DeviceWindow, device_run
from lightning_gpuprof.rules.wording import millis, percent


@dataclass(frozen=True, kw_only=True)
class MfuLow(BaseRule):
    """The model's products reach a small part of the device's peak rate; a symptom, with its parts.

    ## What it means

    Model FLOP/s utilization (MFU): the FLOPs of products, convolutions and attention that the model asks for, over what
    the device could do in the time of the step. It is the product of three: how much of the step the device works, how
    much of that time it multiplies, and how fast it does.

    ## How it is measured

    FLOPs from the shapes of operators in trace windows, time from untraced steps, peaks from data sheets for the type
    that is computed in. It speaks below 30 %, where products take at least half of the kernels' time and the FLOPs of
    at least 80 % of that time are known. It is information: the rules on its parts have causes and gains.

    ## When it is wrong

    It is silent where the host sets the pace. Capped clocks and power make the data sheet's peak unreachable: a
    well-tuned large model has 40 to 60 %. Work that activation checkpointing does again is counted as the model's.

    ## What to do

    Look at the smallest of the three parts: it is named.

    ## Example

    "MFU is 12 %: the device works 95 % of the step, multiplies in 71 % of that, and reaches 18 % of the peak then".
    """

    id = "mfu-low"

    most_mfu_ratio: float = threshold(0.30, source="heuristic: large language models are reported with 40 to 60 %")
    least_matrix_ratio: float = threshold(0.50, source="heuristic: below it, MFU says little of the model")
    least_known_ratio: float = threshold(0.80, source="heuristic")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the window with the highest MFU."""
        run = device_run(metrics)
        if run is None:
            return None
        rated = [(window, mfu) for window in run.windows if (mfu := _mfu(window, run, self.least_known_ratio))]
        if not rated:
            raise MissingSignal("the FLOPs of most products or the peak of the device are not known")
        window, mfu = max(rated, key=lambda item: item[1])
        matrix_us = window.analysis.roofline.matrix_us if window.analysis.roofline is not None else 0.0
        multiplies = min(1.0, matrix_us / window.kernels.total_us)
        if run.host_sets_the_pace or multiplies < self.least_matrix_ratio or mfu >= self.most_mfu_ratio:
            return None
        busy_ms = max(device.busy_us for device in window.facts.devices) / 1e3 / window.steps
        works = min(1.0, busy_ms / run.period_ms)
        reaches = min(1.0, mfu / (works * multiplies))
        parts = {
            "the device waits: see what keeps it idle": works,
            "other kernels take the time: see the kernel classes": multiplies,
            "products are slow: see their sizes, types and the roofline": reaches,
        }
        smallest = min(parts, key=lambda words: parts[words])
        return self.finding(
            severity="info",
            subject=window.analysis.roofline.device or "device" if window.analysis.roofline is not None else "device",
            summary=(
                f"MFU is {percent(mfu)} in a step of {millis(run.period_ms)}: the device works {percent(works)} of the "
                f"step, multiplies in {percent(multiplies)} of that, and reaches {percent(reaches)} of its peak then."
            ),
            advice=f"Begin with the smallest part: {smallest}.",
            evidence=(
                self.evidence("most_mfu_ratio", mfu, "MFU"),
                Evidence(name="device works, share of the step", value=works, unit="ratio"),
                Evidence(name="products, share of kernel time", value=multiplies, unit="ratio"),
                Evidence(name="share of the peak while multiplying", value=reaches, unit="ratio"),
                Evidence(name="period", value=run.period_ms, unit="ms"),
            ),
            confidence=0.7,
        )


def _mfu(window: DeviceWindow, run: DeviceRun, least_known: float) -> float | None:
    """MFU of untraced steps: that of the window's steps, at the period that they have without tracing."""
    roofline: Roofline | None = window.analysis.roofline
    if roofline is None or roofline.steps is None or roofline.steps.mfu_ratio is None:
        return None
    if (roofline.coverage_ratio or 0.0) < least_known or (roofline.faster_flops_ratio or 0.0) > 1.0 - least_known:
        return None
    traced_ms = roofline.steps.seconds * 1e3 / window.steps
    mfu = roofline.steps.mfu_ratio * traced_ms / run.period_ms
    return mfu if 0 < mfu <= 1 else None
