"""What happens between and beside the steps: epoch starts, validation runs, checkpoints."""

from __future__ import annotations

import numpy as np

from lightning_gpuprof.analyze.callback_names import callback_names
from lightning_gpuprof.analyze.journal import Ints, Journal
from lightning_gpuprof.model.journal import FIRST_OF_EPOCH, Segment
from lightning_gpuprof.model.metrics import EpochStart, Recurring
from lightning_gpuprof.model.phases import Phase

_ITERATOR_ACTIONS = ("run_training_epoch", "setup_data", "iter(dataloader)")


def epoch_starts(journal: Journal, phases: dict[Phase, Ints]) -> tuple[EpochStart, ...]:
    """For each epoch that has steps, what it cost until its first batch was there.

    Args:
        journal: The journal of one stage.
        phases: Time of each phase in each step in ns, shape (n,) each.
    """
    steps = journal.steps
    before = {segment.end_ns: segment for segment in journal.segments}
    epochs, place = np.unique(steps.epoch, return_inverse=True)
    steps_ns = np.zeros(len(epochs), np.int64)
    np.add.at(steps_ns, place, steps.period_ns)
    starts = []
    for index in np.flatnonzero(steps.flags & FIRST_OF_EPOCH):
        segment = before.get(int(steps.start_ns[index]))
        starts.append(
            EpochStart(
                epoch=int(steps.epoch[index]),
                gap_s=_gap_ns(journal, segment) / 1e9 if segment is not None and segment.kind == "epoch_gap" else 0.0,
                iterator_s=_iterator_ns(journal, segment) / 1e9 if segment is not None else 0.0,
                first_wait_s=int(phases["data_wait"][index]) / 1e9,
                steps_s=int(steps_ns[place[index]]) / 1e9,
            )
        )
    return tuple(starts)


def recurring(journal: Journal, phase: Phase) -> Recurring:
    """How often and how long validation or checkpoints ran, in steps and between them; sanity is not counted.

    Args:
        journal: The journal of one stage.
        phase: ``validation`` or ``checkpoint``.
    """
    chosen = {s.id for s in journal.slots if s.step_phase == phase and s.region != "sanity"}
    spent = np.zeros(len(journal.steps), np.int64)
    for slot, column in journal.steps.charged.items():
        if slot in chosen:
            spent += column
    durations = [int(ns) for ns in spent[spent > 0]]
    for segment in journal.segments:
        ns = sum(ns for slot, ns in segment.charged.items() if slot in chosen)
        if ns:
            durations.append(ns)
    names = callback_names(journal.slots)
    owners = sorted({names[journal.slots[i].callback] for i in chosen if journal.slots[i].callback})
    return Recurring(
        count=len(durations),
        total_s=sum(durations) / 1e9,
        median_s=float(np.median(durations)) / 1e9 if durations else None,
        subject=", ".join(owners) if phase == "checkpoint" else "",
    )


def _gap_ns(journal: Journal, segment: Segment) -> int:
    outside = sum(
        ns
        for slot, ns in segment.charged.items()
        if slot < len(journal.slots) and journal.slots[slot].step_phase in ("validation", "checkpoint")
    )
    return segment.end_ns - segment.start_ns - outside


def _iterator_ns(journal: Journal, segment: Segment) -> int:
    makes_one = {s.id for s in journal.slots if s.region == "main" and s.action in _ITERATOR_ACTIONS}
    return sum(ns for slot, ns in segment.charged.items() if slot in makes_one)
