"""What is computed from measured metrics once, for all who ask: each reads those before it."""

from __future__ import annotations

from dataclasses import replace

from lightning_gpuprof.analyze.callback_costs import callback_costs
from lightning_gpuprof.analyze.collectives import collectives
from lightning_gpuprof.analyze.contention import contention
from lightning_gpuprof.analyze.device_kernels import device_run
from lightning_gpuprof.analyze.device_step import device_step
from lightning_gpuprof.analyze.gpus import copies_to_device_ms, gpus
from lightning_gpuprof.analyze.host_limit import host_limit
from lightning_gpuprof.analyze.loading import fetch, loading, starving
from lightning_gpuprof.analyze.memory_use import memory_holders
from lightning_gpuprof.analyze.python_time import python_time
from lightning_gpuprof.analyze.stalls import stalls
from lightning_gpuprof.analyze.unevenness import growth, level_change
from lightning_gpuprof.analyze.waiting import interpreter_wait, waiting
from lightning_gpuprof.model.metrics import Metrics


def with_derived(metrics: Metrics) -> Metrics:
    """The metrics with everything that follows from their other fields."""
    metrics = replace(metrics, device_step=device_step(metrics), waiting=waiting(metrics))
    metrics = replace(metrics, gpus=gpus(metrics), copies_to_device_ms=copies_to_device_ms(metrics))
    metrics = replace(metrics, holders=memory_holders(metrics))
    metrics = replace(metrics, interpreter_wait=interpreter_wait(metrics), host_limit=host_limit(metrics))
    metrics = replace(metrics, fetch=fetch(metrics))
    metrics = replace(
        metrics, level_change=level_change(metrics), growth=growth(metrics.evenness.drift), stalls=stalls(metrics)
    )
    metrics = replace(metrics, loading=loading(metrics), device_run=device_run(metrics))
    metrics = replace(
        metrics, starving=starving(metrics), callback_costs=callback_costs(metrics), contention=contention(metrics)
    )
    return replace(metrics, collectives=collectives(metrics), python_time=python_time(metrics))
