"""From starts and ends to covered time: the algebra of intervals, without a loop over events."""

from __future__ import annotations

import numpy as np

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
    """Length of the union of intervals."""
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
    count = len(starts)
    row = np.arange(count)
    depth = row - np.searchsorted(np.sort(ends), starts, "right")  # begun before, less ended before
    by_depth = np.argsort(depth, kind="stable")
    children = row[depth > 0]
    # (depth, row) as one sorted number: the parent is the last row before the child that is one level up
    key = depth[by_depth] * count + row[by_depth]
    parent = by_depth[np.searchsorted(key, (depth[children] - 1) * count + children) - 1]
    common = np.maximum(np.minimum(ends[children], ends[parent]) - starts[children], 0)
    # float64 weights are exact up to 2**53 ns, which is 104 days
    nested: Int64 = np.bincount(parent, weights=common, minlength=count).astype(np.int64)
    return nested
