"""What a measured number can be."""

from __future__ import annotations

import math


def possible(value: float) -> bool:
    """Whether something that was measured is a finite number of at least 0."""
    return math.isfinite(value) and value >= 0
