"""Where the time of each step went, on the main thread and on each device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from lightning_gpuprof.model.trace.step_trace import StepDevice, StepRow, StepTrace
from lightning_gpuprof.trace.analyses.joins.main_thread_phases import main_thread_phases, steps_or_window
from lightning_gpuprof.trace.intervals import Coverage
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.steps import Steps
from lightning_gpuprof.trace.tables import Int64, Spans


def step_trace(linked: LinkedTrace) -> StepTrace:
    """Where the time of each step went.

    Args:
        linked: The trace.

    Returns:
        One row per ``ProfilerStep#`` range, also the first and the last, and their mean; one row for the whole window
        if there are none, from the begin of the first to the end of the last event.
    """
    has_steps = len(linked.steps) > 0
    steps = steps_or_window(linked)
    if steps is None:
        return StepTrace()
    total = steps.end_ns - steps.start_ns
    phases = main_thread_phases(linked, steps)
    launched = _kernels_launched(linked, steps)
    devices = {linked.trace.devices[number]: _device_times(linked, number, steps) for number in linked.device_rows}

    def row(name: str, of: Callable[[Int64], float]) -> StepRow:
        return StepRow(
            name=name,
            total_us=of(total) / 1000,
            phases_us={phase: of(times) / 1000 for phase, times in phases.items()},
            other_us=of(total - sum(phases.values(), np.zeros(len(steps), np.int64))) / 1000,
            kernels_launched=of(launched),
            devices=tuple(
                StepDevice(device=device, **{field: of(times) / 1000 for field, times in columns.items()})
                for device, columns in sorted(devices.items(), key=lambda item: (len(item[0]), item[0]))
            ),
        )

    rows = tuple(row(name, partial(_value_at, at=at)) for at, name in enumerate(steps.names))
    mean = row(f"mean of {len(steps)}", lambda column: int(column.sum()) / len(steps)) if has_steps else None
    return StepTrace(steps=rows, mean=mean, has_steps=has_steps)


def _value_at(column: Int64, at: int) -> float:
    return int(column[at])


def _kernels_launched(linked: LinkedTrace, steps: Steps) -> Int64:
    kernels = linked.launched & linked.is_kernel
    step = steps.at(linked.launch_start_ns[kernels])
    return np.bincount(step[step >= 0], minlength=len(steps)).astype(np.int64)


def _device_times(linked: LinkedTrace, device: int, steps: Steps) -> dict[str, Int64]:
    """The fields of :class:`StepDevice`, for each step, in nanoseconds."""
    rows = linked.device_rows[device]
    work = linked.work.where(rows)
    is_kernel, is_communication = linked.is_kernel[rows], linked.is_communication[rows]
    compute = _coverage(work, is_kernel & ~is_communication)
    communication = _coverage(work, is_communication)
    covers = {
        "busy_us": linked.device_busy[device],
        "kernel_us": _coverage(work, is_kernel) if is_communication.any() else compute,
        "compute_us": compute,
        "memcpy_us": _coverage(work, ~is_kernel),
        "communication_us": communication,
        "exposed_communication_us": communication.without(compute),
    }
    times = {field: cover.overlap_ns(steps.start_ns, steps.end_ns) for field, cover in covers.items()}
    times["idle_us"] = steps.end_ns - steps.start_ns - times["busy_us"]
    return times


def _coverage(work: Spans, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Coverage:
    return Coverage(work.start_ns[chosen], work.end_ns[chosen])
