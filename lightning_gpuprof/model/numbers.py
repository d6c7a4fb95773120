"""What a measured number can be, and how sure a share of samples is."""

from __future__ import annotations

import math

ONE_SIDED_5_PERCENT = 1.645
"""Of the normal distribution: 5 % lie beyond it on one side."""


def possible(value: float) -> bool:
    """Whether something that was measured is a finite number of at least 0."""
    return math.isfinite(value) and value >= 0


def lower_share(ratio: float, count: int) -> float:
    """5 % lower bound of a share of samples (Wilson 1927).

    Args:
        ratio: Share of the samples, 0 to 1.
        count: Samples.
    """
    if count <= 0 or not possible(ratio):
        return 0.0
    ratio, z2 = min(1.0, ratio), ONE_SIDED_5_PERCENT**2
    spread = ONE_SIDED_5_PERCENT * math.sqrt(ratio * (1 - ratio) / count + z2 / (4 * count**2))
    return max(0.0, (ratio + z2 / (2 * count) - spread) / (1 + z2 / count))
