"""Ranks exchange logged values in every step.

## What it means
`self.log("loss", loss, sync_dist=True)` in `training_step` reduces the value over all ranks at once, in each step and
for each value on its own: a collective of one number, which takes as long as the network's latency, and as long as the
latest rank. With `on_step=True`, which is the default there, a value of every step is exchanged even if it is written
every 50 steps.

## How it is measured
Lightning says which values are exchanged in the steps; calls of `self.log` are timed in each step. What calls take
without an exchange (0.05 to 0.2 ms each) is taken off. On a GPU only the time counts in which it idles.

## When it is wrong
- A rank that is late makes the others wait here instead of in the backward: see `straggler-rank`.
- A value that has to be the same on all ranks in each step, as for a scheduler or early stopping on it.

## What to do
Log it of the epoch only: `sync_dist=True, on_step=False, on_epoch=True` exchanges it once per epoch. Or leave
`sync_dist` out: rank 0 then logs its own value of each step. For a metric of torchmetrics it is not needed at all.
"""

from lightning_gpuprof.model.signals import step_idle_ratio
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, Change, Finding, Metrics, Share, counted, listed, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet

_RANKS = {"trainer.world_size": 2}
_SYNCED = {**_RANKS, "trainer.synced_values": "loss, accuracy"}


def _calls(ms: float) -> dict[str, Share]:
    """Calls of ``self.log`` in steps of 50 ms."""
    return {"log_calls": Share(median_ratio=ms / 50, lower_ratio=ms / 50, median_ms=ms, total_ratio=ms / 50)}


class LogSyncDist(BaseRule):
    id = "log-sync-dist"
    title = "Ranks exchange logged values each step"
    needs = "ranks"
    specialises = ("logging-overhead",)

    least_ratio: float = threshold(0.03, source="the least worthwhile gain")
    per_call_ms: float = threshold(0.2, source="measured: self.log without an exchange takes 0.05 to 0.2 ms")

    examples = (
        fires(
            "two values take 10 of 50 ms",
            "warning",
            "self.log takes 10.0 ms of each 50.0 ms step ... exchange 2 values ... on_step=False, on_epoch=True",
            saves_ms=9.6,
            run=_SYNCED,
            metrics=_calls(10.0),
        ),
        quiet("they take 1 ms", run=_SYNCED, metrics=_calls(1.0)),
        quiet("nothing is logged in the steps", run=_SYNCED, metrics={"log_calls": None}),
        looks_alike("calls take as long without an exchange", run=_RANKS, metrics=_calls(10.0)),
        not_evaluated("four steps are steady", "4 steady steps", steady=4, run=_SYNCED, metrics=_calls(10.0)),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        values = str(metrics.condition("trainer.synced_values") or "").split(", ")
        if metrics.log_calls is None or not values[0]:
            return None
        whole = metrics.cost_of(metrics.log_calls)
        left_ms = self.per_call_ms * len(values)
        cost = metrics.cost(
            max(0.0, whole.ms - left_ms),
            max(0.0, whole.lower_ms - left_ms),
            most_ratio=step_idle_ratio(metrics),
        )
        if not cost.is_worth(self.least_ratio):
            return None
        return self.finding(
            subject=values[0],
            summary=f"self.log takes {whole}, as ranks exchange {counted(len(values), 'value')} in every step.",
            advice=f"Exchange {listed(values[:3])} once per epoch: self.log(..., sync_dist=True, on_step=False, "
            "on_epoch=True). Or leave sync_dist out: rank 0 then logs its own value.",
            change=Change(
                remove=("self.log(..., sync_dist=True)",),
                add=("self.log(..., sync_dist=True, on_step=False, on_epoch=True)",),
            ),
            evidence=(
                self.evidence("least_ratio", cost.ratio, "exchange of logged values, share of the step"),
                self.fact("calls of self.log per step", whole.ms, "ms"),
                self.fact("step time", whole.step_ms, "ms"),
            ),
            cost=cost,
            confidence=0.8 if metrics.is_cpu_only else 0.6,
            explains=claims.LOGGING,
        )
