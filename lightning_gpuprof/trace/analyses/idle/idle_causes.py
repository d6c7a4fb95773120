"""Why a device was idle: time of each gap by cause, which sums to the gap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightning_gpuprof.model.trace.idle import BACK_TO_BACK_BELOW_US, HOST_WORK_FROM_US, IDLE_CAUSES, IdleCause
from lightning_gpuprof.trace.analyses.idle.host_activity import HostActivity
from lightning_gpuprof.trace.analyses.idle.idle_gaps import Gaps
from lightning_gpuprof.trace.distinct import distinct
from lightning_gpuprof.trace.intervals import NOWHERE, Coverage
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.tables import ABSENT, Int32, Int64, Rows

Int8 = npt.NDArray[np.int8]

_NUMBER: dict[IdleCause, int] = {cause: number for number, cause in enumerate(IDLE_CAUSES)}
CLAIMS: tuple[IdleCause, ...] = IDLE_CAUSES[: _NUMBER["between_steps"]]
"""Causes that spans tell of, in the order in which they claim a moment."""

_START_OF_TIME = np.iinfo(np.int64).min


@dataclass(frozen=True, kw_only=True)
class CausedParts:
    """Parts of gaps that have one cause and lie in one step; all columns are equally long.

    The parts of a gap sum to it. They have no place in it: two parts of a gap may alternate.
    """

    gap: Int32
    """Row in :class:`Gaps`."""
    step: Int32
    """The step by the host's time, :data:`ABSENT` outside of all."""
    cause: Int8
    """Number in :data:`IDLE_CAUSES`."""
    time_ns: Int64
    """More than 0."""
    host_ns: tuple[int, int, int]
    """All ``launch`` and ``host_work`` in calls, in operators, and in neither."""

    def by_cause(self, label: Rows | Int32, count: int) -> Int64:
        """Sum the parts of each label and cause.

        Args:
            label: One for each part, :data:`ABSENT` for parts that do not count.
            count: Labels are below this.

        Returns:
            One row for each cause, one column for each label.
        """
        kept = np.flatnonzero(label > ABSENT)
        place = self.cause[kept].astype(np.intp) * count + label[kept]
        # float64 sums of whole nanoseconds are exact up to 2**53 ns, which is 104 days
        summed = np.bincount(place, weights=self.time_ns[kept], minlength=len(IDLE_CAUSES) * count)
        return summed.astype(np.int64).reshape(len(IDLE_CAUSES), count)


class _PartsBuilder:
    """Collects parts."""

    def __init__(self) -> None:
        self._columns: list[tuple[Int32, Int32, Int8, Int64]] = []

    def add(self, cause: IdleCause, gap: Rows, step: Rows, time_ns: Int64) -> None:
        """Add parts of one cause; those without time are left out."""
        lasting = np.flatnonzero(time_ns)
        if len(lasting):
            number = np.full(len(lasting), _NUMBER[cause], np.int8)
            columns = gap[lasting].astype(np.int32), step[lasting].astype(np.int32), number, time_ns[lasting]
            self._columns.append(columns)

    def joined(self, host_ns: Int64) -> CausedParts:
        """All parts."""
        none = np.zeros(0, np.int32)
        columns = self._columns or [(none, none, np.zeros(0, np.int8), np.zeros(0, np.int64))]
        gap, step, cause, time_ns = (np.concatenate(column) for column in zip(*columns, strict=True))
        calls_ns, operators_ns, elsewhere_ns = host_ns.tolist()
        return CausedParts(
            gap=gap, step=step, cause=cause, time_ns=time_ns, host_ns=(calls_ns, operators_ns, elsewhere_ns)
        )


def causes_of(linked: LinkedTrace, gaps: Gaps, activity: HostActivity) -> CausedParts:
    """Say why each gap is there; the causes are defined at :data:`IdleCause`.

    Args:
        linked: The trace.
        gaps: All gaps of one device.
        activity: What the host was at.
    """
    steps = linked.steps
    bounds = distinct(np.concatenate((steps.start_ns, steps.end_ns)))
    parts = _PartsBuilder()
    host_ns = np.zeros(3, np.int64)
    all_gaps, all_starts, all_ends = cut(gaps.start_ns, gaps.host_end_ns, bounds)
    thread_of = gaps.thread[all_gaps]
    for thread in distinct(thread_of).tolist():
        own = np.flatnonzero(thread_of == thread)
        gap, start_ns, end_ns = all_gaps[own], all_starts[own], all_ends[own]
        step = steps.at(start_ns)
        told_ns = _disjoint_ns(start_ns, end_ns, _claims(linked, gaps, activity, thread))
        left_ns = end_ns - start_ns
        for cause in CLAIMS:
            of_cause_ns = next(told_ns)
            parts.add(cause, gap, step, of_cause_ns)
            left_ns -= of_cause_ns
        inside = (step > ABSENT) | (not len(steps))
        parts.add("between_steps", gap, step, left_ns * ~inside)
        left_ns = left_ns * inside
        long = np.bincount(gap, weights=left_ns, minlength=len(gaps))[gap] > HOST_WORK_FROM_US * 1000
        parts.add("host_work", gap, step, left_ns * long)
        parts.add("launch", gap, step, left_ns * ~long)
        calls_ns, operators_ns = (int(ns[inside].sum()) for ns in told_ns)
        host_ns += (calls_ns, operators_ns, int(left_ns.sum()) - calls_ns - operators_ns)
    late_gaps, late_starts, late_ends = cut(gaps.host_end_ns, gaps.end_ns, bounds)
    late_cause, late_step = device_side(gaps)[late_gaps], steps.at(late_starts)
    for number in distinct(late_cause).tolist():
        own = np.flatnonzero(late_cause == number)
        parts.add(IDLE_CAUSES[number], late_gaps[own], late_step[own], late_ends[own] - late_starts[own])
    return parts.joined(host_ns)


def _claims(linked: LinkedTrace, gaps: Gaps, activity: HostActivity, thread: int) -> Iterator[Coverage]:
    """When the threads that matter were at each of :data:`CLAIMS`, then in calls, then in operators."""
    threads = activity.relevant_threads(thread)
    for cause in CLAIMS:
        coverage = activity.of(cause, threads)
        yield with_lost_lead(coverage, linked, gaps, thread, threads) if cause == "host_sync" else coverage
    yield activity.in_calls(threads)
    yield activity.in_operators(threads)


def _disjoint_ns(starts: Int64, ends: Int64, claims: Iterable[Coverage]) -> Iterator[Int64]:
    """Time of each interval in each set and in none of those before it: one column for each set, in turn."""
    none_ns = np.zeros(len(starts), np.int64)
    so_far, before_ns = NOWHERE, none_ns
    for claim in claims:
        if not len(claim.start_ns):
            yield none_ns
            continue
        so_far = Coverage(
            np.concatenate((so_far.start_ns, claim.start_ns)), np.concatenate((so_far.end_ns, claim.end_ns))
        )
        now_ns = so_far.overlap_ns(starts, ends)
        yield now_ns - before_ns
        before_ns = now_ns


def with_lost_lead(waits: Coverage, linked: LinkedTrace, gaps: Gaps, thread: int, threads: frozenset[int]) -> Coverage:
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


def device_side(gaps: Gaps) -> Rows:
    """The cause of what follows the host part of each gap, as its number in :data:`IDLE_CAUSES`."""
    cause = np.full(len(gaps), _NUMBER["queued"], np.intp)
    cause[gaps.duration_ns < BACK_TO_BACK_BELOW_US * 1000] = _NUMBER["back_to_back"]
    cause[gaps.host_ns > 0] = _NUMBER["launch_latency"]
    cause[~gaps.launch_known] = _NUMBER["unexplained"]
    return cause


def cut(starts: Int64, ends: Int64, bounds: Int64) -> tuple[Rows, Int64, Int64]:
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
