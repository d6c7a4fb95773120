"""The time that trace windows themselves added to the steps."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lightning_gpuprof.analyze import statistics
from lightning_gpuprof.analyze.inflation import STEPS_BESIDE
from lightning_gpuprof.analyze.journal import Ints, Journal
from lightning_gpuprof.model.journal import DISTURBED, FIRST_OF_EPOCH, PROFILED
from lightning_gpuprof.model.phases import Phase

_NOT_FROM_PROFILER: tuple[Phase, ...] = ("validation", "checkpoint", "data_wait")
"""Phases whose length is not that of a step's own work: what is longer in them was not made so by a window."""

_STALL = 10.0
"""Work over that of the steps around it, from which a step beside a window was stalled and shows nothing. Heuristic."""


def windows_s(journal: Journal, steady: npt.NDArray[np.bool_], own_ns: Ints) -> float | None:
    """What was spent at the boundaries of these steps beyond the usual, and by how much their own work took longer.

    Each stretch of steps that were traced, or ran beside the writing and analysis of a trace, is held against up to 20
    steady steps on each side: their median, and what the mean lies above the median of the steps around, without
    stalls. So neither another speed level of the run nor steps of which some always take longer count as added. The
    first step of an epoch and those with validation or a checkpoint are long for another reason: of them only the
    boundary counts.

    Args:
        journal: One rank's journal.
        steady: Which steps are steady and untraced, shape (n,).
        own_ns: Time of the profiler itself in each step, shape (n,).

    Returns:
        0 without a window; None if there is no steady step.
    """
    steps, phases = journal.steps, journal.phases
    touched = (steps.flags & (PROFILED | DISTURBED)) != 0
    if not touched.any():
        return 0.0
    if not steady.any():
        return None
    other = (phases["validation"] > 0) | (phases["checkpoint"] > 0) | ((steps.flags & FIRST_OF_EPOCH) != 0)
    work = (steps.period_ns - own_ns - sum(phases[name] for name in _NOT_FROM_PROFILER)).astype(np.float64)
    at = np.flatnonzero(steady)
    calm = own_ns[steady & ~touched]
    usual_own_ns = float(np.mean(calm) if len(calm) else statistics.median(own_ns[steady]))
    added_ns = float(own_ns[touched].sum()) - int(touched.sum()) * usual_own_ns
    for begin, end in stretches(touched):
        before, after = int(np.searchsorted(at, begin)), int(np.searchsorted(at, end))
        places = [*range(max(0, before - STEPS_BESIDE), before), *range(after, min(len(at), after + STEPS_BESIDE))]
        own = work[begin:end][~other[begin:end]]
        # in a short run steps beside an analysis count as steady
        added_ns += float(own.sum()) - len(own) * _usual_ns(work[at], places or range(len(at)))
    return max(0.0, added_ns) / 1e9


def _usual_ns(work: npt.NDArray[np.float64], places: Sequence[int]) -> float:
    """The mean of these steps at their own speed level: their median, and what they lie above as many on each side."""
    beyond_ns = []
    for place in places:
        width = min(place, len(work) - 1 - place, STEPS_BESIDE)
        around = np.r_[work[place - width : place], work[place + 1 : place + 1 + width]]
        if width and work[place] <= _STALL * (level_ns := float(np.median(around))):
            beyond_ns.append(work[place] - level_ns)
    return float(np.median(work[list(places)])) + (float(np.mean(beyond_ns)) if beyond_ns else 0.0)


def stretches(mask: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Begin and end, exclusive, of each run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return [(int(begin), int(end)) for begin, end in edges.reshape(-1, 2)]
