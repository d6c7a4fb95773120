"""The idle time of each device: how much, why, in which steps, and the longest gaps."""

import numpy as np

from lightning_gpuprof.model.trace.idle import (
    CHUNKS,
    IDLE_CAUSES,
    LONG_GAP_US,
    DeviceIdle,
    HostTime,
    Idle,
    IdleCause,
    IdleShare,
    StepIdle,
)
from lightning_gpuprof.trace.analyses.idle.host_activity import host_activity
from lightning_gpuprof.trace.analyses.idle.idle_gaps import Gaps, gaps_by_device
from lightning_gpuprof.trace.analyses.idle.idle_longest import longest_gaps
from lightning_gpuprof.trace.analyses.idle.idle_pieces import IdlePieces, idle_pieces
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.tables import distinct, ratio

LONGEST_GAPS = 20


def idle_times(linked: LinkedTrace, *, longest: int = LONGEST_GAPS) -> Idle:
    """Say when each device was idle and why.

    Args:
        linked: The trace.
        longest: Most gaps of each device that are listed one by one.

    Returns:
        No devices if the trace has no device activity.
    """
    devices = tuple(_device(linked, device, longest) for device in linked.devices)
    return Idle(devices=devices, unseen=host_activity(linked).unseen() if devices else ())


def _device(linked: LinkedTrace, device: int, longest: int) -> DeviceIdle:
    gaps = gaps_by_device(linked)[device]
    pieces = idle_pieces(linked, gaps)
    window_ns, idle_ns = gaps.work.length_ns, int(gaps.duration_ns.sum())
    calls_ns, operators_ns, elsewhere_ns = pieces.host_ns
    is_long = gaps.duration_ns >= LONG_GAP_US * 1000
    return DeviceIdle(
        device=linked.trace.devices[device],
        window_us=window_ns / 1000,
        busy_us=gaps.work.total_ns / 1000,
        idle_us=idle_ns / 1000,
        idle_ratio=ratio(idle_ns, window_ns),
        gaps=len(gaps),
        causes=_shares(pieces, len(gaps), idle_ns, window_ns),
        host=HostTime(
            calls_us=calls_ns / 1000,
            operators_us=operators_ns / 1000 if len(linked.trace.cpu_op) else None,
            elsewhere_us=elsewhere_ns / 1000,
        ),
        steps=_steps(linked, gaps, pieces),
        longest=longest_gaps(linked, gaps, pieces, longest),
        chunks=_chunks(gaps),
        long_gaps=int(np.count_nonzero(is_long)),
        long_gaps_us=int(gaps.duration_ns[is_long].sum()) / 1000,
    )


def _chunks(gaps: Gaps) -> tuple[float, ...]:
    begin_ns, end_ns = gaps.work.window_ns
    edges = np.linspace(begin_ns, end_ns, CHUNKS + 1).astype(np.int64)
    if not (np.diff(edges) > 0).all():
        return ()
    return tuple((gaps.work.overlap_ns(edges[:-1], edges[1:]) / np.diff(edges)).tolist())


def _shares(pieces: IdlePieces, count: int, idle_ns: int, window_ns: int) -> tuple[IdleShare, ...]:
    total_ns = dict(zip(IDLE_CAUSES, pieces.by_cause(np.zeros_like(pieces.gap), 1)[:, 0].tolist(), strict=True))
    # a gap that lies in two steps can have two parts of a cause
    pairs = distinct(pieces.cause.astype(np.int64) * count + pieces.gap)
    gaps = dict(zip(IDLE_CAUSES, np.bincount(pairs // max(count, 1), minlength=len(IDLE_CAUSES)).tolist(), strict=True))
    present = sorted((cause for cause in IDLE_CAUSES if total_ns[cause]), key=lambda cause: -total_ns[cause])
    return tuple(
        IdleShare(
            cause=cause,
            idle_us=total_ns[cause] / 1000,
            idle_ratio=total_ns[cause] / idle_ns,
            window_ratio=total_ns[cause] / window_ns,
            gaps=gaps[cause],
        )
        for cause in present
    )


def _steps(linked: LinkedTrace, gaps: Gaps, pieces: IdlePieces) -> tuple[StepIdle, ...]:
    steps = linked.steps
    if not len(steps):
        return ()
    begin_ns, end_ns = gaps.work.window_ns
    # a moment in two steps belongs to the one that began last, as for Steps.at
    last_ns = np.minimum(steps.end_ns, np.append(steps.start_ns[1:], steps.end_ns[-1]))
    starts = np.clip(steps.start_ns, begin_ns, end_ns)
    ends = np.maximum(np.clip(last_ns, begin_ns, end_ns), starts)
    busy_ns = gaps.work.overlap_ns(starts, ends)
    cause_ns = pieces.by_cause(pieces.step, len(steps))
    found = []
    for row in np.flatnonzero(ends > starts).tolist():
        window_ns = int(ends[row] - starts[row])
        causes: dict[IdleCause, float] = {
            cause: int(ns) / 1000 for cause, ns in zip(IDLE_CAUSES, cause_ns[:, row], strict=True) if ns
        }
        found.append(
            StepIdle(
                step=steps.names[row],
                start_us=int(steps.start_ns[row] - begin_ns) / 1000,
                step_us=int(steps.end_ns[row] - steps.start_ns[row]) / 1000,
                window_us=window_ns / 1000,
                busy_us=int(busy_ns[row]) / 1000,
                idle_us=int(cause_ns[:, row].sum()) / 1000,
                busy_ratio=ratio(int(busy_ns[row]), window_ns),
                causes_us=causes,
            )
        )
    return tuple(found)
