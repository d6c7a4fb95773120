"""From the shares of callbacks and of their phase to what each owner of hooks takes of ordinary steps."""

from __future__ import annotations

from collections.abc import Iterator

from lightning_gpuprof.model.metrics import CallbackCost, Metrics
from lightning_gpuprof.model.numbers import possible
from lightning_gpuprof.model.share import usable
from lightning_gpuprof.model.signals import condition, ordinary_ratio


def callback_costs(metrics: Metrics) -> tuple[CallbackCost, ...]:
    """What the hooks of each owner take, largest share first."""
    return tuple(sorted((*_callbacks(metrics), *_module_hooks(metrics)), key=lambda cost: cost.ratio, reverse=True))


def _callbacks(metrics: Metrics) -> Iterator[CallbackCost]:
    for one in metrics.callback_shares:
        if usable(one.share):
            ratio = ordinary_ratio(metrics, one.share, "callbacks")
            yield CallbackCost(owner=one.class_name, hook=one.hook, ratio=ratio, median_ms=one.share.median_ms)


def _module_hooks(metrics: Metrics) -> Iterator[CallbackCost]:
    """What is left of the phase: the LightningModule and the DataModule have hooks of the same names."""
    whole, period_ms = metrics.share("callbacks"), metrics.period_ms
    if whole is None or not usable(whole) or not period_ms:
        return
    own_us = metrics.overhead.get("boundary_us_per_step") or 0.0
    told_ms = sum(c.share.median_ms for c in metrics.callback_shares if usable(c.share))
    told_ms += own_us / 1e3 if possible(own_us) else 0.0
    yield CallbackCost(
        owner=str(condition(metrics, "model.class") or "the LightningModule"),
        hook="",
        ratio=max(0.0, whole.lower_ratio - told_ms / period_ms),
        median_ms=max(0.0, whole.median_ms - told_ms),
    )
