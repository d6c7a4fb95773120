"""How many independent values a time series is worth."""

import math

import msgspec
import numpy as np

from lightning_gpuprof.analyze.statistics import Floats

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
