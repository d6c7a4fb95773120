"""What limits a device while it works: its memory, its arithmetic or the latency of its kernels."""

from lightning_gpuprof.model.device import MIN_SAMPLES
from lightning_gpuprof.model.device_step import DeviceStep
from lightning_gpuprof.model.finding import VerdictKind
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.rules.base import Metrics, percent, possible

MEMORY_RATIO = 0.60
"""DRAM activity of the busy device from which memory is its limit. ncu's and nvvp's 60 %; DCGM: about 80 % is the
practical peak."""

SM_ACTIVE_RATIO = 0.50
"""Activity of the multiprocessors below which the device's work does not fill it. DCGM."""

AT_ROOF_RATIO = 0.50
"""Share of the roofline that an operator must reach to be counted as limited by it; and share of the kernels' time that
must lie in such operators. Heuristic."""

KNOWN_RATIO = 0.90
"""Share of the kernels' time whose launch geometry must be known. Heuristic."""


def device_limit(metrics: Metrics, step: DeviceStep) -> tuple[VerdictKind, str]:
    """What limits the device while it works, as far as counters, launch geometry or the roofline show.

    Hardware counters (GPM) decide where they were read: activity over the time that the device was busy. Else kernels
    whose grids leave half of the multiprocessors without work are latency-bound, and operators that reach half of the
    memory's roofline for half of the kernels' time memory-bound. Work in operators is a lower bound, so that being far
    from both roofs proves nothing.

    Args:
        metrics: Metrics of the run.
        step: The busiest device in an untraced step.

    Returns:
        ``compute-bound``, ``memory-bound`` or ``latency-bound``, and why in words; empty if nothing shows it.
    """
    return (
        _by_counters(metrics, step) or _by_geometry(step.window) or _by_roofline(step.window) or ("compute-bound", "")
    )


def _by_counters(metrics: Metrics, step: DeviceStep) -> tuple[VerdictKind, str] | None:
    busy_ratio = 1.0 - step.idle_ratio
    for device in sorted(metrics.devices, key=lambda d: -d.samples):
        memory, active = device.values.get("dram_active_ratio"), device.values.get("sm_active_ratio")
        if memory is None or active is None or device.samples < MIN_SAMPLES or busy_ratio < SM_ACTIVE_RATIO:
            continue
        if not (possible(memory.mean) and possible(active.mean)):
            continue
        memory_ratio, active_ratio = min(1.0, memory.mean / busy_ratio), min(1.0, active.mean / busy_ratio)
        tensor = device.values.get("tensor_active_ratio")
        tensor_ratio = min(1.0, tensor.mean / busy_ratio) if tensor is not None and possible(tensor.mean) else 0.0
        if memory_ratio >= MEMORY_RATIO and memory_ratio >= tensor_ratio:
            return "memory-bound", f"while busy, its memory is active {percent(memory_ratio)} of the time"
        if active_ratio < SM_ACTIVE_RATIO:
            return (
                "latency-bound",
                f"while busy, {percent(active_ratio)} of its SMs are active, and its memory "
                f"{percent(memory_ratio)} of the time",
            )
        return (
            "compute-bound",
            f"while busy, {percent(active_ratio)} of its SMs are active, tensor cores "
            f"{percent(tensor_ratio)} and memory {percent(memory_ratio)} of the time",
        )
    return None


def _by_geometry(window: WindowFacts | None) -> tuple[VerdictKind, str] | None:
    kernels = None if window is None else window.results.kernels
    if kernels is None or kernels.total_us <= 0:
        return None
    efficiency, known = kernels.fill.est_sm_efficiency_ratio, kernels.fill.est_sm_efficiency_known_ratio
    if efficiency is None or known is None or known < KNOWN_RATIO or not 0 <= efficiency < SM_ACTIVE_RATIO:
        return None
    return (
        "latency-bound",
        f"its kernels fill {percent(efficiency)} of the SMs (estimated from their launches)",
    )


def _by_roofline(window: WindowFacts | None) -> tuple[VerdictKind, str] | None:
    roofline, kernels = (None, None) if window is None else (window.results.roofline, window.results.kernels)
    if roofline is None or kernels is None or kernels.total_us <= 0:
        return None
    bounds: dict[str, VerdictKind] = {"memory": "memory-bound", "compute": "compute-bound"}
    for bound, kind in bounds.items():
        at_roof_us = sum(
            row.device_us
            for row in roofline.rows
            if row.bound == bound and row.ceiling_ratio is not None and row.ceiling_ratio >= AT_ROOF_RATIO
        )
        if at_roof_us >= AT_ROOF_RATIO * kernels.total_us:
            return kind, (
                f"operators that reach {percent(AT_ROOF_RATIO)} of the {bound} roofline take "
                f"{percent(at_roof_us / kernels.total_us)} of its kernel time"
            )
    return None
