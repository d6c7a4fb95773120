"""The share of the steady steps that the user's own hooks take."""

from collections.abc import Sequence

import numpy as np

from lightning_gpuprof.analyze import call_sites, statistics
from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.analyze.steady import Mask
from lightning_gpuprof.model.metrics import HookShare
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


def _share(journal: Journal, steady: Mask, slots: Sequence[int]) -> Share | None:
    if not slots:
        return None
    total = sum((journal.steps.charged[slot][steady] for slot in slots), np.zeros(int(steady.sum()), np.int64))
    return statistics.share(total, journal.steps.period_ns[steady])
