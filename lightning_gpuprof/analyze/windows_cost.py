"""The time that trace windows added to the steps, and by how much they inflated the times inside them."""

from collections.abc import Sequence

import msgspec
import numpy as np

from lightning_gpuprof.analyze import statistics
from lightning_gpuprof.analyze.journal_columns import Ints, Journal
from lightning_gpuprof.analyze.statistics import Floats
from lightning_gpuprof.analyze.steady import Mask
from lightning_gpuprof.model.journal import DISTURBED, FIRST_OF_EPOCH, PROFILED, WindowRecord
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.window import WindowFacts

_NOT_FROM_PROFILER: tuple[Phase, ...] = ("validation", "checkpoint", "data_wait")
"""Phases whose length is not that of a step's own work: what is longer in them was not made so by a window."""

_STALL = 10.0
"""Work over that of the steps around it, from which a step beside a window was stalled and shows nothing. Heuristic."""

STEPS_BESIDE = 20
"""A window is compared with so many steady steps on each side: others may belong to another speed level of the run."""

STEPS_BEFORE = 5
"""A window on slow steps is compared with so many untraced steps right before it: steady ones were faster anyway."""


def windows_s(journal: Journal, steady: Mask, own_ns: Ints) -> float | None:
    """What was spent at the boundaries of these steps beyond the usual, and by how much their own work took longer.

    Each stretch of steps that were traced, or ran beside the writing and analysis of a trace, is compared with up to 20
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


def _usual_ns(work: Floats, places: Sequence[int]) -> float:
    """The mean of these steps at their own speed level: their median, and what they lie above as many on each side."""
    beyond_ns = []
    for place in places:
        width = min(place, len(work) - 1 - place, STEPS_BESIDE)
        around = np.r_[work[place - width : place], work[place + 1 : place + 1 + width]]
        if width and work[place] <= _STALL * (level_ns := float(np.median(around))):
            beyond_ns.append(work[place] - level_ns)
    return float(np.median(work[list(places)])) + (float(np.mean(beyond_ns)) if beyond_ns else 0.0)


def stretches(mask: Mask) -> list[tuple[int, int]]:
    """Begin and end, exclusive, of each run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return [(int(begin), int(end)) for begin, end in edges.reshape(-1, 2)]


def with_inflation(
    windows: Sequence[WindowFacts],
    journal: Journal,
    steady: Mask,
    own_ns: Ints,
) -> tuple[WindowFacts, ...]:
    """The windows with their ``inflation_ratio``: median step time of their steps over that of steady ones beside.

    Beside are up to 20 steady untraced steps before the window and up to 20 after it.

    The first step of an epoch and steps with validation or a checkpoint are long for another reason: they do not count.
    What the profiler itself takes at a step's boundary, such as opening a window, is left out on both sides.

    Args:
        windows: Facts of the journal's windows, in the journal's order.
        journal: One rank's journal.
        steady: Which steps are steady and untraced, shape (n,).
        own_ns: Time of the profiler itself in each step, shape (n,).

    Returns:
        In the same order; the ratio is None if no step of the window, or none beside it, can be compared.
    """
    if not windows:
        return ()
    period = (journal.steps.period_ns - own_ns).astype(np.float64)
    first = (journal.steps.flags & FIRST_OF_EPOCH) != 0
    ordinary = ~first & (journal.phases["validation"] == 0) & (journal.phases["checkpoint"] == 0)
    return tuple(
        msgspec.structs.replace(facts, inflation_ratio=_ratio(record, journal, steady, ordinary, period))
        for facts, record in zip(windows, journal.windows, strict=True)
    )


def _ratio(window: WindowRecord, journal: Journal, steady: Mask, ordinary: Mask, period: Floats) -> float | None:
    steps = journal.steps
    end_ns = steps.start_ns + steps.period_ns
    # The boundary at which a window opens or closes comes just before the time that its record notes.
    inside = ordinary & ((steps.flags & PROFILED) != 0) & (end_ns > window.start_ns) & (end_ns <= window.stop_ns)
    traced = period[inside]
    before = period[steady & (end_ns <= window.start_ns)][-STEPS_BESIDE:]
    untraced = np.concatenate([before, period[steady & (steps.start_ns >= window.stop_ns)][:STEPS_BESIDE]])
    if window.reason.startswith("slow step"):
        plain = ordinary & ((steps.flags & (PROFILED | DISTURBED)) == 0)
        untraced = period[plain & (end_ns <= window.start_ns)][-STEPS_BEFORE:]
    if not len(traced) or not len(untraced) or not (usual := float(np.median(untraced))):
        return None
    return float(np.median(traced)) / usual
