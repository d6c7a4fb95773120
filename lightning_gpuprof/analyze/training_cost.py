"""What training costs: GPU-hours, money and energy, from the wall time, the steps and the sampled GPUs."""

from contextlib import suppress

from lightning_gpuprof.model.method import Cost
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import MissingSignal
from lightning_gpuprof.model.numbers import possible

_PRICE = "gpuprof.price_per_gpu_hour"
"""Condition with the price as it was given."""


def training_cost(metrics: Metrics) -> Cost | None:
    """GPU-hours, price and energy per sample; None on anything but GPUs."""
    if metrics.condition("device.type") != "cuda":
        return None
    ranks = metrics.positive("trainer.world_size") or metrics.positive("world_size") or 1
    per_step = _samples_per_step(metrics)
    hours_per_step = hours_per_million = None
    with suppress(MissingSignal):
        hours_per_step = metrics.run_ms_per_step / 3.6e6 * ranks
    if hours_per_step is not None and per_step is not None:
        hours_per_million = hours_per_step / per_step * 1e6
    batches = metrics.positive("trainer.num_training_batches")
    price = metrics.condition(_PRICE)
    total_s = metrics.wall.total_s
    return Cost(
        gpu_hours=total_s / 3600 * ranks if possible(total_s) else None,
        gpu_hours_per_epoch=hours_per_step * batches if hours_per_step is not None and batches else None,
        gpu_hours_per_million_samples=hours_per_million,
        price_per_million_samples=price * hours_per_million
        if isinstance(price, (int, float)) and hours_per_million is not None
        else None,
        joules_per_sample=_joules_per_sample(metrics, per_step, ranks),
    )


def _samples_per_step(metrics: Metrics) -> float | None:
    """Of all ranks."""
    steps = metrics.steps
    if steps.samples_per_s is None or steps.period_ms is None:
        return None
    samples = steps.samples_per_s * steps.period_ms.mean / 1e3
    return samples if possible(samples) and samples > 0 else None


def _joules_per_sample(metrics: Metrics, per_step: float | None, ranks: int) -> float | None:
    joules = [device.energy.per_step_j for device in metrics.devices if device.energy is not None]
    if per_step is None or not joules or not all(map(possible, joules)):
        return None
    return sum(joules) / (per_step / ranks)
