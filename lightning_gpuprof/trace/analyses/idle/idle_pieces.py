"""Cuts the gaps of a device into disjoint pieces, each with its one cause."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lightning_gpuprof.model.trace.idle import IDLE_CAUSES, IdleCause
from lightning_gpuprof.trace.analyses.idle.host_activity import HostActivity
from lightning_gpuprof.trace.analyses.idle.idle_causes import CLAIMS, cut, device_side, with_lost_lead
from lightning_gpuprof.trace.analyses.idle.idle_gaps import HELD_FROM_NS, Gaps
from lightning_gpuprof.trace.distinct import distinct
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.tables import ABSENT, Int64, Rows

_NUMBER: dict[IdleCause, int] = {cause: number for number, cause in enumerate(IDLE_CAUSES)}


@dataclass(frozen=True, kw_only=True)
class IdlePieces:
    """Stretches of idle time in order of time, none empty; all columns are equally long."""

    gap: Rows
    """Row in :class:`Gaps`."""
    start_ns: Int64
    end_ns: Int64
    cause: Rows
    """Index into :data:`IDLE_CAUSES`."""


def idle_pieces(linked: LinkedTrace, gaps: Gaps, activity: HostActivity) -> IdlePieces:
    """Cut the gaps of a device where their cause changes.

    Each cause has as much of each gap as :func:`causes_of` tells; here it has a place in time, too.

    Args:
        linked: The trace.
        gaps: All gaps of one device.
        activity: What the host was at.
    """
    late = np.flatnonzero(gaps.host_ns > 0)
    parts = [
        _host_pieces(linked, gaps, activity, int(thread), late[gaps.thread[late] == thread])
        for thread in distinct(gaps.thread[late])
    ]
    device = np.flatnonzero(gaps.end_ns > gaps.host_end_ns)
    parts.append((device, gaps.host_end_ns[device], gaps.end_ns[device], device_side(gaps)[device]))
    gap, starts, ends, cause = (np.concatenate(column) for column in zip(*parts, strict=True))
    launch = cause == _NUMBER["launch"]
    # float64 sums of whole nanoseconds are exact up to 2**53 ns, which is 104 days
    launch_ns = np.bincount(gap[launch], weights=(ends - starts)[launch], minlength=len(gaps))
    cause[launch & (launch_ns[gap] > HELD_FROM_NS)] = _NUMBER["host_work"]
    order = np.lexsort((starts, gap))
    return _merged(gap[order], starts[order], ends[order], cause[order])


def _host_pieces(
    linked: LinkedTrace, gaps: Gaps, activity: HostActivity, thread: int, late: Rows
) -> tuple[Rows, Int64, Int64, Rows]:
    """Pieces of the host parts of the gaps that a thread ended: gap, start, end and cause."""
    steps = linked.steps
    threads = activity.relevant_threads(thread)
    claims = [activity.of(cause, threads) for cause in CLAIMS]
    waits = _NUMBER["host_sync"]
    claims[waits] = with_lost_lead(claims[waits], linked, gaps, thread, threads)
    edges = [steps.start_ns, steps.end_ns]
    for claim in claims:
        edges += [claim.start_ns, claim.end_ns]
    row, starts, ends = cut(gaps.start_ns[late], gaps.host_end_ns[late], distinct(np.concatenate(edges)))
    outside = (steps.at(starts) == ABSENT) & bool(len(steps))
    cause = np.where(outside, _NUMBER["between_steps"], _NUMBER["launch"])
    for number, claim in reversed(tuple(enumerate(claims))):  # the first of the list has the last word
        cause[claim.contains(starts)] = number
    return late[row], starts, ends, cause


def _merged(gap: Rows, starts: Int64, ends: Int64, cause: Rows) -> IdlePieces:
    """Pieces in order of time, those of one gap and cause that touch as one."""
    if not len(gap):
        return IdlePieces(gap=gap, start_ns=starts, end_ns=ends, cause=cause)
    opens = np.flatnonzero(np.concatenate(([True], (np.diff(gap) != 0) | (np.diff(cause) != 0))))
    closes = np.concatenate((opens[1:] - 1, [len(gap) - 1]))
    return IdlePieces(gap=gap[opens], start_ns=starts[opens], end_ns=ends[closes], cause=cause[opens])
