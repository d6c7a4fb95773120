"""What the update of the parameters takes of a step, and an estimate of what it would take fused."""

from lightning_gpuprof.model.host_time import FusedUpdate, OptimizerUpdate
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import MissingSignal, Unmeasured, measured, or_unmeasured
from lightning_gpuprof.model.share import usable
from lightning_gpuprof.model.signals import can_fuse, delayed_ratio

_WAITED_RATIO = 0.10
"""Waiting from which on it is named by itself, as for blocked-in-step."""

_PASSES = 7
"""AdamW reads and writes parameter, gradient and two states: the most that a fused update moves, in parameter bytes."""

_BYTES_PER_MS = 5e6
"""5 GB/s. Heuristic, low: what a slow CPU core moves."""

_TENSOR_MS = 0.010
"""What a fused update takes for one more tensor. Heuristic: 8 to 10 µs on a slow CPU core; a loop takes 50 for
AdamW."""

_FUSED_RATIO = {"Adam": 0.5, "AdamW": 0.5, "Adagrad": 0.55}
"""The most that a fused update takes of the CPU time of the loop: measured with one thread and tensors of 10 to
1,000,000 numbers (Adam 0.19 to 0.45, AdamW 0.14 to 0.41, Adagrad 0.25 to 0.50). SGD gains nothing in large tensors."""


@or_unmeasured
def optimizer_update(metrics: Metrics) -> OptimizerUpdate:
    """The update and its estimate; the run's ``waiting`` and ``host_limit`` are read, steady steps are needed."""
    step_ms, share, scheduler = metrics.step_ms, metrics.share_of("optimizer"), metrics.lr_scheduler
    scheduler_ratio = scheduler.median_ratio if scheduler is not None and usable(scheduler) else 0.0
    other_ratio = max(scheduler_ratio, _waited_ratio(metrics))  # a scheduler may wait as well
    ms, lower_ratio = share.median_ms - other_ratio * step_ms, share.lower_ratio - other_ratio
    return OptimizerUpdate(
        ms=ms,
        lower_ratio=lower_ratio,
        running_ratio=1.0 - delayed_ratio(metrics),
        fused=_fused(metrics, ms, lower_ratio),
    )


@or_unmeasured
def _fused(metrics: Metrics, loop_ms: float, lower_ratio: float) -> FusedUpdate | None:
    tensors, held_bytes = metrics.number("model.parameter_tensors"), metrics.number("model.parameter_bytes")
    if tensors is None or held_bytes is None:
        raise MissingSignal("the number and size of the parameter tensors were not measured")
    if metrics.condition("model.optimizer_fused") is True or tensors < 1:
        return None
    if not metrics.is_cpu_only and metrics.condition("model.optimizer_foreach") is not False:
        return None
    step_ms, running_ratio, most_ratio = (
        metrics.step_ms,
        1.0 - delayed_ratio(metrics),
        measured(metrics.host_limit.ratio),
    )
    running_ms = min(loop_ms / step_ms * running_ratio, most_ratio) * step_ms
    fused_ms = tensors * _TENSOR_MS + _PASSES * held_bytes / _BYTES_PER_MS
    known = metrics.is_cpu_only and can_fuse(metrics)
    most_fused = _FUSED_RATIO.get(str(metrics.condition("model.optimizer"))) if known else None
    if most_fused is not None:
        fused_ms = min(fused_ms, most_fused * running_ms)
    lower_ms = min(lower_ratio * running_ratio, most_ratio) * step_ms - fused_ms
    return FusedUpdate(
        tensors=tensors,
        ms=fused_ms,
        is_known=most_fused is not None,
        saved=metrics.cost(max(lower_ms, running_ms - fused_ms), lower_ms),
    )


def _waited_ratio(metrics: Metrics) -> float:
    """Share of the step time in which the thread waits for other things than computation; 0 if little or unknown."""
    found = metrics.waiting
    if isinstance(found, Unmeasured):
        return 0.0
    waited = sum(found.certain_ratio(row) for row in found.phases if row.phase == "optimizer")
    return waited if waited >= _WAITED_RATIO else 0.0
