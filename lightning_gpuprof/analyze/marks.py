"""What happened to each step: outliers, windows, validation, epochs and others.

The longest stay where there are too many, so that a figure of a long run keeps what its reader looks for.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from lightning_gpuprof.analyze.journal_columns import Ints, Journal
from lightning_gpuprof.model.curves import Mark, MarkKind, Marks
from lightning_gpuprof.model.journal import FIRST_OF_EPOCH, PROFILED
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.report import SpeedLevel

MAX_MARKS = 100
"""Of each kind."""


def marks(journal: Journal, far: Ints, speed_levels: Sequence[SpeedLevel]) -> tuple[Marks, ...]:
    """All marks, without kinds that never happened.

    Args:
        journal: One rank's journal.
        far: Indices of the outliers.
        speed_levels: Levels of the step time.

    Returns:
        One entry per kind, which counts all its marks and holds up to 100 of them in order.
    """
    steps = journal.steps
    shown = [
        _longest("outlier", steps.batch[far], steps.period_ns[far]),
        _marks("window", list(_windows(journal))),
        _longest("validation", *_spent(journal, "validation")),
        _longest("checkpoint", *_spent(journal, "checkpoint")),
        _epochs(steps.batch[(steps.flags & FIRST_OF_EPOCH) != 0][1:]),
        _marks(
            "speed level",
            [
                Mark(from_batch=r.from_batch, to_batch=r.to_batch, ms=round(r.period_ms.median, 4))
                for r in speed_levels[1:]
            ],
        ),
    ]
    return tuple(found for found in shown if found.count)


def _marks(kind: MarkKind, all_of: list[Mark]) -> Marks:
    return Marks(kind=kind, count=len(all_of), marks=tuple(all_of[:MAX_MARKS]))


def _longest(kind: MarkKind, batches: Ints, ns: Ints) -> Marks:
    """Of so many, those that took longest, in order."""
    chosen = np.sort(np.argsort(-ns, kind="stable")[:MAX_MARKS])
    chosen = chosen[np.argsort(batches[chosen], kind="stable")]
    found = [
        Mark(from_batch=batch, to_batch=batch, ms=round(spent / 1e6, 4))
        for batch, spent in zip(batches[chosen].tolist(), ns[chosen].tolist(), strict=True)
    ]
    return Marks(kind=kind, count=len(batches), marks=tuple(found))


def _epochs(batches: Ints) -> Marks:
    """All, or some at even distance."""
    n = len(batches)
    chosen = batches if n <= MAX_MARKS else batches[np.linspace(0, n - 1, MAX_MARKS).astype(np.int64)]
    return Marks(kind="epoch", count=n, marks=tuple(Mark(from_batch=b, to_batch=b) for b in chosen.tolist()))


def _windows(journal: Journal) -> Iterable[Mark]:
    """The steps that were under each window; one that was never opened has none."""
    steps = journal.steps
    traced = np.flatnonzero(steps.flags & PROFILED)
    end_ns = steps.start_ns[traced] + steps.period_ns[traced]
    for window in journal.windows:
        inside = steps.batch[traced[(end_ns > window.start_ns) & (end_ns <= window.stop_ns)]]
        if len(inside):
            yield Mark(from_batch=int(inside.min()), to_batch=int(inside.max()))


def _spent(journal: Journal, phase: Phase) -> tuple[Ints, Ints]:
    """Batches in which a phase took time, or between which and the next one it did, and that time in ns."""
    steps = journal.steps
    spent = journal.phases[phase].copy()
    if len(steps):
        slots = {slot.id for slot in journal.slots if slot.step_phase == phase and slot.region != "sanity"}
        for segment in journal.segments:
            before = int(np.searchsorted(steps.start_ns, segment.start_ns, "right")) - 1
            if before >= 0:
                spent[before] += sum(ns for slot, ns in segment.charged.items() if slot in slots)
    taken = spent > 0
    return steps.batch[taken], spent[taken]
