"""Memory over time flows in, whether it keeps growing flows out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lightning_gpuprof.analyze.trend import Floats, trend
from lightning_gpuprof.model.host import MemoryGrowth

MIN_SAMPLES = 20
MAX_PARTS = 10
MIN_PART_SAMPLES = 3


def growth(of: str, t_ns: Sequence[int], values: Sequence[float], period_s: float | None) -> MemoryGrowth | None:
    """Slope and chance by :func:`~lightning_gpuprof.analyze.trend.trend`; None below 20 samples.

    Args:
        of: Whose memory.
        t_ns: When it was read, rising.
        values: Bytes.
        period_s: Mean time of a step; None if not known.
    """
    if len(values) < MIN_SAMPLES:
        return None
    level = np.asarray(values, np.float64)
    found = trend(np.asarray(t_ns, np.float64) / 1e9, level)
    if found is None:
        return None
    tenth, half = max(1, len(level) // 10), len(level) // 2
    late = trend(np.asarray(t_ns, np.float64)[half:] / 1e9, level[half:])
    return MemoryGrowth(
        of=of,
        slope_bytes_per_s=found.slope,
        slope_bytes_per_step=None if period_s is None else found.slope * period_s,
        first_bytes=float(np.median(level[:tenth])),
        last_bytes=float(np.median(level[-tenth:])),
        p_value=found.p_value,
        samples=len(values),
        late_slope_bytes_per_s=None if late is None else late.slope,
        typical_rise_ratio=_typical_rise_ratio(np.asarray(t_ns, np.float64), level),
    )


def _typical_rise_ratio(t_ns: Floats, level: Floats) -> float | None:
    parts = min(MAX_PARTS, len(level) // MIN_PART_SAMPLES)
    edges = np.searchsorted(t_ns, np.linspace(t_ns[0], t_ns[-1], parts + 1)[1:-1])
    rises = np.diff([float(np.min(part)) for part in np.split(level, edges) if len(part)])
    mean = float(np.mean(rises))
    return float(np.median(rises)) / mean if mean > 0 else None
