"""Finds the steps that stand for the run: after warm-up, not traced, not beside an epoch edge or a validation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightning_gpuprof.analyze.journal import Ints, StepColumns
from lightning_gpuprof.model.journal import DISTURBED, FIRST_OF_EPOCH, PROFILED
from lightning_gpuprof.model.phases import Phase

MIN_WARMUP_STEPS = 5
LOOK_AHEAD = 10
REFERENCE = 50
TOLERANCE = 1.25
MAX_WARMUP_RATIO = 0.2
"""Warm-up is at most this part of the run: what is longer is a change of regime, not warm-up."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which steps count for what; masks of shape (n,)."""

    ordinary: Mask
    """Not traced nor beside the analysis of a trace, not first of an epoch, without validation or checkpoint."""
    steady: Mask
    """Ordinary and after warm-up."""
    first_steady: int | None
    """Index of the first steady step."""


def select(steps: StepColumns, phases: dict[Phase, Ints]) -> Selection:
    """Choose the steps that statistics rest on.

    Warm-up ends at the first step, not before the fifth, whose period and the median of the ten from it on are at most
    1.25 times the median of the fifty after them; it is looked for in the first fifth of the run.
    """
    special = (steps.flags & (PROFILED | DISTURBED | FIRST_OF_EPOCH)) != 0
    ordinary = ~special & (phases["validation"] == 0) & (phases["checkpoint"] == 0)
    chosen = np.flatnonzero(ordinary)
    start = _end_of_warmup(steps.period_ns[chosen].astype(np.float64))
    steady = np.zeros(len(steps), bool)
    if start is None:
        return Selection(ordinary=ordinary, steady=steady, first_steady=None)
    steady[chosen[start:]] = True
    return Selection(ordinary=ordinary, steady=steady, first_steady=int(chosen[start]))


def _end_of_warmup(period: npt.NDArray[np.float64]) -> int | None:
    n = len(period)
    if n <= MIN_WARMUP_STEPS:
        return None
    last = max(MIN_WARMUP_STEPS, int(n * MAX_WARMUP_RATIO))
    for start in range(MIN_WARMUP_STEPS, last + 1):
        reference = period[start + LOOK_AHEAD : start + LOOK_AHEAD + REFERENCE]
        if len(reference) < LOOK_AHEAD:
            return start
        limit = TOLERANCE * np.median(reference)
        if period[start] <= limit and np.median(period[start : start + LOOK_AHEAD]) <= limit:
            return start
    return last
