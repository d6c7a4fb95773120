"""The share of the steady steps that the user's own hooks and each logger take."""

from collections.abc import Sequence

import numpy as np

from lightning_gpuprof.analyze import call_sites, statistics
from lightning_gpuprof.analyze.journal_columns import Ints, Journal
from lightning_gpuprof.analyze.steady import Mask
from lightning_gpuprof.model.metrics import HookShare, LoggerWrites
from lightning_gpuprof.model.phases import logger_of
from lightning_gpuprof.model.share import Share

_OWNERS = ("[LightningModule]", "[LightningDataModule]")


def hook_share(journal: Journal, steady: Mask, hook: str) -> Share | None:
    """Time of all actions with this name in the training loop.

    Args:
        journal: One rank's journal.
        steady: Which of all steps are steady, shape (n,).
        hook: The action's name, or what follows its owner, as ``lr_scheduler_step``.

    Returns:
        Its share of the step time, 0 to 1; None if there are none, or no steady steps.
    """
    slots = [
        slot_id
        for slot_id in journal.steps.charged
        if (slot := journal.slots[slot_id]).region == "main"
        and hook in (slot.hook, slot.action, slot.action.rpartition(".")[2])
    ]
    return _share(journal, steady, slots)


def transfer_hooks(journal: Journal, steady: Mask) -> tuple[HookShare, ...]:
    """Each hook of LightningModule and DataModule around the move of the batch.

    Args:
        journal: One rank's journal; only hooks that somebody has overridden have time of their own in it.
        steady: Which of all steps are steady, shape (n,).

    Returns:
        Largest median share first; empty if nobody has overridden one, or without steady steps.
    """
    slots: dict[str, list[int]] = {}
    for slot_id in journal.steps.charged:
        slot = journal.slots[slot_id]
        if slot.step_phase == "h2d" and slot.action.startswith(_OWNERS):
            slots.setdefault(slot.action, []).append(slot_id)
    found = []
    for action, ids in slots.items():
        share = _share(journal, steady, ids)
        owner, _, hook = action.partition("]")[2].rpartition(".")
        if share is not None:
            sites = call_sites.most_seen(journal, ids)
            found.append(HookShare(owner=owner, hook=hook, share=share, site=sites[0][0] if sites else ""))
    return tuple(sorted(found, key=lambda one: -one.share.median_ratio))


def logger_writes(journal: Journal, steady: Mask) -> tuple[LoggerWrites, ...]:
    """Each logger's time within that of logging.

    Args:
        journal: One rank's journal.
        steady: Which of all steps are steady, shape (n,).

    Returns:
        Largest part of the total first; empty if none wrote, or without steady steps.
    """
    slots: dict[str, list[int]] = {}
    for slot_id in journal.steps.charged:
        slot = journal.slots[slot_id]
        if slot.region == "main" and slot.phase == "logging" and (name := logger_of(slot.action)):
            slots.setdefault(name, []).append(slot_id)
    found = []
    for name, ids in slots.items():
        share, total = _share(journal, steady, ids), _total(journal, steady, ids)
        writes = total[total > 0]
        if share is not None and len(writes):
            found.append(
                LoggerWrites(name=name, share=share, count=len(writes), each_ms=float(np.median(writes)) / 1e6)
            )
    return tuple(sorted(found, key=lambda one: -one.share.total_ratio))


def _total(journal: Journal, steady: Mask, slots: Sequence[int]) -> Ints:
    return sum((journal.steps.charged[slot][steady] for slot in slots), np.zeros(int(steady.sum()), np.int64))


def _share(journal: Journal, steady: Mask, slots: Sequence[int]) -> Share | None:
    if not slots:
        return None
    return statistics.share(_total(journal, steady, slots), journal.steps.period_ns[steady])
