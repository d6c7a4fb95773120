"""The trend of a quantity over steps or time, read at one or several points of a step.

Points of a step are what seasons are to rivers: values are compared only with those of their own point (seasonal
Kendall test and slope, Hirsch, Slack and Smith 1982), so that going up and down within each step is no trend.
"""

import math

import msgspec
import numpy as np

from lightning_gpuprof.analyze.journal_columns import Ints
from lightning_gpuprof.analyze.statistics import Floats

MAX_SAMPLES = 400
"""Of more, so many are taken evenly: all pairs are compared."""

MIN_SAMPLES = 10


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """A trend and the chance to see it in a quantity that has none."""

    slope: float
    """Median of the slopes between all pairs of samples (Theil 1950, Sen 1968)."""
    p_value: float
    """Two-sided, by the normal approximation with ties and continuity corrected (Kendall 1975)."""


def trend(steps: Floats, values: Floats, points: Ints | None = None) -> Trend | None:
    """The trend of values over steps.

    Args:
        steps: Shape (n,), rising.
        values: Shape (n,).
        points: Shape (n,), which point of the step each was read at; None: the same.

    Returns:
        None below ten samples, or if those of a point are all of one step.
    """
    if len(steps) > MAX_SAMPLES:
        kept = np.linspace(0, len(steps) - 1, MAX_SAMPLES).astype(np.int64)
        steps, values = steps[kept], values[kept]
        points = None if points is None else points[kept]
    n = len(steps)
    if n < MIN_SAMPLES:
        return None
    first, second = np.triu_indices(n, 1)
    comparable = steps[second] > steps[first]
    if points is not None:
        comparable &= points[first] == points[second]
    first, second = first[comparable], second[comparable]
    if not len(first):
        return None
    risen = values[second] - values[first]
    score = float(np.sign(risen).sum())
    groups = [values] if points is None else [values[points == point] for point in np.unique(points)]
    variance = sum(map(_variance, groups))
    z = 0.0 if variance <= 0 or score == 0 else (abs(score) - 1) / math.sqrt(variance)
    slopes = risen / (steps[second] - steps[first])
    return Trend(slope=float(np.median(slopes)), p_value=math.erfc(z / math.sqrt(2)))


def _variance(values: Floats) -> float:
    """Of the score of values without a trend; ties have none."""
    n = len(values)
    _, ties = np.unique(values, return_counts=True)
    return (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
