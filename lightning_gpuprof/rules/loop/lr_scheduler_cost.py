"""Stepping the learning rate scheduler takes a noticeable part of the steps.

## What it means
With `"interval": "step"` Lightning steps the scheduler after each optimizer step. A scheduler computes one number per
parameter group: it is slow with many groups, or if `lr_scheduler_step` or a `LambdaLR` does more.

## How it is measured
The action `lr_scheduler_step` as a share of the steady steps: the lower bound of its median, or, if it happens every
few steps, its part of the total without outliers. The gain is all of it. On a GPU only the time counts in which it
idles, which a trace window shows.

## When it is wrong
- On a GPU without a trace window: not evaluated.
- A scheduler that a module with manual optimization steps itself is part of `forward`.

## What to do
Step it every N steps or once per epoch, merge parameter groups, keep other work out of `lr_scheduler_step`.
"""

from lightning_gpuprof.rules.base import Cost, Finding, Metrics, MissingSignal, Share, claims, threshold, usable
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.steps.host_time import PhaseRule

_SLOW = {"metrics": {"lr_scheduler": Share(median_ratio=0.2, lower_ratio=0.196, median_ms=10.0, total_ratio=0.2)}}


class LrSchedulerCost(PhaseRule):
    id = "lr-scheduler-cost"
    phase = "optimizer"
    needs_window = True
    title = "The LR scheduler slows down the steps"

    least_ratio: float = threshold(0.05, source="heuristic (TraceML: unexplained time above 10 %)")

    examples = (
        fires(
            "the scheduler takes 10 of 50 ms", "warning", "10.0 ms of each 50.0 ms step (20 %)", saves_ms=10.0, **_SLOW
        ),
        fires(
            "the scheduler sets 900 rates",
            "warning",
            "900 parameter groups",
            **_SLOW,
            run={"model.optimizer_param_groups": 900},
        ),
        quiet("there is no scheduler"),
        looks_alike("a GPU is busy at that time", **_SLOW, run={"device.type": "cuda"}, idle_ratio=0.02),
        not_evaluated("no window shows the GPU", "no trace window", **_SLOW, run={"device.type": "cuda"}),
    )

    def part(self, metrics: Metrics) -> Share | None:
        """A part of the optimizer's phase."""
        share = metrics.lr_scheduler
        if share is not None and not usable(share):
            raise MissingSignal("the time of the learning rate scheduler is not a valid number")
        return share

    def judge(self, metrics: Metrics, found: Cost) -> Finding:
        groups = metrics.positive("model.optimizer_param_groups") or 1
        merge = f" Merge those of the {groups:,} parameter groups that have the same settings." if groups > 1 else ""
        return self.finding(
            subject="lr_scheduler_step",
            summary=f"Stepping the learning rate scheduler takes {found}.",
            advice=(
                'Step it once per epoch ("interval": "epoch" in configure_optimizers) or every N steps ("frequency": '
                f"N), and keep other work out of lr_scheduler_step.{merge}"
            ),
            evidence=(
                self.evidence("least_ratio", found.ratio, "scheduler, share of the step"),
                self.fact("scheduler per step", found.ms, "ms"),
            ),
            cost=found,
            confidence=0.85,
            explains=claims.LR_SCHEDULER,
        )
