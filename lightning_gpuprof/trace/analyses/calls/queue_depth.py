"""From launches and ends of work to how much work was in the queue, at any moment and as a short series."""

from __future__ import annotations

import numpy as np

from lightning_gpuprof.model.trace.streams import QueueDepth
from lightning_gpuprof.trace.tables import Int64


def queue_depth(entered_ns: Int64, left_ns: Int64, window_ns: tuple[int, int], points: int) -> QueueDepth:
    """Count the work that is launched and not done.

    Args:
        entered_ns: When each work was launched; what was launched before the window is in it from its start.
        left_ns: When each was done, not before it was launched and not after the window.
        window_ns: Start and end of the time that is looked at.
        points: Most stretches of the series; 0 for none.
    """
    start_ns, end_ns = window_ns
    length_ns = end_ns - start_ns
    entered = np.sort(np.clip(entered_ns, start_ns, end_ns))
    left = np.sort(left_ns)
    edges = np.concatenate((entered, left))
    order = np.argsort(edges, kind="stable")
    moments = np.append(edges[order], end_ns)
    depth = np.cumsum(np.where(order < len(entered), 1, -1))
    lasting = np.diff(moments)
    # depth before the first edge is 0: the window of a stream may start before its work
    empty_ns = int(lasting[depth == 0].sum()) + int(moments[0] - start_ns)
    seen = depth[lasting > 0]
    bins = _bins(start_ns, length_ns, points)
    return QueueDepth(
        mean=float((left_ns - np.clip(entered_ns, start_ns, end_ns)).sum()) / length_ns if length_ns else 0.0,
        max=int(seen.max(initial=0)),
        empty_ratio=empty_ns / length_ns if length_ns else 0.0,
        bin_us=float(length_ns) / max(len(bins) - 1, 1) / 1000,
        means=_means(moments, depth, bins),
        maxima=_maxima(moments, depth, bins),
    )


def _bins(start_ns: int, length_ns: int, points: int) -> Int64:
    """Edges of equal stretches, to whole nanoseconds."""
    count = min(points, length_ns)
    return start_ns + np.arange(count + 1, dtype=np.int64) * length_ns // max(count, 1)


def _means(moments: Int64, depth: Int64, bins: Int64) -> tuple[float, ...]:
    if len(bins) < 2:
        return ()
    # work in the queue, summed over time, up to each moment; between two moments it grows evenly
    summed = np.concatenate(([0], np.cumsum(depth * np.diff(moments))))
    last = np.searchsorted(moments, bins, "right") - 1
    at = np.clip(last, 0, len(depth) - 1)
    up_to = np.where(last < 0, 0, summed[at] + depth[at] * (np.minimum(bins, moments[-1]) - moments[at]))
    return tuple(np.round(np.diff(up_to) / np.diff(bins), 3).tolist())


def _maxima(moments: Int64, depth: Int64, bins: Int64) -> tuple[int, ...]:
    if len(bins) < 2:
        return ()
    lasts = np.diff(moments) > 0
    # what each stretch begins with, then what it changes to
    times, depths = moments[:-1][lasts], depth[lasts]
    last = np.searchsorted(times, bins[:-1], "right") - 1
    first = np.where(last >= 0, depths[np.maximum(last, 0)], 0) if len(depths) else np.zeros(len(last), np.int64)
    all_times = np.concatenate((bins[:-1], times))
    order = np.argsort(all_times, kind="stable")
    of_all = np.concatenate((first, depths))[order]
    return tuple(np.maximum.reduceat(of_all, np.searchsorted(all_times[order], bins[:-1])).tolist())
