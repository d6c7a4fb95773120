"""Facts that both the levels of the method and its checklist use."""

from __future__ import annotations

from collections.abc import Collection

from lightning_gpuprof.model.phases import COMPUTE_PHASES
from lightning_gpuprof.rules.base import Metrics, Phase, possible

MAX_INTERVAL_RATIO = 0.05
"""Half width of the 95 % interval of the median step time, of the median, up to which a baseline is firm. The
method."""


COMPARE = "gpuprof compare BEFORE AFTER, or GpuProfiler(baseline=<folder of this run>)"
"""How a change is measured."""


def half_width(metrics: Metrics) -> float | None:
    """Half of the 95 % interval of the median step time, of the median; None: not known."""
    ends, period = metrics.steps.period_median_interval_ms, metrics.steps.period_ms
    if ends is None or period is None or not period.median > 0:
        return None
    half_ratio = (ends[1] - ends[0]) / 2 / period.median
    return half_ratio if possible(half_ratio) else None


def slowest(metrics: Metrics, among: Collection[Phase] = ()) -> tuple[Phase | None, float]:
    """The longest phase and its share of the step; among some, or all.

    Args:
        metrics: Metrics of the run.
        among: Phases to choose from; empty: all.
    """
    shares = {phase: share.median_ratio for phase, share in metrics.shares.items() if not among or phase in among}
    longest = max(shares, key=lambda phase: shares[phase], default=None)
    return longest, 0.0 if longest is None else shares[longest]


def computing_ratio(metrics: Metrics) -> float:
    """Share of the step in the model's own phases."""
    ratios = (share.median_ratio for phase, share in metrics.shares.items() if phase in COMPUTE_PHASES)
    return sum(ratio for ratio in ratios if possible(ratio))
