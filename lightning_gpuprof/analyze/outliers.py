"""Steps far above the band of ordinary steps, and the phase that their excess lies in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lightning_gpuprof.analyze import cpu_time
from lightning_gpuprof.analyze.journal import Ints, Journal, StepColumns
from lightning_gpuprof.analyze.steady import Mask
from lightning_gpuprof.model.metrics import Outliers
from lightning_gpuprof.model.phases import PHASES, Phase

Floats = npt.NDArray[np.float64]

MIN_STEPS = 50
MIN_OF_A_KIND = 3
"""Steps with, or without, an optimizer step that have a median of their own."""
MAD_FACTOR = 5 * 1.4826
"""Five standard deviations of a normal distribution, by the median absolute deviation, which outliers do not move."""
MEDIAN_FACTOR = 0.5
MAX_BATCHES = 20
ACCIDENTS = 2
"""Stalls that a run may have by accident, however long. Heuristic."""


def outlier_indices(steps: StepColumns, steady: Mask) -> Ints:
    """Indices of the outliers among the steady steps, the longest first; none if there are fewer than 50 steps.

    Args:
        steps: All steps.
        steady: Which steps are steady, shape (n,) for n steps.
    """
    chosen = np.flatnonzero(steady)
    if len(chosen) < MIN_STEPS:
        return chosen[:0]
    period = steps.period_ns[chosen].astype(np.float64)
    far = period > _limits(period, _kinds(steps, chosen))
    return chosen[far][np.argsort(-period[far], kind="stable")]


def outliers(journal: Journal, phases: dict[Phase, Ints], steady: Mask) -> Outliers | None:
    """Find them among the steady steps; None if there are fewer than 50.

    Where gradients are accumulated, steps that end with an optimizer step are held against each other, and the others
    likewise: one that does more by design is no stall.

    Args:
        journal: The journal of one stage.
        phases: Time of each phase in each step in ns, shape (n,) each.
        steady: Which steps are steady, shape (n,) for n steps.
    """
    steps, chosen = journal.steps, np.flatnonzero(steady)
    if len(chosen) < MIN_STEPS:
        return None
    period = steps.period_ns[chosen].astype(np.float64)
    kinds = _kinds(steps, chosen)
    usual = _medians(period, kinds)
    limit = _limits(period, kinds)
    far = period > limit
    excess: dict[Phase, float] = {}
    for phase in PHASES:
        column = phases[phase][chosen].astype(np.float64)
        above = float(np.maximum(column - _medians(column, kinds), 0)[far].sum()) / 1e6
        if above > 0:
            excess[phase] = above
    longest = chosen[far][np.argsort(-period[far])][:MAX_BATCHES]
    excess_ns = np.sort((period - usual)[far])
    return Outliers(
        count=int(far.sum()),
        checked=len(chosen),
        limit_ms=float(limit.min()) / 1e6,
        excess_ms=float(excess_ns.sum()) / 1e6,
        total_ms=float(period.sum()) / 1e6,
        worst_ms=float(period[far].max() if far.any() else period.max()) / 1e6,
        excess_by_phase_ms=excess,
        batches=tuple(int(b) for b in steps.batch[longest]),
        rest_excess_ms=float(excess_ns[:-ACCIDENTS].sum()) / 1e6,
        delayed_ratio=_delayed_ratio(journal, chosen[far], steady),
    )


def _delayed_ratio(journal: Journal, far: Ints, steady: Mask) -> float | None:
    """Share of the excess of outlying steps for which the main thread was ready to run but had no CPU.

    Args:
        journal: The journal of one stage.
        far: Indices of the outliers among all steps.
        steady: Which of all steps are steady.

    Returns:
        Of the outliers in which it was read, beyond that of an ordinary step; where it was in none, of all steps' time.
        None if the kernel does not say, or if fewer than ten steady steps were sampled.
    """
    rows, indices = cpu_time.sampled(journal, steady)
    delay, period = journal.cpu.run_delay_ns, journal.steps.period_ns[indices]
    if delay is None or len(rows) < cpu_time.MIN_SAMPLES:
        return None
    read = np.isin(indices, far)
    if not read.any():
        return float(delay[rows].sum() / max(1, period.sum()))
    excess = np.maximum(period[read] - np.median(period), 1)
    delayed = np.maximum(delay[rows][read] - np.median(delay[rows]), 0)
    return float(np.minimum(delayed, excess).sum() / excess.sum())


def _limits(period: Floats, kinds: list[Mask]) -> Floats:
    """For each step what it may take and still be an ordinary one of its kind."""
    limit = np.empty_like(period)
    for kind in kinds:
        median = float(np.median(period[kind]))
        mad = float(np.median(np.abs(period[kind] - median)))
        limit[kind] = median + max(MAD_FACTOR * mad, MEDIAN_FACTOR * median)
    return limit


def _kinds(steps: StepColumns, chosen: Ints) -> list[Mask]:
    """The chosen steps that end with an optimizer step and the others; all as one if either are hardly any."""
    stepping = (np.diff(steps.global_step, append=steps.global_step[-1] + 1) > 0)[chosen]
    if min(stepping.sum(), (~stepping).sum()) < MIN_OF_A_KIND:
        return [np.ones(len(chosen), np.bool_)]
    return [stepping, ~stepping]


def _medians(values: Floats, kinds: list[Mask]) -> Floats:
    """For each value the median of its kind."""
    found = np.empty_like(values)
    for kind in kinds:
        found[kind] = np.median(values[kind])
    return found
