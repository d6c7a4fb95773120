"""Statistics that every number of a report goes through: distributions, and shares with their uncertainty."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lightning_gpuprof.model.report import Distribution
from lightning_gpuprof.model.share import Share

Floats = npt.NDArray[np.float64]
Times = npt.NDArray[np.float64] | npt.NDArray[np.int64]

BOOTSTRAP_ROUNDS = 200
MAX_WHOLE_STEPS = 1 << 19
THINNED_STEPS = 1 << 17
STRETCH_STEPS = 1 << 10
BOOTSTRAP_MAX_STEPS = 2000
"""A bootstrap over more steps than this uses that many, taken evenly: the bound no longer moves."""
LOWER_QUANTILE = 0.05
STALL_QUANTILE = 0.9
"""What a part takes in a tenth of the steps at most is no share of ordinary steps. Heuristic."""
INTERVAL_ROUNDS = 1000
INTERVAL_CELLS = 2000
INTERVAL_QUANTILES = (0.025, 0.975)
MIN_INTERVAL_STEPS = 20
"""Of fewer steps a block bootstrap makes too few different samples."""
_SEED = 20_240_229


def thinned(count: int) -> npt.NDArray[np.int64] | slice:
    """Which of so many steps medians, quantiles and spreads are taken of: all, of more than half a million 131,072.

    They are stretches of neighbours, spread evenly over the run, so that what neighbours share is kept. Of so many
    steps a quantile moves by a few thousandths at most. Sums are of all steps. All are a slice, which copies nothing.
    """
    if count <= MAX_WHOLE_STEPS:
        return slice(None)
    starts = np.linspace(0, count - STRETCH_STEPS, THINNED_STEPS // STRETCH_STEPS).astype(np.int64)
    return (starts[:, None] + np.arange(STRETCH_STEPS)).ravel()


def median(values: npt.NDArray[np.number]) -> float:
    """Of n >= 1 values without NaN; of millions see :func:`thinned`."""
    return float(np.median(values[thinned(len(values))]))


def quantiles(values: npt.NDArray[np.number], probabilities: Sequence[float]) -> list[float]:
    """Quantiles, interpolated linearly; of millions see :func:`thinned`.

    Args:
        values: Shape (n,), n at least 1, no NaN.
        probabilities: From 0 to 1, in any order.

    Returns:
        In the unit of the values and the order of the probabilities.
    """
    found: list[float] = np.quantile(values[thinned(len(values))], probabilities).tolist()
    return found


def distribution(values: npt.NDArray[np.number]) -> Distribution | None:
    """Mean, spread and quantiles of an array of shape (n,), in its unit; None if it is empty."""
    if not len(values):
        return None
    v = np.asarray(values, np.float64)
    p05, middle, p95, p99 = quantiles(v, (0.05, 0.5, 0.95, 0.99))
    return Distribution(
        mean=float(v.mean()),
        std=float(v[thinned(len(v))].std(ddof=1)) if len(v) > 1 else 0.0,
        median=middle,
        p05=p05,
        p95=p95,
        p99=p99,
        min=float(v.min()),
        max=float(v.max()),
    )


def lower_bound_of_share(part: Times, period: Times) -> float:
    """5 % lower bound of median over median by a moving-block bootstrap (Kuensch 1989) with blocks of n^(1/3).

    Blocks keep the dependence between neighbouring steps, which a plain bootstrap would break. The seed is fixed: the
    same journal gives the same report.

    Args:
        part: Shape (n,), n at least 1.
        period: Shape (n,), above 0.

    Returns:
        A ratio; of fewer than three steps the smallest one of a step.
    """
    if len(part) > BOOTSTRAP_MAX_STEPS:
        kept = np.linspace(0, len(part) - 1, BOOTSTRAP_MAX_STEPS).astype(np.int64)
        part, period = part[kept], period[kept]
    if len(part) < 3:
        return float((part / period).min())
    chosen = _resampled(len(part))
    ratios = np.median(part[chosen], axis=1) / np.median(period[chosen], axis=1)
    return float(np.quantile(ratios, LOWER_QUANTILE))


def lower_bound_of_total_share(part: Times, period: Times) -> float:
    """5 % lower bound of ``sum(part) / sum(period)`` by the same bootstrap; more steps are summed in cells first.

    What only one stall of the run holds is not in it: more than a third of the resamples are without that stall.

    Args:
        part: Shape (n,), n at least 1.
        period: Shape (n,), above 0.

    Returns:
        A ratio; of fewer than three steps the smallest one of a step.
    """
    size = -(-len(part) // BOOTSTRAP_MAX_STEPS)
    part, period = (_cells(times, size) for times in (part, period))
    if len(part) < 3:
        return float((part / period).min())
    chosen = _resampled(len(part))
    return float(np.quantile(part[chosen].sum(axis=1) / period[chosen].sum(axis=1), LOWER_QUANTILE))


def _cells(times: npt.NDArray[np.number], size: int) -> Floats:
    """Sums of so many neighbours each; the last one is of what is left."""
    whole = len(times) - len(times) % size
    rows = times[:whole].reshape(-1, size).sum(axis=1)
    return np.append(rows, times[whole:].sum()).astype(np.float64) if whole < len(times) else rows.astype(np.float64)


def _lower_bound_of_both_halves(part: Floats, period: Floats) -> float:
    """The smaller :func:`lower_bound_of_total_share` of two halves; of fewer than six steps that of all."""
    middle = len(part) // 2
    if middle < 3:
        return lower_bound_of_total_share(part, period)
    return min(
        lower_bound_of_total_share(part[:middle], period[:middle]),
        lower_bound_of_total_share(part[middle:], period[middle:]),
    )


def _resampled(n: int) -> npt.NDArray[np.int64]:
    """Indices of moving blocks, shape (rounds, n)."""
    length = max(1, round(n ** (1 / 3)))
    blocks = -(-n // length)
    starts = np.random.default_rng(_SEED).integers(0, n - length + 1, (BOOTSTRAP_ROUNDS, blocks))
    return (starts[:, :, None] + np.arange(length)).reshape(BOOTSTRAP_ROUNDS, -1)[:, :n]


def median_interval(values: Floats) -> tuple[float, float] | None:
    """95 % interval of the median: the bootstrap interval of the share of values up to it, read off the quantiles.

    The second step is Woodruff's (1952) for a quantile of dependent draws. None of fewer than 20 values, which are in
    order of time.
    """
    if len(values) < MIN_INTERVAL_STEPS:
        return None
    middle = median(values)
    halves_below = (values < middle).view(np.uint8)  # an eighth of the memory of numbers
    halves_below <<= 1
    halves_below += values == middle
    low, high = (end / 2 for end in _interval_of_mean(halves_below))
    lower, upper = quantiles(values, (min(max(1 - high, 0.0), 0.5), max(min(1 - low, 1.0), 0.5)))
    return lower, upper


def mean_interval(values: Floats) -> tuple[float, float] | None:
    """95 % interval of the mean of values in order of time; None if there are fewer than 20 values."""
    return _interval_of_mean(values) if len(values) >= MIN_INTERVAL_STEPS else None


def _interval_of_mean(values: npt.NDArray[np.number]) -> tuple[float, float]:
    """Percentile interval by a moving-block bootstrap (Kuensch 1989), blocks of n^(1/3) steps, fixed seed.

    Many steps are first summed in cells of consecutive ones, at most 2000, so that a million cost no more than these.
    """
    n = len(values)
    size = -(-n // INTERVAL_CELLS)
    cells = _cells(values, size)[: n // size]  # without a last one that is not full
    m = len(cells)
    length = max(1, round(n ** (1 / 3) / size))
    starts = np.random.default_rng(_SEED).integers(0, m - length + 1, (INTERVAL_ROUNDS, -(-m // length)))
    sums = np.concatenate([[0.0], np.cumsum(cells)])
    means = (sums[starts + length] - sums[starts]).mean(axis=1) / (length * size)
    low, high = np.quantile(means - means.mean(), INTERVAL_QUANTILES) + float(values.mean(dtype=np.float64))
    return float(low), float(high)


def share(
    part_ns: npt.NDArray[np.int64], period_ns: npt.NDArray[np.int64], *, ordinary_ns: float | None = None
) -> Share | None:
    """Share of the step time that a part takes: median of the part over median of the step time.

    Its lower bound is the larger of two: that of the medians, and that of the share of all steps in which no step's
    part counts for more than its 90 % quantile, so that rare stalls do not count, in the half of the run where that is
    less, so that a part that came later does not count either. Steps of two kinds, as where two
    workers hand over their batches together, have a median of one kind or of the other, of which next to nothing is
    certain, though it is known well what they wait in all.

    A median of each step's own ratio would not be what the two medians beside it divide to: of steps that are short
    and wait as often as they are long and do not, the wait's ratio can be 62 % in the median and 17 % of the step.

    Args:
        part_ns: Shape (n,), ns.
        period_ns: Shape (n,), ns.
        ordinary_ns: Median step time of all steps, if the part was only read in some: the share refers to that.

    Returns:
        None if there is no step with a step time.
    """
    valid = period_ns > 0
    if not valid.any():
        return None
    if not part_ns.any():  # as most phases of a long run, each of which would be sorted
        return Share(median_ratio=0.0, lower_ratio=0.0, median_ms=0.0, total_ratio=0.0, total_lower_ratio=0.0)
    if not valid.all():
        part_ns, period_ns = part_ns[valid], period_ns[valid]
    few = thinned(len(part_ns))
    some_ns, periods_ns = part_ns[few], period_ns[few]
    median_ns = median(some_ns)
    ratio = median_ns / median(periods_ns)
    held = np.minimum(some_ns, quantiles(some_ns, (STALL_QUANTILE,))[0])
    rest = (periods_ns - some_ns).astype(np.float64)
    rest += held
    lower = max(lower_bound_of_share(some_ns, periods_ns), _lower_bound_of_both_halves(held, rest))
    return Share(
        median_ratio=ratio,
        lower_ratio=min(ratio, lower),
        median_ms=(median_ns if ordinary_ns is None else ratio * ordinary_ns) / 1e6,
        total_ratio=float(part_ns.sum() / period_ns.sum()),
        total_lower_ratio=lower_bound_of_total_share(part_ns, period_ns),
    )
