"""How often optimizers step under manual optimization, and how long backwards between two steps wait for ranks."""

import numpy as np

from lightning_gpuprof.analyze import statistics
from lightning_gpuprof.analyze.journal import Journal
from lightning_gpuprof.analyze.rank_waits import DDP
from lightning_gpuprof.analyze.steady import Mask
from lightning_gpuprof.model.accumulation import Accumulation
from lightning_gpuprof.model.journal import GRADIENT_WAIT
from lightning_gpuprof.model.missing import Unmeasured

_READY_QUANTILE = 0.05


def accumulation(journal: Journal, steady: Mask) -> Accumulation | Unmeasured | None:
    """Optimizer steps of the steady batches.

    Args:
        journal: One rank's journal.
        steady: Which of all batches are steady, shape (n,).

    Returns:
        None if optimization is automatic, or DDP reduces no gradients.
    """
    header, conditions, steps = journal.header, journal.conditions, journal.steps
    is_manual = header.stage == "fit" and conditions.get("model.automatic_optimization") is False
    if not is_manual or conditions.get("trainer.strategy") != DDP or header.world_size < 2:
        return None
    completed = steps.stepped[1:]
    known = steady[:-1]  # of the last batch it is not recorded
    stepped = completed[known] > 0
    if not stepped.any():
        return Unmeasured(why="Lightning counted no optimizer step")
    ends = [s.id for s in journal.slots if s.action == GRADIENT_WAIT and s.region == "main" and s.id in steps.charged]
    waits_ns = sum((steps.charged[slot][:-1] for slot in ends), np.zeros(len(known), np.int64))[known][~stepped]
    is_timed = bool(ends) and len(waits_ns) > 0
    least_ns = statistics.quantiles(waits_ns, (_READY_QUANTILE,))[0] if is_timed else 0.0
    return Accumulation(
        unstepped_ratio=1.0 - float(stepped.mean()),
        steps_per_batch=float(completed[known].mean()),
        wait_ms=statistics.median(waits_ns) / 1e6 if is_timed else None,
        least_wait_ms=least_ns / 1e6 if is_timed else None,
    )
