"""What happens between and beside the steps: epoch starts, validation runs, checkpoints."""

from statistics import median

import numpy as np

from lightning_gpuprof.analyze.callback_names import callback_names
from lightning_gpuprof.analyze.journal_columns import Journal, sorting
from lightning_gpuprof.model.epochs import EpochGaps, WorkerStarts
from lightning_gpuprof.model.journal import FIRST_OF_EPOCH, Segment
from lightning_gpuprof.model.metrics import EpochStart, Metrics, Recurring
from lightning_gpuprof.model.missing import MissingSignal, or_unmeasured
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.report import OWN_NAME
from lightning_gpuprof.model.signals import require_possible

_NAMED_RATIO = 0.10
"""Share of the gaps from which a row of the ledger is named. Heuristic."""

_LOADERS = ("iter(dataloader)", "setup_data")
"""Begins of rows with time that is no part of a gap, as measured here."""

_ITERATOR_ACTIONS = ("run_training_epoch", "setup_data", "iter(dataloader)")


def epoch_starts(journal: Journal) -> tuple[EpochStart, ...]:
    """For each epoch that has steps, what it cost until its first batch was there."""
    steps = journal.steps
    before = {segment.end_ns: segment for segment in journal.segments}
    order = sorting(steps.epoch)
    epoch = steps.epoch[order]
    first = np.flatnonzero(np.diff(epoch, prepend=epoch.dtype.type(-1)))
    epochs, steps_ns = epoch[first], np.add.reduceat(steps.period_ns[order], first, dtype=np.int64)
    starts, waited_ns = [], journal.phases["data_wait"]
    for index in np.flatnonzero(steps.flags & FIRST_OF_EPOCH):
        segment = before.get(int(steps.start_ns[index]))
        starts.append(
            EpochStart(
                epoch=int(steps.epoch[index]),
                gap_s=_gap_ns(journal, segment) / 1e9 if segment is not None and segment.kind == "epoch_gap" else 0.0,
                iterator_s=_iterator_ns(journal, segment) / 1e9 if segment is not None else 0.0,
                first_wait_s=int(waited_ns[index]) / 1e9,
                steps_s=int(steps_ns[np.searchsorted(epochs, steps.epoch[index])]) / 1e9,
            )
        )
    return tuple(starts)


def recurring(journal: Journal, phase: Phase) -> Recurring:
    """How often and how long validation or checkpoints ran, in steps and between them; sanity is not counted.

    Args:
        journal: The journal of one stage.
        phase: ``validation`` or ``checkpoint``.

    Returns:
        Times in s; the median is None if it never ran. Only checkpoints have a subject: the callbacks that wrote them.
    """
    chosen = {s.id for s in journal.slots if s.step_phase == phase and s.region != "sanity"}
    spent = np.zeros(len(journal.steps), np.int64)
    for slot in chosen & journal.steps.charged.keys():
        spent += journal.steps.charged[slot]
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


@or_unmeasured
def epoch_gaps(metrics: Metrics) -> EpochGaps | None:
    """Time between epochs without a step; None: there is one epoch. It needs the wall time and the epochs' starts."""
    starts = metrics.epoch_starts[1:]
    if not starts:
        return None
    total_s = metrics.run_s
    for start in starts:
        require_possible("the time of an epoch start", start.gap_s, start.iterator_s)
    gaps_s = [max(0.0, start.gap_s - start.iterator_s) for start in starts]
    whole_s, each_s = min(sum(gaps_s), total_s), median(gaps_s)
    rows = [row for row in metrics.ledger if row.part == "epoch_gap" and row.name != OWN_NAME]
    rows = [row for row in rows if not row.name.startswith(_LOADERS)]
    held_s = sum(row.total_s for row in rows)
    named = [(row, row.total_s / held_s) for row in rows if held_s > 0 and row.total_s >= _NAMED_RATIO * held_s]
    return EpochGaps(
        count=len(gaps_s),
        whole_s=whole_s,
        lower_s=min(whole_s, each_s * len(gaps_s)),
        each_s=each_s,
        epoch_s=median(start.steps_s for start in starts),
        run_s=total_s,
        rows=tuple(sorted(named, key=lambda item: -item[0].total_s)),
    )


@or_unmeasured
def worker_starts(metrics: Metrics) -> WorkerStarts | None:
    """What starting the workers costs, if they are started at each epoch; None: there is one epoch.

    Without the epochs' starts and steady steps it raises MissingSignal.
    """
    starts = metrics.epoch_starts[1:]
    if not starts:
        return None
    for one in starts:
        require_possible("the time of an epoch start", one.gap_s, one.iterator_s, one.first_wait_s, one.steps_s)
    period_s, wait_s = metrics.step_ms / 1e3, metrics.share_of("data_wait").median_ms / 1e3
    epoch_s = median(start.gap_s + start.steps_s for start in starts)
    if epoch_s <= 0:
        raise MissingSignal("the time of the epochs was not measured")
    batch_s = period_s * (metrics.num_workers or 0)
    costs_s = [max(0.0, start.iterator_s + start.first_wait_s - wait_s) for start in starts]
    least_s = median(max(start.iterator_s, start.iterator_s + start.first_wait_s - batch_s) for start in starts)
    return WorkerStarts(
        epoch_s=epoch_s,
        cost_s=median(costs_s),
        lower_s=min(median(costs_s), least_s),
        sum_s=sum(costs_s),
        iterator_s=median(start.iterator_s for start in starts),
        wait_s=wait_s,
    )
