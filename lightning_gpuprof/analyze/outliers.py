"""Steps far above the band of ordinary steps, and the phase that their excess lies in."""

from collections.abc import Mapping, Sequence

import numpy as np

from lightning_gpuprof.analyze import statistics
from lightning_gpuprof.analyze.cpu_time import SampledSteps
from lightning_gpuprof.analyze.journal_columns import Ints, Journal, StepColumns
from lightning_gpuprof.analyze.statistics import Floats
from lightning_gpuprof.analyze.steady import Mask
from lightning_gpuprof.model.outliers import Outliers
from lightning_gpuprof.model.phases import PHASES, Phase

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
    """Indices of the outliers among the steady steps.

    Args:
        steps: All steps.
        steady: Which steps are steady, shape (n,) for n steps.

    Returns:
        Places among all steps, longest first; empty if fewer than 50 are steady.
    """
    if steady.sum() < MIN_STEPS:
        return np.zeros(0, np.int64)
    period = steps.period_ns[steady]
    kinds = _kinds(steps, steady)
    far = _beyond(period, kinds, _limits(period, kinds))
    return _indices(steady, far)[np.argsort(-period[far], kind="stable")]


def outliers(journal: Journal, phases: Mapping[Phase, Ints], steady: Mask) -> Outliers | None:
    """Find them among the steady steps.

    Where gradients are accumulated, steps that end with an optimizer step are compared with each other, and the others
    likewise: one that does more by design is no stall.

    Args:
        journal: The journal of one stage.
        phases: Time of each phase in each step in ns, shape (n,) each.
        steady: Which steps are steady, shape (n,) for n steps.

    Returns:
        Times in ms; a count of 0 if no step is one. None if fewer than 50 steps are steady.
    """
    steps = journal.steps
    if steady.sum() < MIN_STEPS:
        return None
    period = steps.period_ns[steady]
    kinds = _kinds(steps, steady)
    limits = _limits(period, kinds)
    far = _beyond(period, kinds, limits)
    indices = _indices(steady, far)
    longest = indices[np.argsort(-period[far])][:MAX_BATCHES]
    worst_ns = period[far].max() if far.any() else period.max()
    total_ns, checked = period.sum(), len(period)
    del period  # of a long run it takes as much memory as what comes next
    of_kinds = [(_indices(steady, kind)[statistics.thinned(int(kind.sum()))], kind[far]) for kind in kinds]
    del kinds, far
    excess: dict[Phase, float] = {}
    for phase in PHASES:
        above = float(np.maximum(_above_median(phases[phase], indices, of_kinds), 0).sum()) / 1e6
        if above > 0:
            excess[phase] = above
    excess_ns = np.sort(_above_median(steps.period_ns, indices, of_kinds))
    return Outliers(
        count=len(indices),
        checked=checked,
        limit_ms=min(limits) / 1e6,
        excess_ms=float(excess_ns.sum()) / 1e6,
        total_ms=float(total_ns) / 1e6,
        worst_ms=float(worst_ns) / 1e6,
        excess_by_phase_ms=excess,
        batches=tuple(int(b) for b in steps.batch[longest]),
        rest_excess_ms=float(excess_ns[:-ACCIDENTS].sum()) / 1e6,
        delayed_ratio=_delayed_ratio(SampledSteps(journal, steady), indices),
    )


def _delayed_ratio(sampled: SampledSteps, far: Ints) -> float | None:
    """Share of the excess of outlying steps for which the main thread was ready to run but had no CPU.

    Beyond the waiting of an ordinary step. An outlier in which it was not read has waited as long as the others did in
    the mean, not for as much of it: short ones that others made say little of a long one. Where it was read in none, of
    the seconds in which they lie; where these were not sampled either, of all steps' time. None if the kernel does not
    say, or if fewer than ten steady steps were sampled.
    """
    delay, period = sampled.delay_ns, sampled.period_ns
    if delay is None or sampled.few:
        return None
    read = np.isin(sampled.indices, far)
    if not read.any():
        usual_ratio = float(delay.sum() / max(1, period.sum()))
        of_seconds = _delayed_ratio_of_seconds(sampled.journal, far, float(np.median(period)), usual_ratio)
        return usual_ratio if of_seconds is None else of_seconds
    excess = np.maximum(period[read] - np.median(period), 1)
    delayed = np.minimum(np.maximum(delay[read] - np.median(delay), 0), excess)
    unread = np.setdiff1d(far, sampled.indices)
    unread_excess = np.maximum(sampled.journal.steps.period_ns[unread] - np.median(period), 1).sum()
    unread_delayed = min(unread_excess, delayed.mean() * len(unread))
    return float((delayed.sum() + unread_delayed) / (excess.sum() + unread_excess))


def _delayed_ratio_of_seconds(journal: Journal, far: Ints, median_ns: float, usual_ratio: float) -> float | None:
    """The same of the seconds that hold the outliers, beyond what the rest of these seconds usually waits.

    Args:
        journal: Its host samples, one a second, say how long the main thread waited since the one before.
        far: Indices of the outliers among all steps.
        median_ns: An ordinary step.
        usual_ratio: Share of ordinary steps in which the main thread has no CPU.

    Returns:
        None if no second with an outlier in it was sampled.
    """
    samples = [
        (sample.t_ns, sample.values.get("run_delay_ratio"))
        for sample in journal.samples
        if sample.source == "host" and sample.subject == "process"
    ]
    if not len(far):
        return None
    at = np.sort(far)
    start, period = journal.steps.start_ns[at], journal.steps.period_ns[at]
    edges = np.stack([start, start + period], axis=1).ravel()
    passed = np.cumsum(np.stack([np.zeros(len(at)), period], axis=1).ravel())
    times = np.array([t_ns for t_ns, _ in samples], np.float64)
    seconds, stalled = np.diff(times), np.diff(np.interp(times, edges, passed))
    ratio = np.array([np.nan if waited is None else waited for _, waited in samples[1:]], np.float64)
    known = (stalled > 0) & np.isfinite(ratio)
    excess = stalled[known].sum() * max(0.0, 1.0 - median_ns * len(at) / max(1, period.sum()))
    if excess <= 0:
        return None
    delayed = np.maximum(ratio * seconds - usual_ratio * (seconds - stalled), 0)[known].sum()
    return float(min(1.0, delayed / excess))


def _limits(period: Ints, kinds: list[Mask]) -> list[float]:
    """What a step of each kind may take and still be an ordinary one."""
    limits = []
    for kind in kinds:
        own = period[kind]
        own = own[statistics.thinned(len(own))]
        median = statistics.median(own)
        mad = statistics.median(np.abs(own - median))
        limits.append(median + max(MAD_FACTOR * mad, MEDIAN_FACTOR * median))
    return limits


def _beyond(period: Ints, kinds: list[Mask], limits: list[float]) -> Mask:
    far = np.zeros(len(period), np.bool_)
    for kind, limit in zip(kinds, limits, strict=True):
        far |= kind & (period > limit)
    return far


def _indices(steady: Mask, far: Mask) -> Ints:
    """Among all steps, of those that are far among the steady ones."""
    found = np.zeros(len(steady), np.bool_)
    found[steady] = far
    return np.flatnonzero(found)


def _kinds(steps: StepColumns, steady: Mask) -> list[Mask]:
    """The steady steps that end with an optimizer step and the others; all as one if either are hardly any."""
    stepping = steps.completes[steady]
    if min(stepping.sum(), (~stepping).sum()) < MIN_OF_A_KIND:
        return [np.ones(len(stepping), np.bool_)]
    return [stepping, ~stepping]


def _above_median(values: Ints, far: Ints, of_kinds: Sequence[tuple[Ints, Mask]]) -> Floats:
    """By how much each of the far values is above the median of its kind.

    Args:
        values: Of all steps.
        far: Indices of some.
        of_kinds: For each kind the indices of steps that its median is taken of, and which of the far ones are of it.
    """
    found = values[far].astype(np.float64)
    for usual, chosen in of_kinds:
        found[chosen] -= statistics.median(values[usual])
    return found
