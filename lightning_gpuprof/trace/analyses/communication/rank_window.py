"""Reduces the trace of a rank to what the comparison of ranks needs of it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from lightning_gpuprof.model.run_folders import TRACE_ENDING
from lightning_gpuprof.model.trace.rank_window import (
    BEFORE_WINDOW,
    NO_STEP,
    CollectiveClass,
    Collectives,
    RankWindow,
)
from lightning_gpuprof.trace.analyses.communication.collectives import collective_calls
from lightning_gpuprof.trace.analyses.joins.device_parts import DeviceParts, device_parts
from lightning_gpuprof.trace.analyses.kernels.kernel_traits import kernel_traits
from lightning_gpuprof.trace.compression import replacing
from lightning_gpuprof.trace.intervals import NOWHERE, Coverage
from lightning_gpuprof.trace.linked import LinkedTrace

_NOTHING = DeviceParts(busy=NOWHERE, computation=NOWHERE, communication=NOWHERE, copies=NOWHERE)


def rank_window(linked: LinkedTrace) -> RankWindow:
    """What the comparison of ranks needs of a trace."""
    work, about = linked.work, linked.trace.about
    device, parts = _communicating(linked)
    return RankWindow(
        rank=about.rank,
        world_size=about.world_size,
        device=device,
        base_time_ns=linked.trace.base_time_ns or 0,
        work_ns=(int(work.start_ns.min()), int(work.end_ns.max())) if len(work) else None,
        window_ns=parts.busy.length_ns,
        busy_ns=parts.busy.total_ns,
        computation_ns=parts.computation.total_ns,
        communication_ns=parts.communication.total_ns,
        steps=tuple(linked.steps.names),
        class_us=_class_us(linked),
        collectives=_collectives(linked, parts.computation),
    )


def _communicating(linked: LinkedTrace) -> tuple[str | None, DeviceParts]:
    """Name and times of the device of a rank that communicates, else of its first one."""
    count = np.bincount(linked.work.device[linked.is_communication], minlength=1)
    parts = device_parts(linked)
    if not parts:
        return None, _NOTHING
    device = int(count.argmax()) if count.any() else min(parts)
    return linked.trace.devices[device], parts[device]


def _collectives(linked: LinkedTrace, computation: Coverage) -> Collectives:
    calls = collective_calls(linked)
    rows = calls.rows
    at = linked.steps.at(linked.launch_start_ns[rows])
    step = np.where(at >= 0, at, NO_STEP)
    if len(linked.trace.runtime):
        step = np.where(linked.launched[rows], step, BEFORE_WINDOW)
    start_ns, end_ns = linked.work.start_ns[rows], linked.work.end_ns[rows]
    return Collectives(
        classes=tuple(
            CollectiveClass(kind=one.kind, group=one.group, message_bytes=one.message_bytes) for one in calls.described
        ),
        of_class=calls.what.tolist(),
        step=step.tolist(),
        start_ns=start_ns.tolist(),
        end_ns=end_ns.tolist(),
        computed_at_start_ns=computation.up_to(start_ns).tolist(),
        computed_at_end_ns=computation.up_to(end_ns).tolist(),
    )


def _class_us(linked: LinkedTrace) -> dict[str, float]:
    traits = kernel_traits(linked)
    totals: dict[str, int] = {}
    for trait, duration_ns in zip(traits.of_group, traits.groups.sums(linked.trace.kernel.duration_ns), strict=True):
        totals[trait.kernel_class] = totals.get(trait.kernel_class, 0) + int(duration_ns)
    return {kind: duration_ns / 1000 for kind, duration_ns in totals.items()}


def file_beside(trace: Path) -> Path:
    """Where the window of a rank is kept beside its trace."""
    return trace.with_name(f"{trace.name.removesuffix(TRACE_ENDING)}.collectives.json")


def write_beside(window: RankWindow, trace: Path) -> None:
    """Keep the window of a rank beside its trace.

    Args:
        window: Of that trace.
        trace: The file, whole.

    Raises:
        OSError: The file cannot be written.
    """
    kept = msgspec.structs.replace(window, trace_bytes=trace.stat().st_size)
    with replacing(file_beside(trace)) as file:
        file.write(msgspec.json.encode(kept))


def read_beside(trace: Path) -> RankWindow | None:
    """The window that was kept beside a trace; None if there is none, or it is damaged or of another trace.

    Args:
        trace: The file.
    """
    try:
        window = msgspec.json.decode(file_beside(trace).read_bytes(), type=RankWindow)
        is_of_trace = window.trace_bytes == trace.stat().st_size
    except (OSError, msgspec.MsgspecError):
        return None
    return window if is_of_trace and _is_whole(window) else None


def _is_whole(window: RankWindow) -> bool:
    calls = window.collectives
    columns = (calls.step, calls.start_ns, calls.end_ns, calls.computed_at_start_ns, calls.computed_at_end_ns)
    return (
        all(len(column) == len(calls.of_class) for column in columns)
        and all(0 <= number < len(calls.classes) for number in calls.of_class)
        and all(BEFORE_WINDOW <= number < len(window.steps) for number in calls.step)
    )
