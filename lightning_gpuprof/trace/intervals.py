"""The algebra of intervals: covered time, without a loop over events."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lightning_gpuprof.trace.nesting import nested
from lightning_gpuprof.trace.tables import Int32, Int64


def union(start_ns: Int64, end_ns: Int64) -> tuple[Int64, Int64]:
    """Merge intervals that overlap or touch.

    Args:
        start_ns: Starts, in any order.
        end_ns: Ends, none before its start.

    Returns:
        Starts and ends of disjoint intervals in order of time.
    """
    if not len(start_ns):
        return start_ns, end_ns
    order = np.argsort(start_ns, kind="stable")
    starts, reached = start_ns[order], np.maximum.accumulate(end_ns[order])
    opens = np.flatnonzero(np.concatenate(([True], starts[1:] > reached[:-1])))
    closes = np.concatenate((opens[1:] - 1, [len(starts) - 1]))
    return starts[opens], reached[closes]


def covered_ns(start_ns: Int64, end_ns: Int64) -> int:
    """Length of the union of intervals.

    Args:
        start_ns: Starts of n intervals, in any order.
        end_ns: Their ends.
    """
    starts, ends = union(start_ns, end_ns)
    return int((ends - starts).sum())


def exclusive_ns(start_ns: Int64, end_ns: Int64, thread: Int32) -> Int64:
    """Time of each range without the ranges nested directly in it.

    Ranges of one thread are taken as nested, as a call stack makes them; then the exclusive times of a thread sum to
    the time that its ranges cover. Of a range that outlasts the one it began in, only the common part is subtracted.

    Args:
        start_ns: Starts, in any order.
        end_ns: Ends, none before its start.
        thread: The thread of each range; ranges of different threads do not nest.

    Returns:
        One value for each range, from 0 to its duration.
    """
    exclusive = end_ns - start_ns
    lasting = np.flatnonzero(exclusive > 0)  # an empty range takes no time from anyone, and its depth is not defined
    # of two ranges that begin together the longer one is the outer one
    order = lasting[np.lexsort((-end_ns[lasting], start_ns[lasting], thread[lasting]))]
    for of_thread in np.split(order, np.flatnonzero(np.diff(thread[order])) + 1):
        exclusive[of_thread] -= _nested_ns(start_ns[of_thread], end_ns[of_thread])
    result: Int64 = np.maximum(exclusive, 0)
    return result


def _nested_ns(starts: Int64, ends: Int64) -> Int64:
    """Time of each range that its direct children take; ranges in order of start, outer before inner."""
    around, _ = nested(starts, ends)
    children = np.flatnonzero(around >= 0)
    parent = around[children]
    common = np.maximum(np.minimum(ends[children], ends[parent]) - starts[children], 0)
    # float64 weights are exact up to 2**53 ns, which is 104 days
    summed: Int64 = np.bincount(parent, weights=common, minlength=len(starts)).astype(np.int64)
    return summed


class Coverage:
    """The union of some intervals, with the covered time up to any moment at hand.

    The overlap with any other interval is then a difference of two look-ups.

    Args:
        start_ns: Starts, in any order.
        end_ns: Ends, none before its start.
    """

    def __init__(self, start_ns: Int64, end_ns: Int64) -> None:
        self.start_ns, self.end_ns = union(start_ns, end_ns)
        """Disjoint, in order of time."""
        self._before = np.concatenate(([0], np.cumsum(self.end_ns - self.start_ns)))
        self.total_ns = int(self._before[-1])

    def up_to(self, time_ns: Int64) -> Int64:
        """Covered time before each moment."""
        if not len(self.start_ns):
            return np.zeros(len(time_ns), np.int64)
        begun = np.searchsorted(self.start_ns, time_ns, "right")
        last = np.maximum(begun - 1, 0)
        in_last = np.minimum(time_ns, self.end_ns[last]) - self.start_ns[last]
        covered: Int64 = np.where(begun > 0, self._before[last] + in_last, 0)
        return covered

    def overlap_ns(self, start_ns: Int64, end_ns: Int64) -> Int64:
        """Covered time inside each interval.

        Args:
            start_ns: Starts of n intervals.
            end_ns: Their ends.

        Returns:
            n times in ns.
        """
        return self.up_to(end_ns) - self.up_to(start_ns)

    def contains(self, time_ns: Int64) -> npt.NDArray[np.bool_]:
        """Whether each moment is covered; an end is not."""
        last = np.searchsorted(self.start_ns, time_ns, "right") - 1
        inside: npt.NDArray[np.bool_] = last >= 0
        if len(self.end_ns):
            inside &= time_ns < self.end_ns[np.maximum(last, 0)]
        return inside

    def gaps(self, start_ns: int, end_ns: int) -> tuple[Int64, Int64]:
        """What is not covered between two moments, as disjoint intervals in order of time.

        Args:
            start_ns: First moment.
            end_ns: Last moment.

        Returns:
            Starts and ends.
        """
        edges = np.concatenate(
            ([start_ns], np.clip(_interleaved(self.start_ns, self.end_ns), start_ns, end_ns), [end_ns])
        )
        starts, ends = edges[::2], edges[1::2]
        return starts[ends > starts], ends[ends > starts]

    def within(self, other: Coverage) -> Coverage:
        """What both cover."""
        if not len(self.start_ns) or not len(other.start_ns):
            return NOWHERE
        starts, ends = other.gaps(int(self.start_ns[0]), int(self.end_ns[-1]))
        return self.without(Coverage(starts, ends))

    def without(self, other: Coverage) -> Coverage:
        """What this covers and the other does not."""
        if not len(other.start_ns) or not len(self.start_ns):
            return self
        edges = np.sort(np.concatenate((self.start_ns, self.end_ns, other.start_ns, other.end_ns)))
        starts, ends = edges[:-1], edges[1:]
        kept = (ends > starts) & self.contains(starts) & ~other.contains(starts)
        return Coverage(starts[kept], ends[kept])


def _interleaved(starts: Int64, ends: Int64) -> Int64:
    both = np.empty(2 * len(starts), np.int64)
    both[::2], both[1::2] = starts, ends
    return both


NOWHERE = Coverage(np.zeros(0, np.int64), np.zeros(0, np.int64))
"""Covers nothing."""
