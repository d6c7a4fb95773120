"""By how much tracing inflated the times inside each window."""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from lightning_gpuprof.analyze.journal import Ints, Journal
from lightning_gpuprof.model.journal import DISTURBED, FIRST_OF_EPOCH, PROFILED, WindowRecord
from lightning_gpuprof.model.window import WindowFacts

STEPS_BESIDE = 20
"""A window is held against so many steady steps on each side: others may belong to another speed level of the run."""
STEPS_BEFORE = 5
"""A window on slow steps is held against so many untraced steps right before it: the steady ones were faster anyway."""


def with_inflation(
    windows: Sequence[WindowFacts],
    journal: Journal,
    steady: npt.NDArray[np.bool_],
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


def _ratio(
    window: WindowRecord,
    journal: Journal,
    steady: npt.NDArray[np.bool_],
    ordinary: npt.NDArray[np.bool_],
    period: npt.NDArray[np.float64],
) -> float | None:
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
