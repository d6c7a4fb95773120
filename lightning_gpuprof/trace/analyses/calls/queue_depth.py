"""How much was in the launch queue, at any moment and as a short series."""

import numpy as np

from lightning_gpuprof.model.trace.streams import QueueDepth
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.tables import Int32, Int64, Rows


def queue_times_ns(linked: LinkedTrace, rows: Rows) -> tuple[Int64, Int64]:
    """When some work came into the queue and when it left it.

    Args:
        linked: The trace.
        rows: n rows of :attr:`LinkedTrace.work`.

    Returns:
        Two columns of n times: clocks of host and device can differ by a little, but no work begins before it is
        launched.
    """
    work = linked.work
    return np.minimum(linked.launch_start_ns[rows], work.start_ns[rows]), work.end_ns[rows]


def queue_depth(entered_ns: Int64, left_ns: Int64, window_ns: tuple[int, int], points: int) -> QueueDepth:
    """Count the work that is launched and not done.

    Args:
        entered_ns: When each work was launched; what was launched before the window is in it from its start.
        left_ns: When each was done, not before it was launched and not after the window.
        window_ns: Start and end of the time that is looked at.
        points: Most stretches of the series; 0 for none.

    Returns:
        Depths in GPU operations; 0 throughout for a window without length, no series for 0 points.
    """
    start_ns, end_ns = window_ns
    length_ns = end_ns - start_ns
    moments, depth = _depths(np.clip(entered_ns, start_ns, end_ns), left_ns, end_ns)
    lasting = np.diff(moments)
    # depth before the first edge is 0: the window of a stream may start before its work
    empty_ns = int(lasting[depth == 0].sum()) + int(moments[0] - start_ns)
    most = int(depth[lasting > 0].max(initial=0))
    del lasting
    bins = _bins(start_ns, length_ns, points)
    return QueueDepth(
        mean=float((left_ns - np.clip(entered_ns, start_ns, end_ns)).sum()) / length_ns if length_ns else 0.0,
        max=most,
        empty_ratio=empty_ns / length_ns if length_ns else 0.0,
        bin_us=float(length_ns) / max(len(bins) - 1, 1) / 1000,
        means=_means(moments, depth, bins),
        maxima=_maxima(moments, depth, bins),
    )


def _depths(entered_ns: Int64, left_ns: Int64, end_ns: int) -> tuple[Int64, Int32]:
    """Moments at which the depth changes, with the end as the last one, and the depth from each on but the last."""
    edges = np.concatenate((np.sort(entered_ns), np.sort(left_ns)))  # runs in order are merged faster
    # of what happens at one moment the entering comes first
    order = np.argsort(edges, kind="stable")
    moments = np.append(edges[order], end_ns)
    depth: Int32 = np.cumsum(np.where(order < len(entered_ns), np.int8(1), np.int8(-1)), dtype=np.int32)
    return moments, depth


def _bins(start_ns: int, length_ns: int, points: int) -> Int64:
    """Edges of equal stretches, to whole nanoseconds."""
    count = min(points, length_ns)
    return start_ns + np.arange(count + 1, dtype=np.int64) * length_ns // max(count, 1)


def _means(moments: Int64, depth: Int32, bins: Int64) -> tuple[float, ...]:
    if len(bins) < 2:
        return ()
    # work in the queue, summed over time, up to each moment; between two moments it grows evenly
    summed = np.concatenate(([0], np.cumsum(depth * np.diff(moments))))
    last = np.searchsorted(moments, bins, "right") - 1
    at = np.clip(last, 0, len(depth) - 1)
    up_to = np.where(last < 0, 0, summed[at] + depth[at] * (np.minimum(bins, moments[-1]) - moments[at]))
    return tuple(np.round(np.diff(up_to) / np.diff(bins), 3).tolist())


def _maxima(moments: Int64, depth: Int32, bins: Int64) -> tuple[int, ...]:
    if len(bins) < 2:
        return ()
    lasts = np.flatnonzero(np.diff(moments))
    # what each stretch begins with, then what it changes to
    times, depths = moments[lasts], depth[lasts]
    last = np.searchsorted(times, bins[:-1], "right") - 1
    first = (
        np.where(last >= 0, depths[np.maximum(last, 0)], np.int32(0)) if len(depths) else np.zeros(len(last), np.int32)
    )
    times = np.concatenate((bins[:-1], times))
    order = np.argsort(times, kind="stable")
    first_of_bin = np.searchsorted(times, bins[:-1], sorter=order)
    del times
    return tuple(np.maximum.reduceat(np.concatenate((first, depths))[order], first_of_bin).tolist())
