"""A journal and a hook flow in, the share of the steady steps that it takes flows out."""

from __future__ import annotations

import numpy as np

from lightning_gpuprof.analyze import statistics
from lightning_gpuprof.analyze.journal import Journal
from lightning_gpuprof.analyze.steady import Mask
from lightning_gpuprof.model.metrics import Share


def hook_share(journal: Journal, steady: Mask, hook: str) -> Share | None:
    """Time of all actions with this name in the training loop; None if there are none, or no steady steps.

    Args:
        journal: One rank's journal.
        steady: Which of all steps are steady, shape (n,).
        hook: What follows the owner in the action's name, as ``lr_scheduler_step``.
    """
    slots = [
        slot_id
        for slot_id in journal.steps.charged
        if (slot := journal.slots[slot_id]).region == "main" and hook in (slot.hook, slot.action.rpartition(".")[2])
    ]
    if not slots:
        return None
    total = sum((journal.steps.charged[slot][steady] for slot in slots), np.zeros(int(steady.sum()), np.int64))
    return statistics.share(total, journal.steps.period_ns[steady])
