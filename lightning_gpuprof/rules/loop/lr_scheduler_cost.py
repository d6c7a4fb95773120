"""Finds that stepping the learning rate scheduler takes a noticeable part of the steps."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    condition,
    ordinary_ratio,
    steady_period_ms,
    threshold,
    usable,
)
from lightning_gpuprof.rules.steps.host_time import counted_time
from lightning_gpuprof.rules.wording import millis, percent


@dataclass(frozen=True, kw_only=True)
class LrSchedulerCost(BaseRule):
    """Stepping the learning rate scheduler takes a noticeable part of the steps.

    ## What it means

    With `"interval": "step"` Lightning steps the scheduler after each optimizer step, through the module's hook
    `lr_scheduler_step`. A scheduler computes one number per parameter group: it is slow if there are very many groups,
    or if the hook or a `LambdaLR` does something else.

    ## How it is measured

    The time of the action `lr_scheduler_step`, a part of the phase `optimizer`, as a share of the period of steady
    steps: the lower bound of its median, or, if it happens every few steps only, its part of the total time without
    the excess of outlying steps. The gain is all of it.

    ## When it is wrong

    - On a device only the time counts in which the device is idle, which a trace window tells: not evaluated without
      one.
    - A scheduler that a module with manual optimization steps itself is part of `forward`.

    ## What to do

    Step it every N steps or once per epoch, merge parameter groups that have the same settings, keep work out of
    `lr_scheduler_step`.

    ## Example

    "Step the scheduler once per epoch: it takes 2.1 ms of a step of 6.0 ms."
    """

    id = "lr-scheduler-cost"
    title = "The learning rate scheduler slows down the steps"

    least_ratio: float = threshold(0.05, source="catalogue (TraceML: unexplained time above 10 %)")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the scheduler's part of the steps."""
        period_ms = steady_period_ms(metrics)
        share = metrics.lr_scheduler
        if share is None:
            return None
        if not usable(share):
            raise MissingSignal("the time of the learning rate scheduler is no possible number")
        found_ratio = ordinary_ratio(metrics, share, "optimizer")
        if found_ratio < self.least_ratio:
            return None
        taken_ms = max(found_ratio, share.median_ratio) * period_ms
        time = counted_time(metrics, period_ms, ratio=found_ratio, taken_ms=taken_ms)
        if not time.is_worth(self.least_ratio):
            return None
        ratio = time.recoverable_ms / period_ms
        return self.finding(
            severity=time.severity(metrics.steps.steady_count),
            subject="lr_scheduler_step",
            summary=(
                f"Stepping the learning rate scheduler takes {millis(time.recoverable_ms)} of each {millis(period_ms)} "
                f"step: {percent(ratio)}."
            ),
            advice=_advice(metrics),
            evidence=(
                self.evidence("least_ratio", ratio, "scheduler, share of the step"),
                Evidence(name="scheduler per step", value=time.recoverable_ms, unit="ms"),
            ),
            gain=time.gain,
            confidence=0.85,
            explains=claims.LR_SCHEDULER,
        )


def _advice(metrics: Metrics) -> str:
    groups = condition(metrics, "model.optimizer_param_groups")
    many = ""
    if isinstance(groups, int) and groups > 1:
        many = f" Merge those of the {groups:,} parameter groups that have the same settings."
    return (
        'Step it once per epoch ("interval": "epoch" in configure_optimizers) or every N steps ("frequency": N), and '
        f"keep other work out of lr_scheduler_step.{many}"
    )
