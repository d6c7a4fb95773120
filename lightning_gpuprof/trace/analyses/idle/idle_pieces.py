"""Why a device was idle: its gaps, cut into disjoint pieces that have one cause each."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from lightning_gpuprof.model.trace.idle import BACK_TO_BACK_BELOW_US, HOST_WORK_FROM_US, IDLE_CAUSES, IdleCause
from lightning_gpuprof.trace.analyses.idle.host_activity import HostActivity, host_activity
from lightning_gpuprof.trace.analyses.idle.idle_gaps import Gaps
from lightning_gpuprof.trace.intervals import Coverage
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.tables import ABSENT, Ids, Int32, Int64, Rows, distinct, summed

Int8 = npt.NDArray[np.int8]

_NUMBER: dict[IdleCause, int] = {cause: number for number, cause in enumerate(IDLE_CAUSES)}
_CLAIMS: tuple[IdleCause, ...] = IDLE_CAUSES[: _NUMBER["between_steps"]]
"""Causes that spans show, in the order in which they claim a moment."""

_START_OF_TIME = np.iinfo(np.int64).min


class IdlePieces(msgspec.Struct, frozen=True, kw_only=True):
    """Stretches of idle time in order of time, none empty; all columns are equally long."""

    gap: Ids
    """Row in :class:`Gaps`."""
    start_ns: Int64
    end_ns: Int64
    cause: Int8
    """Index into :data:`IDLE_CAUSES`."""
    step: Int32
    """The step by the host's time, :data:`ABSENT` outside of all."""
    host_ns: tuple[int, int, int]
    """All ``launch`` and ``host_work`` in calls, in operators, and in neither."""

    def by_cause(self, label: Rows | Int32, count: int) -> Int64:
        """Sum the pieces of each label and cause.

        Args:
            label: One for each piece, :data:`ABSENT` for pieces that do not count.
            count: Labels are below this.

        Returns:
            Nanoseconds: one row for each cause, one column for each label.
        """
        kept = np.flatnonzero(label > ABSENT)
        place = self.cause[kept].astype(np.intp) * count + label[kept]
        sums = summed(place, self.end_ns[kept] - self.start_ns[kept], len(IDLE_CAUSES) * count)
        return sums.reshape(len(IDLE_CAUSES), count)

    def merged(self) -> IdlePieces:
        """Pieces of one gap and cause that touch as one, whatever their steps: as they are drawn."""
        if not len(self.gap):
            return self
        opens = np.flatnonzero(np.concatenate(([True], (np.diff(self.gap) != 0) | (np.diff(self.cause) != 0))))
        closes = np.append(opens[1:], len(self.gap)) - 1
        return IdlePieces(
            gap=self.gap[opens],
            start_ns=self.start_ns[opens],
            end_ns=self.end_ns[closes],
            cause=self.cause[opens],
            step=self.step[opens],
            host_ns=self.host_ns,
        )


def idle_pieces(linked: LinkedTrace, gaps: Gaps) -> IdlePieces:
    """Cut the gaps of a device where their cause or the step changes; the causes are defined at :data:`IdleCause`.

    Args:
        linked: The trace.
        gaps: All gaps of one device, or some of them.

    Returns:
        In the order of the gaps, then of time; the pieces of a gap are together as long as it.
    """
    activity, steps = host_activity(linked), linked.steps
    bounds = distinct(np.concatenate((steps.start_ns, steps.end_ns)))
    late = np.flatnonzero(gaps.host_ns > 0)
    parts = []
    for thread in distinct(gaps.thread[late]).tolist():
        parts.append(_host_pieces(linked, gaps, activity, thread, late[gaps.thread[late] == thread], bounds))
    gap, starts, ends = _cut(gaps.host_end_ns, gaps.end_ns, bounds)
    parts.append((gap.astype(np.int32), starts, ends, _device_side(gaps)[gap]))
    gap, starts, ends, cause = (np.concatenate(column) for column in zip(*parts, strict=True))
    launch = np.flatnonzero(cause == _NUMBER["launch"])
    launch_ns = summed(gap[launch], (ends - starts)[launch], len(gaps))
    cause[launch[launch_ns[gap[launch]] > HOST_WORK_FROM_US * 1000]] = _NUMBER["host_work"]
    host_ns = _host_ns(gaps, activity, gap[launch], starts[launch], ends[launch])
    order = np.lexsort((starts, gap))
    starts = starts[order]
    return IdlePieces(
        gap=gap[order],
        start_ns=starts,
        end_ns=ends[order],
        cause=cause[order],
        step=steps.at(starts).astype(np.int32),
        host_ns=host_ns,
    )


def _host_pieces(
    linked: LinkedTrace, gaps: Gaps, activity: HostActivity, thread: int, late: Rows, bounds: Int64
) -> tuple[Int32, Int64, Int64, Int8]:
    """Pieces of the host parts of the gaps that a thread ended: gap, start, end and cause, all its own as launches."""
    steps, threads = linked.steps, activity.relevant_threads(thread)
    claims = {cause: activity.of(cause, threads) for cause in _CLAIMS}
    claims["host_sync"] = _with_lost_lead(claims["host_sync"], linked, gaps, thread, threads)
    edges = [bounds, *(edge for claim in claims.values() for edge in (claim.start_ns, claim.end_ns))]
    row, starts, ends = _cut(gaps.start_ns[late], gaps.host_end_ns[late], distinct(np.concatenate(edges)))
    outside = (steps.at(starts) == ABSENT) & bool(len(steps))
    number = np.where(outside, _NUMBER["between_steps"], _NUMBER["launch"]).astype(np.int8)
    for cause, claim in reversed(claims.items()):  # the first of the list has the last word
        if len(claim.start_ns):
            number[claim.contains(starts)] = _NUMBER[cause]
    return late[row].astype(np.int32), starts, ends, number


def _host_ns(gaps: Gaps, activity: HostActivity, gap: Ids, starts: Int64, ends: Int64) -> tuple[int, int, int]:
    """Time in calls, in operators outside of calls, and in neither, while the host launched too late."""
    calls_ns = either_ns = 0
    thread = gaps.thread[gap]
    for number in distinct(thread).tolist():
        own, threads = thread == number, activity.relevant_threads(number)
        calls = activity.in_calls(threads)
        either = Coverage.union_of(calls, activity.in_operators(threads))
        calls_ns += int(calls.overlap_ns(starts[own], ends[own]).sum())
        either_ns += int(either.overlap_ns(starts[own], ends[own]).sum())
    return calls_ns, either_ns - calls_ns, int((ends - starts).sum()) - either_ns


def _with_lost_lead(waits: Coverage, linked: LinkedTrace, gaps: Gaps, thread: int, threads: frozenset[int]) -> Coverage:
    """Waits for the device, and after each the time by which it made the next launch late.

    While the host waits for a device that works it launches nothing. Had it not waited, the next launch would have come
    earlier by the time waited since the launch before it: so much of the host part after the wait is the wait's.

    Args:
        waits: When the host waited for the device.
        linked: The trace.
        gaps: When the device was idle.
        thread: Number of the launching thread.
        threads: Numbers of the threads whose launches count.
    """
    late = np.flatnonzero((gaps.host_ns > 0) & (gaps.thread == thread))
    if not len(waits.start_ns) or not len(late):
        return waits
    start_ns, end_ns = gaps.start_ns[late], gaps.host_end_ns[late]
    launches_ns = np.sort(linked.launch_start_ns[np.isin(linked.launch_thread, list(threads))])
    before = np.searchsorted(launches_ns, end_ns, "left") - 1
    last_ns = np.where(before >= 0, launches_ns[np.maximum(before, 0)], _START_OF_TIME)
    waited_ns = waits.overlap_ns(np.minimum(last_ns, start_ns), start_ns)
    last_wait = np.maximum(np.searchsorted(waits.start_ns, start_ns, "right") - 1, 0)
    awake_ns = np.where(waits.contains(start_ns), waits.end_ns[last_wait], start_ns)
    lost = waited_ns > 0
    awake_ns, waited_ns = awake_ns[lost], waited_ns[lost]
    lost_ns = np.maximum(np.minimum(awake_ns + waited_ns, end_ns[lost]), awake_ns)
    return Coverage(np.concatenate((waits.start_ns, awake_ns)), np.concatenate((waits.end_ns, lost_ns)))


def _device_side(gaps: Gaps) -> Int8:
    """The cause of what follows the host part of each gap, as its number in :data:`IDLE_CAUSES`."""
    cause = np.full(len(gaps), _NUMBER["queued"], np.int8)
    cause[gaps.duration_ns < BACK_TO_BACK_BELOW_US * 1000] = _NUMBER["back_to_back"]
    cause[gaps.host_ns > 0] = _NUMBER["launch_latency"]
    cause[~gaps.launch_known] = _NUMBER["unexplained"]
    return cause


def _cut(starts: Int64, ends: Int64, bounds: Int64) -> tuple[Rows, Int64, Int64]:
    """Cut intervals at moments: the interval, start and end of each piece; empty intervals have none.

    Args:
        starts: Starts of n intervals, ns.
        ends: Their ends.
        bounds: Moments at which to cut, in order.
    """
    whole = np.flatnonzero(ends > starts)
    first = np.searchsorted(bounds, starts[whole], "right")
    cuts = np.searchsorted(bounds, ends[whole], "left") - first
    if not cuts.any():
        return whole, starts[whole], ends[whole]
    piece = np.repeat(np.arange(len(whole)), cuts + 1)
    opens = np.cumsum(cuts + 1) - cuts - 1
    number = np.arange(len(piece)) - opens[piece]
    at = first[piece] + number
    piece_starts = np.where(number == 0, starts[whole[piece]], bounds[np.maximum(at - 1, 0)])
    piece_ends = np.where(number == cuts[piece], ends[whole[piece]], bounds[np.minimum(at, len(bounds) - 1)])
    return whole[piece], piece_starts, piece_ends
