"""How torch could update a run's parameters together, which advice may name."""

from __future__ import annotations

from lightning_gpuprof.rules.base import Metrics, condition

FUSED = frozenset({"Adam", "AdamW", "SGD", "Adagrad"})
"""Optimizers of torch with `fused=True`, also on a CPU."""

FOREACH = frozenset({"NAdam", "RAdam", "RMSprop", "Adadelta", "Adamax", "ASGD", "Rprop"})
"""The others that have `foreach=True`, which is their default on a GPU."""


def can_fuse(metrics: Metrics) -> bool | None:
    """Whether the optimizer takes `fused=True`; None: which it is is not known."""
    kind = condition(metrics, "model.optimizer")
    return None if kind is None else kind in FUSED and not clipping_excludes_fused(metrics)


def clipping_excludes_fused(metrics: Metrics) -> bool:
    """Whether Lightning would refuse to clip the gradients of a fused optimizer, which unscales them itself."""
    scaled = str(condition(metrics, "trainer.precision") or "").startswith("16")
    return scaled and bool(condition(metrics, "trainer.gradient_clip_val"))
