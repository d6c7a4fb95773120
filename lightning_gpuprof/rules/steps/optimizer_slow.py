"""The optimizer takes a large part of the step because it updates parameter tensors one by one.

## What it means
An update moves little data. But a loop over tensors makes several operator calls for each of them, about a dozen with
Adam. torch's optimizers loop on a CPU unless `fused=True`, and on a GPU if `foreach=False`.

## How it is measured
The rule compares the lower bound of the phase `optimizer`, as a share of the steady steps, with its threshold. The
learning rate scheduler does not count, nor does waiting that takes a tenth of the step (see `blocked-in-step`).

The gain is that time minus an estimate of the fused update: 10 µs for each tensor, and seven passes over the parameters
at 5 GB/s. For Adam, AdamW and Adagrad on a CPU, the estimate is at most 0.5, 0.5 and 0.55 of the loop's own time: no
fused update took longer in our measurements. The lower bound of the gain excludes time in which the thread waits for a
CPU, and it decides the severity. With fewer than 100 tensors and none of these optimizers, the finding is information
only.

The rule is silent if the first parameter group is fused, and on a GPU unless that group has `foreach=False`.

## When it is wrong
- A custom optimizer may do more than update parameters: averages, a line search, communication.
- On a GPU, only time in which the device idles counts. Without a trace window the rule is not evaluated.
- Sparse gradients, or gradient clipping with `16-mixed`, rule out a fused update. `foreach=True` gains less.

## What to do
Set `fused=True`, or `foreach=True` where there is no fused update. Use fewer, larger tensors. Accumulate gradients.
"""

from lightning_gpuprof.model.finding import Finding, Severity
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import measured
from lightning_gpuprof.model.numbers import millis
from lightning_gpuprof.model.signals import FOREACH, FUSED, can_fuse
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import Advice, BaseRule, Change, Phase, Value, of_each_step, severity, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet

_SLOW: dict[Phase, float] = {"optimizer": 100.0}
_MANY: dict[str, Value] = {"model.parameter_tensors": 2000, "model.parameter_bytes": 64_000, "model.optimizer": "AdamW"}
_NADAM = {**_MANY, "model.optimizer": "NAdam"}


class OptimizerSlow(BaseRule):
    id = "optimizer-slow"
    title = "The optimizer updates tensors one by one"

    least_ratio: float = threshold(0.15, source="heuristic: the update moves less data than the backward pass")
    many_tensors: int = threshold(100, source="heuristic: fewer are information only")

    examples = (
        fires("AdamW loops over 2,000 tensors", "critical", "AdamW(..., fused=True)", times_ms=_SLOW, run=_MANY),
        fires("NAdam has no fused update", "critical", "NAdam(..., foreach=True)", times_ms=_SLOW, run=_NADAM),
        fires(
            "it is a custom one", "critical", "whether Lion", times_ms=_SLOW, run={**_MANY, "model.optimizer": "Lion"}
        ),
        fires(
            "Adam loops over 24 large tensors, faster than 5 GB/s",
            "critical",
            "Adam(..., fused=True)",
            times_ms=_SLOW,
            run={"model.optimizer": "Adam", "model.parameter_tensors": 24, "model.parameter_bytes": 80_000_000},
        ),
        quiet("the update is short", run=_MANY),
        looks_alike("a fused update moves much data", times_ms=_SLOW, run={**_MANY, "model.optimizer_fused": True}),
        not_evaluated("the tensors were not counted", "parameter tensors", times_ms=_SLOW),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        step_ms, update = metrics.step_ms, measured(metrics.optimizer_update)
        if update.lower_ratio < self.least_ratio:
            return None
        fused = measured(update.fused)
        if fused is None or not fused.saved.certain.is_worth():
            return None
        tensors, cost = fused.tensors, fused.saved
        kind = str(metrics.condition("model.optimizer") or "the optimizer")
        foreach = metrics.condition("model.optimizer_foreach")
        level: Severity = "info"
        if tensors >= self.many_tensors or fused.is_known:
            level = severity(min(1.0, cost.lower_ratio / update.running_ratio), cost.steps)
        return self.finding(
            severity=level,
            subject=kind,
            summary=f"{kind} takes {of_each_step(update.ms, step_ms)} to update {tensors:,} parameter "
            "tensors one by one.",
            advice=_advice(metrics, kind, tensors, foreach),
            evidence=(
                self.evidence("least_ratio", update.ms / step_ms, "optimizer, share of the step"),
                self.evidence("many_tensors", tensors, "parameter tensors"),
                self.fact("foreach", str(foreach)),
                self.fact("fused update (estimate)", fused.ms, "ms"),
            ),
            cost=cost,
            leaves=f"the {'fused' if can_fuse(metrics) else 'joint'} update, estimated at {millis(fused.ms)} per step",
            confidence=0.85 if kind in FUSED else 0.6,
            explains=claims.OPTIMIZER,
        )


def _advice(metrics: Metrics, kind: str, tensors: float, foreach: Value) -> Advice:
    name = "fused" if can_fuse(metrics) else "foreach"
    if not can_fuse(metrics) and kind not in FUSED | FOREACH:
        return (
            f"Check whether {kind} can update its {tensors:,} tensors together: torch._foreach_* operations, or "
            "torch.compile(optimizer.step). To run it less often: Trainer(..., accumulate_grad_batches=...).",
            None,
        )
    why = " (with gradient clipping in 16-mixed it cannot be fused)" if name == "foreach" and kind in FUSED else ""
    before: dict[str, Value] = {"foreach": foreach} if name == "foreach" and foreach is not None else {}
    return (
        f"Update all tensors together{why}: torch.optim.{kind}(..., {name}=True) in configure_optimizers.",
        Change(call=f"torch.optim.{kind}", arguments={name: True}, before=before, place="in configure_optimizers"),
    )
