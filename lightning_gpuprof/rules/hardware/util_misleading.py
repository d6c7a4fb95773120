"""Finds that a GPU that looks fully used leaves most of its multiprocessors without work."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.report import Device
from lightning_gpuprof.rules.base import (
    MissingSignal,
    condition,
    possible,
    steady_period_ms,
    threshold,
)
from lightning_gpuprof.rules.hardware import gpus
from lightning_gpuprof.rules.wording import percent

_KNOWN_RATIO = 0.95
"""Share of kernel time whose geometry a window must know. Heuristic."""


@dataclass(frozen=True, kw_only=True)
class UtilMisleading(gpus.GpuRule):
    """The utilization is high, but most multiprocessors of the GPU have nothing to do.

    ## What it means

    The driver's utilization is the share of time in which any kernel ran, be it a single block on one of a hundred
    multiprocessors. A run at 95 % may use a tenth of the GPU. It says that the host keeps up, not that the GPU is full.

    ## How it is measured

    The median utilization (NVML) is 90 % at least, in 20 distinct samples and 5 s of training, and the share of
    multiprocessors with work is below half: by the GPU's counters (GPM, Hopper and later) with the 95 % upper bound of
    the mean, else by the geometry of the kernels in a trace window (estimated, 95 % of their time known). Information:
    how much a fuller GPU gains depends on the kernels.

    ## When it is wrong

    - Kernels that wait for memory may be as fast as they can be with half of the multiprocessors.
    - The counters are means over the distance of two samples; with long idle times between kernels they are low, too,
      but then the utilization is not 90 %.
    - Neither counters nor windows: not evaluated.

    ## What to do

    Give each kernel more to do: a larger batch if the memory has room, fused kernels (`torch.compile`), fewer small
    operators. A trace window names the kernels.

    ## Example

    "NVIDIA H200 (gpu0) shows a utilization of 97 %, but 21 % of its multiprocessors have work."
    """

    id = "util-misleading"

    full_ratio: float = threshold(0.90, source="the rule catalogue: a utilization that looks full")
    active_ratio: float = threshold(0.50, source="DCGM: SM activity below 0.5 is ineffective use of the GPU")
    least_s: float = threshold(5.0, source="the method: a window of 5 s for what NVML averages")

    def judge(self, metrics: Metrics, device: Device) -> Finding | None:
        """Judge the use of a GPU."""
        gpus.require_distinct(device)
        steady_period_ms(metrics)
        train_s = metrics.wall.parts.get("train", 0.0)
        if not train_s >= self.least_s:
            raise MissingSignal(f"the training took less than {self.least_s:.0f} s")
        utilization = gpus.known(device, "utilization_ratio", "the utilization").median
        if utilization < self.full_ratio:
            return None
        active, upper, source = _active(metrics, device)
        if upper >= self.active_ratio:
            return None
        return self.finding(
            severity="info",
            subject=gpus.title(device),
            summary=f"{gpus.title(device)} shows a utilization of {percent(utilization)}, but {percent(active)} of its "
            f"multiprocessors have work ({source}).",
            advice=_advice(metrics, device),
            evidence=(
                self.evidence("active_ratio", active, "multiprocessors with work"),
                self.evidence("full_ratio", utilization, "utilization"),
            ),
            confidence=0.8,
        )


def _active(metrics: Metrics, device: Device) -> tuple[float, float, str]:
    """Share of multiprocessors with work, its upper bound, and who says so."""
    counted = device.values.get("sm_active_ratio")
    if counted is not None and possible(counted.mean) and possible(counted.std):
        return counted.mean, gpus.upper_mean(counted, device.samples), "by its counters"
    for window in metrics.windows:
        fill = window.analysis.kernels.fill if window.analysis is not None and window.analysis.kernels else None
        if fill is None or fill.est_sm_efficiency_ratio is None:
            continue
        if (fill.est_sm_efficiency_known_ratio or 0.0) >= _KNOWN_RATIO and math.isfinite(fill.est_sm_efficiency_ratio):
            return fill.est_sm_efficiency_ratio, fill.est_sm_efficiency_ratio, "estimated from the kernels of a window"
    raise MissingSignal("neither the activity of the multiprocessors nor the geometry of kernels was measured")


def _advice(metrics: Metrics, device: Device) -> str:
    size = metrics.loader.batch_size if metrics.loader is not None else None
    total, used = device.facts.memory_total_bytes, gpus.largest(device, "memory_used_bytes")
    roomy = total is not None and used is not None and used <= 0.5 * total
    batch = "A larger batch, where it suits the model"
    if size and roomy:
        free = gpus.gib((total or 0.0) - (used or 0.0))
        batch = f"batch_size is {size}, {free} of memory are free: try {2 * size}"
    compiled = condition(metrics, "compile.state")
    fused = ", or fuse small kernels: torch.compile(model)" if compiled in (None, "none") else ""
    return f"{batch}{fused}. GpuProfiler(windows=[...]) shows which kernels are too small."
