"""Trace windows and NVML samples flow in, how a device spends an untraced step flows out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from lightning_gpuprof.model.finding import VerdictKind
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.report import Device
from lightning_gpuprof.model.trace.communication import Communication
from lightning_gpuprof.model.trace.idle import DeviceIdle, IdleCause
from lightning_gpuprof.model.window import DeviceActivity, WindowFacts
from lightning_gpuprof.rules.base import (
    MAX_UNMATCHED_RATIO,
    MissingSignal,
    is_slow_step_window,
    pace_ms,
    possible,
    run_s,
)
from lightning_gpuprof.rules.hardware import gpus
from lightning_gpuprof.rules.wording import percent

MIN_SAMPLES = 20
"""Distinct samples of NVML that a statement needs. The rule catalogue: the driver averages over 1/6 to 1 s."""

MAX_OUTSIDE_RATIO = 0.10
"""Time outside the steps up to which NVML's samples of the whole training stand for the steps. Heuristic."""

MAX_UNSTEADY_RATIO = 0.20
"""Share of the steps that may be no steady ones, likewise. Heuristic."""

MEMORY_RATIO = 0.60
"""DRAM activity of the busy device from which memory is its limit. ncu's and nvvp's 60 %; DCGM: about 80 % is the
practical peak."""

SM_ACTIVE_RATIO = 0.50
"""Activity of the multiprocessors below which the device's work does not fill it. DCGM."""

AT_ROOF_RATIO = 0.50
"""Share of the roofline that an operator must reach to be counted as limited by it; and share of the kernels' time that
must lie in such operators. Heuristic."""

REASON_RATIO = 0.20
"""Lower bound of a reason's share of the busy samples from which it holds the clock down. The rule catalogue."""

KNOWN_RATIO = 0.90
"""Share of the kernels' time whose launch geometry must be known. Heuristic."""

MIN_COLLECTIVES = 3
"""Collectives of one size from which their fastest stands for what the links can do. Heuristic."""

LEAST_SEEN_RATIO = 0.5
"""Of the fetches of a window: what must lie between work of the device to tell what a fetch costs. Heuristic."""

_OF_PHASES: Mapping[Phase, IdleCause] = {"data_wait": "data", "callbacks": "callbacks", "checkpoint": "checkpoint"}
"""Phases that the causes of idle time tell by themselves."""

_NOT_OF_MODEL = frozenset({"data", "checkpoint", "callbacks", "validation", "profiler"})


@dataclass(frozen=True, kw_only=True)
class DeviceSplit:
    """Disjoint shares of an untraced step, as the busiest device spends it; they and ``idle_ratio`` sum to 1."""

    source: str
    """Where the idle time is known from, as words."""
    idle_ratio: float
    computing_ratio: float
    exposed_communication_ratio: float = 0.0
    """Kernels of NCCL or RCCL that no computation covers; holds the wait for other ranks."""
    above_fastest_ratio: float | None = None
    """Of the time of collectives: what is above the fastest of their kind and size, and so no transfer but a wait for
    other ranks, or links that others use. None unless that is known of half of the time."""
    exposed_copy_ratio: float = 0.0
    """Copies and memsets that no computation covers."""
    upload_ratio: float = 0.0
    """Of ``exposed_copy_ratio``: at most so much from host to device."""
    idle_in_phase: Mapping[Phase, float] = field(default_factory=dict)
    """Share of a phase's time in which the device is idle; phases that the window does not tell of are left out."""
    causes: Mapping[IdleCause, float] = field(default_factory=dict)
    """What the idle time is due to that is no fetch, callback, checkpoint or validation; sums to 1, or is empty."""
    window: WindowFacts | None = None
    """The window that this is from."""


@dataclass(frozen=True, kw_only=True)
class ClockLoss:
    """What one reason costs a busy GPU."""

    ratio: float
    """Of its speed at the maximum clock, over all busy samples."""
    reason: str
    """NVML's (a key of :data:`~lightning_gpuprof.model.clock_events.REASONS`)."""
    clock_mhz: float
    """Median while the reason held."""
    held_ratio: float
    """Share of the busy samples in which it held."""


def device_split(metrics: Metrics, period_ms: float) -> DeviceSplit | None:
    """How the busiest device spends an untraced step.

    Tracing slows the host down, not the device: times of device work are taken from the window with the median idle
    share (of two the lower) and held against the period of untraced steps
    (:func:`~lightning_gpuprof.rules.base.pace_ms`). What causes the idle time is taken in the window's proportions.
    Windows on slow steps do not count. Without a usable window NVML's utilization tells the idle share alone, if its
    samples are many and the run has little beside its steps.

    Args:
        metrics: The run.
        period_ms: Median period of steady untraced steps.

    Returns:
        None if neither windows nor NVML tell.
    """
    period_ms = pace_ms(metrics, period_ms)
    seen = sorted(
        (
            (_idle_ratio(device, window, period_ms), n)
            for n, window in enumerate(metrics.windows)
            if (device := _busiest(window)) is not None
        ),
    )
    if not seen:
        return _by_nvml(metrics)
    idle_ratio, number = seen[(len(seen) - 1) // 2]
    return _by_window(metrics.windows[number], idle_ratio)


def device_limit(metrics: Metrics, split: DeviceSplit) -> tuple[VerdictKind, str]:
    """What limits the device while it works, as far as counters, launch geometry or the roofline tell.

    Hardware counters (GPM) decide where they were read: activity over the time that the device was busy. Else kernels
    whose grids leave half of the multiprocessors without work are latency-bound, and operators that reach half of the
    memory's roofline for half of the kernels' time memory-bound. Work in operators is a lower bound, so that being far
    from both roofs proves nothing.

    Returns:
        ``compute-bound``, ``memory-bound`` or ``latency-bound``, and why in words; empty if nothing tells.
    """
    return (
        _by_counters(metrics, split)
        or _by_geometry(split.window)
        or _by_roofline(split.window)
        or ("compute-bound", "")
    )


def clock_loss(device: Device) -> ClockLoss | None:
    """What holds a busy GPU's clock down, and the speed that it loses.

    A reason counts if the 5 % lower bound (Wilson) of its share of the busy samples is :data:`REASON_RATIO`. A power
    cap counts only if the limit was lowered: at its default limit a board under dense load is where it is built to be.

    Returns:
        The reason that costs most; None if there is none, or fewer than :data:`MIN_SAMPLES` busy samples.
    """
    busy, most_mhz = device.busy, device.facts.sm_clock_max_mhz
    if busy is None or busy.samples < MIN_SAMPLES or not most_mhz or not possible(most_mhz):
        return None
    losses = []
    for share in device.throttle or ():
        clock_mhz = busy.sm_clock_median_mhz if share.sm_clock_median_mhz is None else share.sm_clock_median_mhz
        if share.busy_ratio is None or clock_mhz is None or not (possible(share.busy_ratio) and possible(clock_mhz)):
            continue
        if share.reason in _NO_CAUSE or gpus.lower_ratio(share.busy_ratio, busy.samples) < REASON_RATIO:
            continue
        if share.reason == "sw_power_cap" and not gpus.is_power_limit_lowered(device, gpus.LOWERED_RATIO):
            continue
        held_ratio = min(1.0, share.busy_ratio)
        lost_ratio = held_ratio * max(0.0, 1.0 - clock_mhz / most_mhz)
        losses.append(ClockLoss(ratio=lost_ratio, reason=share.reason, clock_mhz=clock_mhz, held_ratio=held_ratio))
    return max(losses, key=lambda loss: (loss.ratio, loss.held_ratio), default=None)


_NO_CAUSE = frozenset({"gpu_idle", "display_clock", "sync_boost", "reliability"})
"""Reasons that say nothing about what holds this GPU down, or that every GPU at its top clock gives."""


def _busiest(window: WindowFacts) -> DeviceActivity | None:
    """The busiest device of a window whose steps are known and ordinary; None if they tell nothing."""
    work = window.launches_matched + window.launches_unmatched
    if not window.devices or not window.steps_us or work <= 0 or is_slow_step_window(window):
        return None
    if _much_from_before(window) and window.inflation_ratio is None:
        return None
    device = max(window.devices, key=lambda device: device.busy_us)
    return device if possible(device.busy_us) and possible(device.window_us) and device.window_us > 0 else None


def _much_from_before(window: WindowFacts) -> bool:
    """Whether much of the work was launched before the window, so that it is not that of the window's steps."""
    work = window.launches_matched + window.launches_unmatched
    return window.launches_unmatched > MAX_UNMATCHED_RATIO * work


def _idle_ratio(device: DeviceActivity, window: WindowFacts, period_ms: float) -> float:
    """Of an untraced step; where work and steps do not belong together, of as much untraced time as the work took."""
    if _much_from_before(window) and window.inflation_ratio is not None and possible(window.inflation_ratio):
        busy_ratio = device.busy_us * max(1.0, window.inflation_ratio) / device.window_us
    else:
        busy_ratio = device.busy_us / 1e3 / len(window.steps_us) / period_ms
    return min(1.0, max(0.0, 1.0 - busy_ratio)) if possible(busy_ratio) else 1.0


def _by_window(window: WindowFacts, idle_ratio: float) -> DeviceSplit:
    device = _busiest(window)
    assert device is not None
    busy_ratio = 1.0 - idle_ratio
    communication_ratio = copy_ratio = upload_ratio = 0.0
    found = None if window.analysis is None else window.analysis.communication
    own = next((d for d in found.devices if d.device == device.device), None) if found is not None else None
    if own is not None and device.busy_us > 0 and possible(own.exposed_us) and possible(own.copy_exposed_us):
        communication_ratio = busy_ratio * min(1.0, own.exposed_us / device.busy_us)
        copy_ratio = min(busy_ratio - communication_ratio, busy_ratio * own.copy_exposed_us / device.busy_us)
        upload_ratio = min(copy_ratio, busy_ratio * _uploads_us(window) / device.busy_us)
    idle = _idle_of(window, device.device)
    return DeviceSplit(
        source="trace windows",
        idle_ratio=idle_ratio,
        computing_ratio=busy_ratio - communication_ratio - copy_ratio,
        exposed_communication_ratio=communication_ratio,
        above_fastest_ratio=None if found is None else _above_fastest(found),
        exposed_copy_ratio=copy_ratio,
        upload_ratio=upload_ratio,
        idle_in_phase={} if idle is None else _idle_in_phase(window, idle),
        causes={} if idle is None else _causes(idle),
        window=window,
    )


def _above_fastest(found: Communication) -> float | None:
    known = [row for row in found.sizes if row.message_bytes is not None and row.count >= MIN_COLLECTIVES]
    known_us = sum(row.total_us for row in known)
    all_us = sum(row.total_us for row in found.kinds)
    if not (possible(known_us) and possible(all_us)) or known_us <= 0 or known_us < 0.5 * all_us:
        return None
    ratio = 1.0 - sum(row.count * row.min_us for row in known) / known_us
    return min(1.0, max(0.0, ratio)) if math.isfinite(ratio) else None


def _idle_of(window: WindowFacts, device: str) -> DeviceIdle | None:
    found = None if window.analysis is None else window.analysis.idle
    return None if found is None else next((d for d in found.devices if d.device == device), None)


def _uploads_us(window: WindowFacts) -> float:
    tables = None if window.analysis is None else window.analysis.api_tables
    rows = () if tables is None else tables.cuda_gpu_mem_time_sum
    return sum(row.total_us for row in rows if "HtoD" in row.name or "HostToDevice" in row.name)


def _idle_in_phase(window: WindowFacts, idle: DeviceIdle) -> dict[Phase, float]:
    steps = None if window.analysis is None else window.analysis.step_trace
    host_us: dict[Phase, float] = {}
    if steps is not None and steps.mean is not None:
        host_us = {phase: us * len(window.steps_us) for phase, us in steps.mean.phases_us.items()}
    if window.dataloader_us > 0:
        host_us.setdefault("data_wait", window.dataloader_us)
    seen_us = fetched_beside_device_us(window)
    if seen_us:
        host_us["data_wait"] = seen_us
    idle_us = {share.cause: share.idle_us for share in idle.causes}
    return {
        phase: min(1.0, idle_us.get(cause, 0.0) / host_us[phase])
        for phase, cause in _OF_PHASES.items()
        if possible(host_us.get(phase, 0.0)) and host_us.get(phase, 0.0) > 0
    }


def fetched_beside_device_us(window: WindowFacts) -> float | None:
    """Time in the fetch of which the window tells whether the device worked meanwhile.

    What lies before the first or after the last work of the device tells nothing: it may have been busy with steps that
    were not traced. If that is more than half of the fetch, the rest is not taken for it.

    Returns:
        0 if too little of it is known; None if the window has no ranges of fetches.
    """
    seen_us = window.dataloader_beside_device_us
    if seen_us is None or not window.dataloader_us > 0:
        return None
    return seen_us if seen_us >= LEAST_SEEN_RATIO * window.dataloader_us else 0.0


def _causes(idle: DeviceIdle) -> dict[IdleCause, float]:
    of_model = {share.cause: share.idle_us for share in idle.causes if share.cause not in _NOT_OF_MODEL}
    total_us = sum(of_model.values())
    return {cause: us / total_us for cause, us in of_model.items()} if possible(total_us) and total_us > 0 else {}


def _by_nvml(metrics: Metrics) -> DeviceSplit | None:
    used = [
        found.mean
        for device in metrics.devices
        if (found := device.values.get("utilization_ratio")) is not None
        and (device.distinct_samples or 0) >= MIN_SAMPLES
        and possible(found.mean)
    ]
    try:
        total_s = run_s(metrics)
    except MissingSignal:
        return None
    outside_s = sum(metrics.wall.parts.get(part, 0.0) for part in ("validation", "checkpoint", "epoch_gap"))
    unsteady = metrics.steps.count - metrics.steps.steady_count
    if not used or not outside_s <= MAX_OUTSIDE_RATIO * total_s or unsteady > MAX_UNSTEADY_RATIO * metrics.steps.count:
        return None
    idle_ratio = min(1.0, max(0.0, 1.0 - max(used)))
    return DeviceSplit(source="NVML's utilization", idle_ratio=idle_ratio, computing_ratio=1.0 - idle_ratio)


def _by_counters(metrics: Metrics, split: DeviceSplit) -> tuple[VerdictKind, str] | None:
    busy_ratio = 1.0 - split.idle_ratio
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
            return "memory-bound", f"while it works, its memory is active {percent(memory_ratio)} of the time"
        if active_ratio < SM_ACTIVE_RATIO:
            return (
                "latency-bound",
                f"while it works, {percent(active_ratio)} of its multiprocessors do and its memory is active "
                f"{percent(memory_ratio)} of the time",
            )
        return (
            "compute-bound",
            f"while it works, {percent(active_ratio)} of its multiprocessors do, tensor cores {percent(tensor_ratio)} "
            f"and memory {percent(memory_ratio)} of the time",
        )
    return None


def _by_geometry(window: WindowFacts | None) -> tuple[VerdictKind, str] | None:
    kernels = None if window is None or window.analysis is None else window.analysis.kernels
    if kernels is None or kernels.total_us <= 0:
        return None
    efficiency, known = kernels.fill.est_sm_efficiency_ratio, kernels.fill.est_sm_efficiency_known_ratio
    if efficiency is None or known is None or known < KNOWN_RATIO or not 0 <= efficiency < SM_ACTIVE_RATIO:
        return None
    return (
        "latency-bound",
        f"by their launch geometry its kernels have work for {percent(efficiency)} of the multiprocessors (est.)",
    )


def _by_roofline(window: WindowFacts | None) -> tuple[VerdictKind, str] | None:
    analysis = None if window is None else window.analysis
    if analysis is None or analysis.roofline is None or analysis.kernels is None or analysis.kernels.total_us <= 0:
        return None
    total_us = analysis.kernels.total_us
    for bound, kind in (("memory", "memory-bound"), ("compute", "compute-bound")):
        at_roof_us = sum(
            row.device_us
            for row in analysis.roofline.rows
            if row.bound == bound and row.ceiling_ratio is not None and row.ceiling_ratio >= AT_ROOF_RATIO
        )
        if at_roof_us >= AT_ROOF_RATIO * total_us:
            what = "memory's" if bound == "memory" else "arithmetic's"
            words = (
                f"{percent(at_roof_us / total_us)} of its kernels' time is in operators at {percent(AT_ROOF_RATIO)} of "
                f"the {what} roofline or above"
            )
            return ("memory-bound", words) if kind == "memory-bound" else ("compute-bound", words)
    return None
