"""Finds that a GPU that looks fully used leaves most of its multiprocessors without work."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import percent
from lightning_gpuprof.model.report import Device
from lightning_gpuprof.rules.base import (
    MissingSignal,
    condition,
    possible,
    steady_period_ms,
    threshold,
)
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.hardware import gpus

_KNOWN_RATIO = 0.95
"""Share of kernel time whose geometry a window must know. Heuristic."""


@dataclass(frozen=True, kw_only=True)
class UtilMisleading(gpus.GpuRule):
    """The utilization is high, but most multiprocessors of the GPU are idle.

    ## What it means

    The driver's utilization is the share of time in which any kernel ran, be it one block on one of a hundred
    multiprocessors. It says that the host keeps up, not that the GPU is full.

    ## How it is measured

    The median utilization (NVML) is at least 90 % in 20 distinct samples and 5 s of training, and fewer than half of
    the multiprocessors are active: by the GPU's counters (GPM, Hopper and later; 95 % upper bound of the mean), else
    estimated from the kernels of a trace window. Information: what a fuller GPU gains depends on the kernels.

    ## When it is wrong

    - Kernels that wait for memory may run at full speed with half of the multiprocessors.
    - Neither counters nor a window: not evaluated.

    ## What to do

    Give each kernel more work: a larger batch if the memory has room, fused kernels (`torch.compile`), fewer small
    operators. A trace window names the kernels.
    """

    id = "util-misleading"
    title = "Most multiprocessors of the busy GPU are idle"

    full_ratio: float = threshold(0.90, source="the rule catalogue: a utilization that looks full")
    active_ratio: float = threshold(0.50, source="DCGM: SM activity below 0.5 is ineffective use of the GPU")
    least_s: float = threshold(5.0, source="the method: a window of 5 s for what NVML averages")

    examples = (
        fires("a fifth of it works", "info", "batch_size is 32", gpu={"values": {"sm_active_ratio": 0.2}}),
        quiet("most of it works", gpu={}),
        looks_alike("it waits for the host", gpu={"values": {"sm_active_ratio": 0.2, "utilization_ratio": 0.4}}),
        not_evaluated("there are no counters", "neither the activity", gpu={"values": {"sm_active_ratio": None}}),
    )

    def judge(self, metrics: Metrics, device: Device) -> Finding | None:
        """Judge the use of a GPU."""
        gpus.require_distinct(device)
        steady_period_ms(metrics)
        train_s = metrics.wall.parts.get("train", 0.0)
        if not train_s >= self.least_s:
            raise MissingSignal(f"the run took less than {self.least_s:.0f} s")
        utilization = gpus.known(device, "utilization_ratio", "the utilization").median
        if utilization < self.full_ratio:
            return None
        active, upper, source = _active(metrics, device)
        if upper >= self.active_ratio:
            return None
        advice, change = _advice(metrics, device)
        return self.finding(
            severity="info",
            subject=gpus.title(device),
            summary=f"{gpus.title(device)} has a utilization of {percent(utilization)}, but only {percent(active)} of "
            f"its multiprocessors are active ({source}).",
            advice=advice,
            evidence=(
                self.evidence("active_ratio", active, "active multiprocessors"),
                self.evidence("full_ratio", utilization, "utilization"),
            ),
            confidence=0.8,
            change=change,
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
            return (
                fill.est_sm_efficiency_ratio,
                fill.est_sm_efficiency_ratio,
                "estimated from the kernels of a trace window",
            )
    raise MissingSignal("neither the activity of the multiprocessors nor the geometry of kernels was measured")


def _advice(metrics: Metrics, device: Device) -> tuple[str, Change | None]:
    size = metrics.loader.batch_size if metrics.loader is not None else None
    total, used = device.facts.memory_total_bytes, gpus.largest(device, "memory_used_bytes")
    roomy = total is not None and used is not None and used <= 0.5 * total
    batch, change = "Try a larger batch if it suits the model", None
    if size and roomy:
        free = gpus.gib((total or 0.0) - (used or 0.0))
        batch = f"Try batch_size={2 * size}: batch_size is {size}, and {free} of memory are free"
        change = Change(call="DataLoader", arguments={"batch_size": 2 * size}, before={"batch_size": size})
    compiled = condition(metrics, "compile.state")
    fused = " Or fuse small kernels: torch.compile(model)." if compiled in (None, "none") else ""
    return f"{batch}.{fused} A trace window shows which kernels are too small: GpuProfiler(windows=[...]).", change
