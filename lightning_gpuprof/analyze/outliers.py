"""Steps far above the band of ordinary steps, and the phase that their excess lies in."""

from __future__ import annotations

import numpy as np

from lightning_gpuprof.analyze.journal import Ints, StepColumns
from lightning_gpuprof.analyze.steady import Mask
from lightning_gpuprof.model.metrics import Outliers
from lightning_gpuprof.model.phases import PHASES, Phase

MIN_STEPS = 50
MAD_FACTOR = 5 * 1.4826
"""Five standard deviations of a normal distribution, by the median absolute deviation, which outliers do not move."""
MEDIAN_FACTOR = 0.5
MAX_BATCHES = 20


def outliers(steps: StepColumns, phases: dict[Phase, Ints], steady: Mask) -> Outliers | None:
    """Find them among the steady steps; None if there are fewer than 50."""
    chosen = np.flatnonzero(steady)
    if len(chosen) < MIN_STEPS:
        return None
    period = steps.period_ns[chosen].astype(np.float64)
    median = float(np.median(period))
    mad = float(np.median(np.abs(period - median)))
    limit = median + max(MAD_FACTOR * mad, MEDIAN_FACTOR * median)
    far = period > limit
    excess: dict[Phase, float] = {}
    for phase in PHASES:
        column = phases[phase][chosen].astype(np.float64)
        above = float(np.maximum(column[far] - np.median(column), 0).sum()) / 1e6
        if above > 0:
            excess[phase] = above
    longest = chosen[far][np.argsort(-period[far])][:MAX_BATCHES]
    return Outliers(
        count=int(far.sum()),
        checked=len(chosen),
        limit_ms=limit / 1e6,
        excess_ms=float((period[far] - median).sum()) / 1e6,
        total_ms=float(period.sum()) / 1e6,
        worst_ms=float(period.max()) / 1e6,
        excess_by_phase_ms=excess,
        batches=tuple(int(b) for b in steps.batch[longest]),
    )
