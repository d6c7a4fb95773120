"""A trainer at the start of training flows in; the optimizer step at which it is bound to end flows out, if known."""

from __future__ import annotations

import math
from typing import Any


def ends_at(trainer: Any) -> tuple[int, str] | None:
    """The number of optimizer steps that training cannot pass, and what sets it.

    Never too low: with manual optimization, loaders without a length or that are made anew, and accumulation that
    changes on the way, only ``max_steps`` counts.

    Args:
        trainer: With its loaders, at the start of training.

    Returns:
        The limit and its cause, e.g. ``(500, "max_steps=500")``, or None if nothing is known.
    """
    limits: list[tuple[int, str]] = []
    if isinstance(trainer.max_steps, int) and trainer.max_steps >= 0:
        limits.append((trainer.max_steps, f"max_steps={trainer.max_steps}"))
    epochs, batches = trainer.max_epochs, trainer.num_training_batches
    counted = (
        trainer.lightning_module.automatic_optimization
        and isinstance(epochs, int)
        and epochs >= 0
        and isinstance(batches, (int, float))
        and math.isfinite(batches)
        and not trainer.reload_dataloaders_every_n_epochs
        and not any("GradientAccumulationScheduler" in (k.__name__ for k in type(c).__mro__) for c in trainer.callbacks)
    )
    if counted:
        steps = math.ceil(batches / trainer.accumulate_grad_batches)
        left = max(0, epochs - trainer.current_epoch)
        limits.append((trainer.global_step + left * steps, f"max_epochs={epochs} with {steps} steps each"))
    return min(limits, default=None)
