"""The algebra of intervals: covered time, without a loop over events."""

from __future__ import annotations

import numpy as np

from lightning_gpuprof.trace.tables import Int64, Mask


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

    Returns:
        In ns; what several cover counts once. 0 without intervals.
    """
    starts, ends = union(start_ns, end_ns)
    return int((ends - starts).sum())


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

    @staticmethod
    def union_of(*parts: Coverage) -> Coverage:
        """What any of the parts covers."""
        filled = [part for part in parts if len(part.start_ns)]
        if len(filled) < 2:
            return filled[0] if filled else NOWHERE
        return Coverage(
            np.concatenate([part.start_ns for part in filled]), np.concatenate([part.end_ns for part in filled])
        )

    @property
    def window_ns(self) -> tuple[int, int]:
        """First start and last end; there must be one."""
        return int(self.start_ns[0]), int(self.end_ns[-1])

    @property
    def length_ns(self) -> int:
        """From the first start to the last end; 0 if nothing is covered."""
        return int(self.end_ns[-1] - self.start_ns[0]) if len(self.start_ns) else 0

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

    def common_ns(self, other: Coverage) -> int:
        """Time that both cover."""
        return int(self.overlap_ns(other.start_ns, other.end_ns).sum())

    def contains(self, time_ns: Int64) -> Mask:
        """Whether each moment is covered; an end is not."""
        last = np.searchsorted(self.start_ns, time_ns, "right") - 1
        inside: Mask = last >= 0
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
