"""Finds where the step time of a run changes its level for good.

A change of speed level is a shift of the median by more than a fifth that lasts at least 20 steps and 1 % of the run.
Step times are first reduced to medians of consecutive blocks, so that single long steps, or every tenth step being
slow, do not count. Levels are then fitted by optimal partitioning (Jackson et al. 2005) of the
logarithms with a penalty of the BIC's kind, in units of a variance that blocks scattered by chance or correlated with
their neighbours have. A change must also be sharp and separate its two sides, so that a slow drift is none.
"""

import math

import numpy as np
import numpy.typing as npt

from lightning_gpuprof.analyze import statistics
from lightning_gpuprof.analyze.statistics import Floats

"""Logarithms of the medians of blocks, shape (m,)."""

MIN_STEPS = 20
MIN_RATIO = 0.01
"""Of the run: a shorter stretch is an excursion."""
MIN_SHIFT = math.log(1.2)
"""A smaller change would not alter what a reader does."""
BLOCK_STEPS = 10
"""Even, so that the median of steps that alternate lies between both."""
MAX_BLOCKS = 2000
PENALTY = 3.0
"""Per change, times the logarithm of the number of blocks: three parameters (place, level, level of the next)."""
MIN_SCALE = 0.01
"""Scatter below 1 % is taken for 1 %: no clock or machine is steadier."""
NEAR_STEPS = 8
MEDIAN_VARIANCE = math.pi / 2
"""Variance of a median over that of a mean of as many normal values."""
MIN_SHARPNESS = 0.5
"""Part of the shift that must be there between the nearest fifths of both sides; a straight drift has 0.2."""
MEDIAN_PIECES = 16
MEDIAN_OF_NORMAL = 0.6745
QUARTILE_OF_NORMAL = 1.1503
"""Quantiles at 50 and 75 % of the absolute value of a standard normal variable."""


def change_points(period_ns: npt.NDArray[np.number], least_shift: float = MIN_SHIFT) -> list[int]:
    """Find where the level changes.

    Args:
        period_ns: Shape (n,), in order of time, any unit above 0.
        least_shift: Logarithm of the smallest change.

    Returns:
        Indices, ascending, at which a new level begins.
    """
    n = len(period_ns)
    if n < 2 * MIN_STEPS:
        return []
    size = max(BLOCK_STEPS, -(-n // MAX_BLOCKS))
    m = n // size
    pieces = np.array_split(period_ns[: m * size].reshape(m, size), MEDIAN_PIECES)  # each is copied
    levels = np.log(np.maximum(np.concatenate([np.median(piece, axis=1) for piece in pieces]), 1))
    logs = np.maximum(period_ns, 1, dtype=np.float32)  # exact to a millionth, in half the memory
    np.log(logs, out=logs)
    least = max(2, math.ceil(max(MIN_STEPS, MIN_RATIO * n) / size))
    variance = max(_long_run_variance(levels, m // 16), MEDIAN_VARIANCE * _long_run_variance(logs, n // 16) / size)
    found = _partition(_despiked(levels) / math.sqrt(variance), least)
    found = _plausible(levels, found, least_shift, near=2, shortest=least, separation=0.75)
    found = _refined(logs, found, size)
    return _plausible(logs, found, least_shift, near=NEAR_STEPS, shortest=MIN_STEPS, separation=0.65)


def _despiked(levels: Floats) -> Floats:
    """Running median of three: a block of long steps that stands alone is no level."""
    inner = np.median(np.stack([levels[:-2], levels[1:-1], levels[2:]]), axis=0)
    return np.concatenate([levels[:1], inner, levels[-1:]])


def _long_run_variance(x: Floats, lag: int) -> float:
    """Variance times how much correlation between neighbours inflates that of a mean.

    From differences at a short and at a long distance, which few changes of level leave alone: for a first-order
    autoregressive process they grow by g = 1 / (1 - rho), and the inflation (1 + rho) / (1 - rho) is 2 g - 1. The
    variance itself is from their upper quartile, so that a mixture in which every seventh value differs is seen as
    scatter; their growth from the median, which also many changes do not move.

    Args:
        x: Logarithms, shape (n,).
        lag: The long distance; at most 100.
    """

    def variance(apart: int, probability: float, of_normal: float) -> float:
        few = statistics.thinned(len(x) - apart)
        distances = np.abs(x[apart:][few] - x[:-apart][few])
        found = float(np.quantile(distances, probability, method="lower"))
        return max(MIN_SCALE, found / (of_normal * math.sqrt(2))) ** 2

    far = variance(min(100, max(1, lag)), 0.5, MEDIAN_OF_NORMAL)
    growth = max(1.0, far / variance(1, 0.5, MEDIAN_OF_NORMAL))
    return variance(1, 0.75, QUARTILE_OF_NORMAL) * growth * (2 * growth - 1)


def _partition(x: Floats, least: int) -> list[int]:
    """Starts of all pieces but the first of the piecewise constant fit with the least penalised squared error."""
    m = len(x)
    x = x - x.mean()  # keeps the sums of squares small
    first = np.concatenate([[0.0], np.cumsum(x)])
    second = np.concatenate([[0.0], np.cumsum(x * x)])
    penalty = PENALTY * math.log(m)
    best = np.full(m + 1, np.inf)
    best[0] = -penalty
    start = np.zeros(m + 1, np.int64)
    place = np.arange(m + 1, dtype=np.float64)
    for end in range(least, m + 1):
        stop = end - least + 1
        error = second[end] - second[:stop] - (first[end] - first[:stop]) ** 2 / (end - place[:stop])
        total = best[:stop] + error
        start[end] = at = int(np.argmin(total))
        best[end] = total[at] + penalty
    found: list[int] = []
    end = m
    while end > 0:
        end = int(start[end])
        if end:
            found.append(end)
    return found[::-1]


def _plausible(
    x: Floats, found: list[int], least_shift: float, *, near: int, shortest: int, separation: float
) -> list[int]:
    """Take out, smallest shift first, the changes that are too small, not sharp or do not separate their sides.

    Args:
        x: Logarithms of blocks or of steps, shape (n,).
        found: Indices of the changes.
        least_shift: Size of the smallest change.
        near: Fewest values beside a change that its sharpness is judged by.
        shortest: Fewest values between two changes.
        separation: Least share of values on their own side of the middle between two levels; 0.5 is none. Steps
            scatter more than medians of blocks do.
    """
    found = list(found)
    while found:
        bounds = [0, *found, len(x)]
        weak = []
        for index, (a, c, b) in enumerate(zip(bounds, bounds[1:], bounds[2:], strict=False)):
            shift = statistics.median(x[c:b]) - statistics.median(x[a:c]) if a < c < b else 0.0
            small = abs(shift) <= least_shift or min(c - a, b - c) < shortest
            if small or not _is_change(x[a:c], x[c:b], shift, near, separation):
                weak.append((abs(shift), index))
        if not weak:
            break
        del found[min(weak)[1]]
    return found


def _is_change(before: Floats, after: Floats, shift: float, near: int, separation: float) -> bool:
    near = max(near, min(len(before), len(after)) // 5)
    local = statistics.median(after[:near]) - statistics.median(before[-near:])
    if local / shift < MIN_SHARPNESS:
        return False
    middle = statistics.median(before) + shift / 2
    above = (1 + float(np.mean(after > middle)) - float(np.mean(before > middle))) / 2
    return (above if shift > 0 else 1 - above) >= separation


def _refined(logs: Floats, found: list[int], size: int) -> list[int]:
    """From blocks to steps: the place beside each block's edge that leaves the least absolute error."""
    bounds = [0, *(c * size for c in found), len(logs)]
    exact = []
    for a, c, b in zip(bounds, bounds[1:], bounds[2:], strict=False):
        reach = min(2 * size, (c - a) // 2, (b - c) // 2)
        near = logs[c - reach : c + reach].astype(np.float64)
        # Moving a step from the right to the left side changes the error by this much.
        change = np.abs(near - statistics.median(logs[a:c])) - np.abs(near - statistics.median(logs[c:b]))
        exact.append(c - reach + int(np.argmin(np.concatenate([[0.0], np.cumsum(change)]))))
    return exact
