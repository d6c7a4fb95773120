"""Statistics that every number of a report goes through: distributions, and shares with their uncertainty."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lightning_gpuprof.model.metrics import Share
from lightning_gpuprof.model.report import Distribution

Floats = npt.NDArray[np.float64]

BOOTSTRAP_ROUNDS = 200
BOOTSTRAP_MAX_STEPS = 2000
"""A bootstrap over more steps than this uses that many, taken evenly: the bound no longer moves."""
LOWER_QUANTILE = 0.05
_SEED = 20_240_229


def distribution(values: npt.NDArray[np.number]) -> Distribution | None:
    """Mean, spread and quantiles of an array of shape (n,), in its unit; None if it is empty."""
    if not len(values):
        return None
    v = values.astype(np.float64)
    p05, median, p95, p99 = np.quantile(v, [0.05, 0.5, 0.95, 0.99])
    return Distribution(
        mean=float(v.mean()),
        std=float(v.std(ddof=1)) if len(v) > 1 else 0.0,
        median=float(median),
        p05=float(p05),
        p95=float(p95),
        p99=float(p99),
        min=float(v.min()),
        max=float(v.max()),
    )


def lower_bound_of_median(values: Floats) -> float:
    """5 % lower bound of the median by a moving-block bootstrap (Kuensch 1989) with blocks of n^(1/3).

    Blocks keep the dependence between neighbouring steps, which a plain bootstrap would break. The seed is fixed: the
    same journal gives the same report.

    Args:
        values: Shape (n,), n at least 1.
    """
    if len(values) > BOOTSTRAP_MAX_STEPS:
        values = values[np.linspace(0, len(values) - 1, BOOTSTRAP_MAX_STEPS).astype(np.int64)]
    n = len(values)
    if n < 3:
        return float(values.min())
    length = max(1, round(n ** (1 / 3)))
    blocks = -(-n // length)
    starts = np.random.default_rng(_SEED).integers(0, n - length + 1, (BOOTSTRAP_ROUNDS, blocks))
    indices = (starts[:, :, None] + np.arange(length)).reshape(BOOTSTRAP_ROUNDS, -1)[:, :n]
    return float(np.quantile(np.median(values[indices], axis=1), LOWER_QUANTILE))


def share(part_ns: npt.NDArray[np.int64], period_ns: npt.NDArray[np.int64]) -> Share | None:
    """Share of each step's period that a part takes.

    Args:
        part_ns: Shape (n,), ns.
        period_ns: Shape (n,), ns.

    Returns:
        None if there is no step with a period.
    """
    valid = period_ns > 0
    if not valid.any():
        return None
    part, period = part_ns[valid].astype(np.float64), period_ns[valid].astype(np.float64)
    ratio = part / period
    return Share(
        median_ratio=float(np.median(ratio)),
        lower_ratio=lower_bound_of_median(ratio),
        median_ms=float(np.median(part)) / 1e6,
        total_ratio=float(part.sum() / period.sum()),
    )
