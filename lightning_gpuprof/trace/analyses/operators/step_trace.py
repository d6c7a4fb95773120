"""Where the time of each step went, on the main thread and on each device."""

from collections.abc import Callable
from functools import partial

import numpy as np

from lightning_gpuprof.model.trace.step_trace import StepDevice, StepRow, StepTrace
from lightning_gpuprof.trace.analyses.joins.device_parts import DeviceParts, device_parts
from lightning_gpuprof.trace.analyses.joins.main_thread_phases import (
    main_thread_phases,
    phase_coverage,
    steps_or_window,
)
from lightning_gpuprof.trace.intervals import NOWHERE, Coverage
from lightning_gpuprof.trace.linked import HOST_COLLECTIVES, LinkedTrace
from lightning_gpuprof.trace.steps import Steps
from lightning_gpuprof.trace.tables import Int64


def step_trace(linked: LinkedTrace) -> StepTrace:
    """Where the time of each step went.

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
    waiting = _waiting_for_ranks(linked).overlap_ns(steps.start_ns, steps.end_ns)
    devices = {
        linked.trace.devices[number]: _device_times(parts, steps) for number, parts in device_parts(linked).items()
    }

    def row(name: str, of: Callable[[Int64], float]) -> StepRow:
        return StepRow(
            name=name,
            total_us=of(total) / 1000,
            phases_us={phase: of(times) / 1000 for phase, times in phases.items()},
            other_us=of(total - sum(phases.values(), np.zeros(len(steps), np.int64))) / 1000,
            kernels_launched=of(launched),
            waiting_for_ranks_us=of(waiting) / 1000,
            devices=tuple(
                StepDevice(device=device, **{field: of(times) / 1000 for field, times in columns.items()})
                for device, columns in devices.items()
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


def _waiting_for_ranks(linked: LinkedTrace) -> Coverage:
    ranges, ops = linked.trace.annotation, linked.trace.cpu_op
    chosen = linked.named(ranges, lambda name: name.startswith(HOST_COLLECTIVES))
    collectives = Coverage(ranges.start_ns[chosen], ranges.end_ns[chosen])
    backward = phase_coverage(linked).get("backward", NOWHERE)
    return backward.without(backward.without(collectives)).without(Coverage(ops.start_ns, ops.end_ns))


def _device_times(parts: DeviceParts, steps: Steps) -> dict[str, Int64]:
    """The fields of :class:`StepDevice`, for each step, in nanoseconds."""
    covers = {
        "busy_us": parts.busy,
        "kernel_us": parts.kernels,
        "compute_us": parts.computation,
        "memcpy_us": parts.copies,
        "communication_us": parts.communication,
        "exposed_communication_us": parts.exposed_communication,
    }
    times = {field: cover.overlap_ns(steps.start_ns, steps.end_ns) for field, cover in covers.items()}
    times["idle_us"] = steps.end_ns - steps.start_ns - times["busy_us"]
    return times
