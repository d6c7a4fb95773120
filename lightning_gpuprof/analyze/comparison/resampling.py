"""Block bootstrap of the mean and the quantiles of a run's step times.

Moving blocks (Kuensch 1989) keep the dependence between neighbouring steps. Their length follows how far that reaches:
Politis and White (2004) with the correction of Patton, Politis and White (2009), at least the n^(1/3) of the reports'
own intervals. A run whose speed wanders for a hundred steps gets blocks of that order, and a wide interval. No block
is longer than a fifth of the run, and blocks cut what hangs together, so the draws alone scatter too little. They are
widened to the standard error by the integrated autocorrelation time (:func:`dependence`), and by Student's distribution
for as many values as the steps are worth independent ones. Below ``MIN_BLOCKS`` of these no draw is to be believed.
"""

import math
from collections.abc import Callable

import msgspec
import numpy as np

from lightning_gpuprof.analyze.statistics import Floats

ROUNDS = 4000
"""Enough for the tails of a 95 % interval that is divided among thirteen phases."""
MAX_CELLS = 2000
"""More steps are first summed in cells of consecutive ones."""
MAX_BLOCK_CELLS = 0.2
"""Of all cells: five blocks at least, or the draws are too few different ones."""
SEED = 20_240_229
MIN_BLOCKS = 5
"""Independent values that steps must be worth (heuristic, chosen by simulation, see decision 69)."""
TAIL_RATIO = 0.25
"""How far a tail hangs together is not known from the few steps in it: as far as all of them."""
LEVELS = 10
"""Consecutive parts of a run whose statistic is its speed level there."""
MIN_LEVEL_STEPS = 10
"""Fewer steps make no level: a run needs 100 to have any."""
SLOW_PARTS = 20
"""Consecutive parts of a run in which a slow movement shows: each is then close to the one before."""
SLOW_RATIO = 0.7
"""Von Neumann's ratio of the parts' means, 2 where they are independent: below it the run moves slowly, and its noise
may outlast it. Chosen by simulation (``benchmarks/compare_alarms.py``, decision 116)."""
_STUDENT_STREAM = 1

MIN_VALUES = 4
"""In fewer no correlation between neighbours can be found: they are taken to be independent."""

MIN_LEFT_RATIO = 0.05
"""No correction for the unknown mean makes a sum, or a variance, more than 20 times as large."""


class Dependence(msgspec.Struct, frozen=True, kw_only=True):
    """What a stretch of values says about their mean."""

    blocks: float
    """Independent values that they are worth: their number over the integrated autocorrelation time."""
    error: float
    """Standard error of their mean, in their unit."""


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """A statistic of a run, drawn again and again."""

    at: Floats
    """Shape (rounds,), in the statistic's unit."""
    error: float = math.inf
    """Standard error of the statistic, in its unit; infinite where only a report is there."""
    steps: int = 0
    blocks: float = math.inf
    """Independent values that the steps are worth; infinite where only a report is there."""
    usual: tuple[float, float] = (0.0, 0.0)
    """5th and 95th percentile of the steps."""
    levels: tuple[float, float] | None = None
    """Lowest and highest of the statistic in the tenths of the run; None below 100 steps or without a journal."""
    slow: bool = False
    """Parts of the run are close to the part before: its noise may outlast it."""

    @property
    def few(self) -> bool:
        """Too little is independent to know how far the statistic may be off."""
        return self.slow or self.blocks < MIN_BLOCKS


class Resampling:
    """One choice of blocks for all columns of a run, so that phases and step times stay together.

    Args:
        period: Of the steady steps in order of time, shape (n,), n at least 1.
        stream: Number of the stream of random numbers; two runs must not share one.
    """

    def __init__(self, period: Floats, *, stream: int) -> None:
        n = len(period)
        self._size: int = -(-n // MAX_CELLS)
        self._full: int = n // self._size
        self._length = _block_length(self._cells(period))
        blocks = -(-self._full // self._length)
        rng = np.random.default_rng((SEED, stream))
        self._starts = rng.integers(0, self._full - self._length + 1, (ROUNDS, blocks))
        self._stream = stream

    def means(self, values: Floats) -> Drawn:
        """Draws of the mean of a column of shape (n,)."""
        deviations, known = self._deviations(values)
        levels = _levels(values, lambda part: float(part.mean()))
        return _draws_around(float(values.mean()), deviations, known, values, levels)

    def quantiles(self, values: Floats, q: float) -> Drawn:
        """Draws of a quantile: the share of values below it is drawn and read off the quantiles (Woodruff 1952).

        Args:
            values: Of the steady steps in order of time, shape (n,).
            q: Between 0 and 1.

        Returns:
            In the unit of the values; draw i is of the same blocks for all columns.
        """
        at = float(np.quantile(values, q))
        worth = dependence(self._cells(values)).blocks
        of_tail = worth if min(q, 1 - q) < TAIL_RATIO else math.inf
        below, known = self._deviations((values < at) + 0.5 * (values == at), at_most=of_tail)
        drawn = np.quantile(values, np.clip(q - below, 0.0, 1.0))
        levels = _levels(values, lambda part: float(np.quantile(part, q)))
        of_quantile = Dependence(blocks=min(known.blocks, worth), error=float(drawn.std()))
        return _draws_around(0.0, np.asarray(drawn, np.float64), of_quantile, values, levels)

    def _deviations(self, values: Floats, *, at_most: float = math.inf) -> tuple[Floats, Dependence]:
        """Draws of the mean around it, as wide as the dependence asks for, and that dependence."""
        cells = self._cells(values)
        sums = np.concatenate([[0.0], np.cumsum(cells)])
        means = (sums[self._starts + self._length] - sums[self._starts]).mean(axis=1) / self._length
        around, known = means - means.mean(), dependence(cells, at_most=at_most)
        own = float(around.std())
        scale = max(1.0, known.error / own) if own > 0 else 1.0
        wide = around * scale * self._student(known.blocks)
        return np.asarray(wide - wide.mean(), np.float64), known

    def _student(self, blocks: float) -> Floats:
        """Factors that make a normal sample one of Student's distribution."""
        freedom = max(blocks, MIN_BLOCKS) - 1
        chi_square = np.random.default_rng((SEED, self._stream, _STUDENT_STREAM)).chisquare(freedom, ROUNDS)
        return np.asarray(np.sqrt(freedom / chi_square), np.float64)

    def _cells(self, values: Floats) -> Floats:
        """Means of cells of consecutive steps, without a last one that is not full."""
        cells: Floats = values[: self._full * self._size].reshape(self._full, self._size).mean(axis=1)
        return cells


def _draws_around(
    centre: float, deviations: Floats, known: Dependence, values: Floats, levels: tuple[float, float] | None
) -> Drawn:
    low, high = np.quantile(values, [0.05, 0.95])
    usual = float(low), float(high)
    return Drawn(
        at=centre + deviations,
        error=known.error,
        steps=len(values),
        blocks=known.blocks,
        usual=usual,
        levels=levels,
        slow=moves_slowly(values),
    )


def moves_slowly(values: Floats) -> bool:
    """Whether the mean of each part of a run is close to that of the part before; not known below 100 steps."""
    if len(values) < LEVELS * MIN_LEVEL_STEPS:
        return False
    means = np.array([part.mean() for part in np.array_split(values, SLOW_PARTS)])
    return float((np.diff(means) ** 2).sum()) < SLOW_RATIO * float(((means - means.mean()) ** 2).sum())


def _levels(values: Floats, statistic: Callable[[Floats], float]) -> tuple[float, float] | None:
    """Lowest and highest value of a statistic over the tenths of the run."""
    if len(values) < LEVELS * MIN_LEVEL_STEPS:
        return None
    found = [statistic(part) for part in np.array_split(values, LEVELS)]
    return min(found), max(found)


def draws_from_interval(value: float, ends: tuple[float, float], *, stream: int) -> Drawn:
    """Draws that have a median and a 95 % interval: the halves of two normal samples.

    Args:
        value: The median.
        ends: Lower and upper end of the interval.
        stream: Seed of these draws: two runs need two.

    Returns:
        In the unit of the value, shape (4000,); nothing is known of the steps behind it.
    """
    normal = np.random.default_rng((SEED, stream)).standard_normal(ROUNDS) / 1.96
    return Drawn(at=np.asarray(value + np.where(normal > 0, ends[1] - value, value - ends[0]) * normal, np.float64))


def _block_length(cells: Floats) -> int:
    """Blocks for the ranks of the cells: a few long steps must not hide how far the rest hangs together."""
    n = len(cells)
    least = max(1, round(float(np.cbrt(n))))
    if n < 20 or cells.min() == cells.max():
        return least
    ranks = np.argsort(np.argsort(cells, kind="stable"), kind="stable").astype(np.float64)
    wanted = _politis_white(ranks - ranks.mean())
    return max(least, min(wanted, int(n * MAX_BLOCK_CELLS)))


def _politis_white(centred: Floats) -> int:
    """Block length that makes the bootstrap's variance of a mean best; at most n."""
    n = len(centred)
    lags = min(n - 1, 2 * max(1, round(math.sqrt(n))) + 5)
    variance = float(centred @ centred) / n
    autocovariance = np.array([float(centred[: n - lag] @ centred[lag:]) / n for lag in range(lags + 1)])
    small = np.abs(autocovariance[1:]) < 2 * math.sqrt(math.log10(n) / n) * variance
    in_a_row = max(5, math.ceil(math.sqrt(math.log10(n))))
    reach = next(
        (first for first in range(len(small) - in_a_row + 1) if small[first : first + in_a_row].all()), lags // 2
    )
    bandwidth = min(2 * max(reach, 1), lags)
    lag = np.arange(1, bandwidth + 1)
    weighted = np.minimum(1.0, 2.0 * (1 - lag / bandwidth)) * autocovariance[1 : bandwidth + 1]
    spectrum = variance + 2 * float(weighted.sum())
    if spectrum <= 0:
        return 1
    slope = 2 * float((weighted * lag).sum())
    return math.ceil(float(np.cbrt(1.5 * n * (slope / spectrum) ** 2)))


def dependence(values: Floats, *, at_most: float = math.inf) -> Dependence:
    """Effective sample size of a mean, ``n / tau`` with ``tau = 1 + 2 * sum of the autocorrelations``.

    Two estimates of tau are made, each is corrected for the bias that the unknown mean brings, and the larger counts:

    - Geyer (1992), initial monotone sequence: sums of two neighbouring autocorrelations are added while they are above
      0, none larger than that before it. Measured autocorrelations are too low by ``tau / n`` each, as values wander
      about their own mean.
    - ``(1 + r) / (1 - r)`` of an autoregression of order 1, its ``r`` corrected by ``(1 + 3 r) / n`` (Marriott and Pope
      1954): it is the steadier one where the values wander for as long as they were watched.

    The variance is corrected likewise: ``E[s^2] = variance * (1 - tau / n)``.

    Args:
        values: Shape (n,), n at least 1.
        at_most: Independent values that they are known not to pass, as those of what they were made of.

    Returns:
        ``blocks`` is that size, ``error`` the standard error of the mean, in the unit of the values.
    """
    n = len(values)
    centred = values - values.mean()
    variance = float(centred @ centred) / n
    if n < MIN_VALUES or variance <= (1e-12 * float(np.abs(values).max())) ** 2:
        return Dependence(blocks=min(n, at_most), error=math.sqrt(variance / n))
    correlation = _autocorrelation(centred)
    tau = max(1.0, n / at_most, _geyer(correlation), _autoregression_factor(float(correlation[1]), n))
    left = max(1 - tau / n, MIN_LEFT_RATIO)
    return Dependence(blocks=n / tau, error=math.sqrt(variance / left * tau / n))


def _autocorrelation(centred: Floats) -> Floats:
    """For lags 0 to n - 1, by a Fourier transform."""
    n = len(centred)
    spectrum = np.fft.rfft(centred, 2 * n)
    covariance = np.fft.irfft(spectrum * np.conj(spectrum), 2 * n)[:n]
    return np.asarray(covariance / covariance[0], np.float64)


def _geyer(correlation: Floats) -> float:
    """``1 + 2 * sum`` up to the lag where the initial sequence ends, plus what the unknown mean took from each term."""
    n = len(correlation)
    pairs = correlation[: n // 2 * 2].reshape(-1, 2).sum(axis=1)
    ended = np.flatnonzero(pairs <= 0)
    kept = np.minimum.accumulate(pairs[: ended[0]] if len(ended) else pairs)
    total, lags = float(kept.sum()) - 1, 2 * len(kept) - 1
    return (1 + 2 * total) / max(1 - 2 * (lags - total) / n, MIN_LEFT_RATIO)


def _autoregression_factor(first: float, n: int) -> float:
    corrected = min(max(first + (1 + 3 * first) / n, 0.0), 1 - 1 / n)
    return (1 + corrected) / (1 - corrected)
