"""Finds that the optimizer walks over many parameter tensors one by one."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding, Severity
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    condition,
    gain,
    is_cpu_only,
    measured,
    possible,
    severity,
    steady_period_ms,
    step_share,
    threshold,
    usable,
    worthwhile,
)
from lightning_gpuprof.rules.steps.fused_update import FOREACH, FUSED, can_fuse
from lightning_gpuprof.rules.steps.host_time import counted_ratio
from lightning_gpuprof.rules.wording import millis, percent

_WAITED_RATIO = 0.10
"""Waiting from which on it is named by itself, as for blocked-in-step."""

_PASSES = 7
"""AdamW reads and writes parameter, gradient and two states: the most that a fused update moves, in parameter bytes."""

_BYTES_PER_MS = 5e6
"""5 GB/s. Heuristic, low: what a slow CPU core moves."""

_TENSOR_MS = 0.010
"""What a fused update takes for one more tensor. Heuristic: 8 to 10 us on a slow CPU core; a loop takes 50 for
AdamW."""


@dataclass(frozen=True, kw_only=True)
class OptimizerSlow(BaseRule):
    """The optimizer's update takes a good part of the step, because it handles parameter tensors one by one.

    ## What it means

    An update moves little data, but in a loop over tensors each of them costs several operator calls, with Adam about a
    dozen. On a CPU torch's optimizers loop unless they are told `fused=True`; on a GPU they do so with `foreach=False`.

    ## How it is measured

    The phase `optimizer` without the learning rate scheduler, or without a tenth of the step or more of waiting (see
    `blocked-in-step`), as a share of the period of steady steps; the lower bound counts. It is silent if the first
    parameter group is fused, on a device also if it is not `foreach=False`. What a fused update takes at least is
    estimated and taken off: 10 us per tensor, and seven passes over the parameters at 5 GB/s. The rest is the gain, its
    lower bound without the share of the step in which the thread waits for a CPU; the severity goes by its part of the
    rest. With fewer than 100 tensors it is information only.

    ## When it is wrong

    - An optimizer of one's own may do more than update parameters (averages, line search, communication): then the time
      may be needed.
    - On a device only the time counts in which the device is idle, which a trace window tells: not evaluated without
      one.
    - If a fused update is not possible (sparse gradients, gradient clipping with `16-mixed`), `foreach=True` gains
      less.

    ## What to do

    `fused=True`, or `foreach=True` where there is no fused update; fewer and larger tensors; accumulate gradients.

    ## Example

    "Set AdamW(..., fused=True): 2,006 parameter tensors are updated one by one, 97 ms of a step of 117 ms."
    """

    id = "optimizer-slow"

    least_ratio: float = threshold(0.15, source="heuristic: the update moves less data than the backward pass")
    many_tensors: int = threshold(100, source="heuristic: fewer tensors are information only")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the optimizer's update."""
        period_ms = steady_period_ms(metrics)
        share = step_share(metrics, "optimizer")
        scheduler = metrics.lr_scheduler
        scheduler_ratio = scheduler.median_ratio if scheduler is not None and usable(scheduler) else 0.0
        other_ratio = max(scheduler_ratio, _waited_ratio(metrics))  # a scheduler may wait as well
        lower_ratio = share.lower_ratio - other_ratio
        if lower_ratio < self.least_ratio:
            return None
        tensors, held_bytes = condition(metrics, "model.parameter_tensors"), condition(metrics, "model.parameter_bytes")
        if not isinstance(tensors, int) or not isinstance(held_bytes, (int, float)) or not possible(held_bytes):
            raise MissingSignal("the number and size of the parameter tensors were not measured")
        if condition(metrics, "model.optimizer_fused") is True or tensors < 1:
            return None
        foreach = condition(metrics, "model.optimizer_foreach")
        if not is_cpu_only(metrics) and foreach is not False:
            return None
        floor_ms = tensors * _TENSOR_MS + _PASSES * held_bytes / _BYTES_PER_MS
        running_ratio = 1.0 - min(0.95, max(0.0, metrics.cpu.run_delay_ratio or 0.0))
        lower_ms = counted_ratio(metrics, lower_ratio * running_ratio) * period_ms - floor_ms
        if not worthwhile(lower_ms, period_ms):
            return None
        median_ms = share.median_ms - other_ratio * period_ms
        running_ms = counted_ratio(metrics, median_ms / period_ms * running_ratio) * period_ms
        recoverable_ms = max(lower_ms, running_ms - floor_ms)  # waiting for a CPU is no work of the optimizer
        level: Severity = "info"
        if tensors >= self.many_tensors:
            level = severity(min(1.0, lower_ms / (period_ms * running_ratio)), metrics.steps.steady_count)
        kind = str(condition(metrics, "model.optimizer") or "the optimizer")
        return self.finding(
            severity=level,
            subject=kind,
            summary=(
                f"{kind} takes {millis(median_ms)} of {millis(period_ms)} ({percent(median_ms / period_ms)}) to update "
                f"{tensors:,} parameter tensors of {held_bytes / 1e6:.3g} MB one by one; a fused update takes "
                f"{millis(floor_ms)} at most by estimate."
            ),
            advice=_advice(metrics, kind, tensors, foreach),
            evidence=(
                self.evidence("least_ratio", median_ms / period_ms, "optimizer share of the step"),
                self.evidence("many_tensors", tensors, "parameter tensors"),
                Evidence(name="foreach", value=str(foreach)),
                Evidence(name="estimate of a fused update", value=floor_ms, unit="ms"),
            ),
            gain=gain(recoverable_ms, lower_ms, period_ms),
            confidence=0.85 if kind in FUSED else 0.6,
            explains=claims.OPTIMIZER,
        )


def _advice(metrics: Metrics, kind: str, tensors: int, foreach: object) -> str:
    now = "foreach=False is set" if foreach is False else "neither fused nor foreach is set"
    if can_fuse(metrics):
        return (
            f"Set torch.optim.{kind}(..., fused=True) in configure_optimizers: {now}, and {tensors:,} tensors are "
            "updated one by one."
        )
    if kind in FUSED | FOREACH:
        why = " (fused does not go with gradient clipping in 16-mixed)" if kind in FUSED else ""
        return f"Set torch.optim.{kind}(..., foreach=True) in configure_optimizers{why}: {now}."
    return (
        f"See whether {kind} can handle its {tensors:,} tensors together (torch._foreach_* operations, or "
        "torch.compile(optimizer.step)); Trainer(accumulate_grad_batches=...) runs it less often."
    )


def _waited_ratio(metrics: Metrics) -> float:
    """Share of the period in which the thread waits for something else than computation; 0 if little, or not known."""
    try:
        found = measured(metrics.waiting)
    except MissingSignal:
        return 0.0
    waited = sum(found.certain_ratio(row) for row in found.phases if row.phase == "optimizer")
    return waited if waited >= _WAITED_RATIO else 0.0
