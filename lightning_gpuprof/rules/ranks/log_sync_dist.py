"""Ranks exchange logged values in every step.

## What it means
`self.log("loss", loss, sync_dist=True)` in `training_step` reduces the value over all ranks at once, in each step, and
each value on its own: a barrier and a collective of one number. On GPUs the host waits there until the device has
finished its work. With `on_step=True`, the default there, values are exchanged in every step, even if they are written
every 50 steps.

## How it is measured
Lightning says how many values are logged and exchanged in the steps; calls of `self.log` are timed in each step. What
the rank with the shortest logging takes counts, since the others also wait for it there. All calls count as equally
long, although those without an exchange are shorter: a lower bound. What a call takes without an exchange (0.05 to 0.2
ms) is taken off. On a GPU, only its idle time counts. Without the other ranks' files, it is information only.

## When it is wrong
- The value is needed on all ranks in each step, for example by a scheduler.
- With a late rank, the others wait in the backward instead once nothing is exchanged here: see `straggler-rank`.

## What to do
Exchange the value once per epoch: `sync_dist=True, on_step=False, on_epoch=True`. Or leave `sync_dist` out: rank 0 then
logs its own value. Metrics of torchmetrics do not need it.
"""

from typing import Any

from lightning_gpuprof.model.signals import step_idle_ratio
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    Change,
    Finding,
    Metrics,
    MissingSignal,
    NotApplicable,
    Share,
    counted,
    threshold,
)
from lightning_gpuprof.rules.examples import fires, looks_alike, not_applicable, not_evaluated, quiet


def _logs(ms: float, *of_ranks: float, synced: int = 2, logged: int = 2) -> dict[str, Any]:
    """Calls of ``self.log`` in steps of 50 ms, and what all logging takes on each rank."""
    calls = Share(median_ratio=ms / 50, lower_ratio=ms / 50, median_ms=ms, total_ratio=ms / 50)
    return {
        "run": {"trainer.world_size": 2, "trainer.synced_values": synced, "trainer.logged_values": logged},
        "metrics": {"log_calls": calls},
        **({"ranks": {"excess_ms": 0.0, "ranks": 2, "logging_ms": of_ranks}} if of_ranks else {}),
    }


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
            **_logs(10.0, 10.5, 10.2),
        ),
        fires("nothing is known of the other ranks", "info", "exchange 2 values", **_logs(10.0)),
        quiet("they take 1 ms", **_logs(1.0, 1.0, 1.0)),
        looks_alike("one rank waits for a late one", **_logs(10.0, 10.5, 1.0)),
        looks_alike("40 others are logged", **_logs(20.0, 20.0, 20.0, synced=1, logged=41)),
        not_evaluated("four steps are steady", "4 steady steps", steady=4, **_logs(10.0, 10.0, 10.0)),
        not_applicable("nothing is exchanged", "exchange no logged values", **_logs(10.0, synced=0)),
        not_applicable("there is one rank", "one rank", run={"trainer.world_size": 1, "trainer.synced_values": 2}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        if (metrics.positive("trainer.world_size") or 1) < 2:
            raise NotApplicable("there is one rank")
        synced = metrics.positive("trainer.synced_values")
        if synced is None:
            raise NotApplicable("ranks exchange no logged values in the steps")
        if metrics.log_calls is None:
            return None
        logged = metrics.positive("trainer.logged_values")
        if logged is None:
            raise MissingSignal("it is not known how many values are logged")
        whole = metrics.cost_of(metrics.log_calls)
        least_ms, part, left_ms = metrics.least_logging_ms, synced / max(synced, logged), self.per_call_ms * synced
        most_ms = whole.ms if least_ms is None else least_ms
        cost = metrics.cost(
            max(0.0, part * min(whole.ms, most_ms) - left_ms),
            max(0.0, part * min(whole.lower_ms, most_ms) - left_ms),
            most_ratio=step_idle_ratio(metrics),
        )
        if not cost.is_worth(self.least_ratio):
            return None
        if least_ms is None:
            cost = cost.uncertain
        later = "self.log(..., sync_dist=True, on_step=False, on_epoch=True)"
        return self.finding(
            severity="info" if least_ms is None else cost.severity,
            subject="self.log",
            summary=f"self.log takes {whole}, as ranks exchange {counted(synced, 'value')} in every step.",
            advice=f"Exchange {'it' if synced == 1 else 'them'} once per epoch: {later}. Or leave sync_dist out: rank "
            "0 then logs its own value. Trade-off: each curve has one point per epoch, the mean.",
            change=Change(remove=("self.log(..., sync_dist=True)",), add=(later,)),
            evidence=(
                self.evidence("least_ratio", cost.ratio, "exchange of logged values, share of the step"),
                self.fact("calls of self.log per step", whole.ms, "ms"),
                self.fact("logging of the rank with the least", least_ms, "ms"),
                self.fact("step time", whole.step_ms, "ms"),
            ),
            cost=cost,
            confidence=0.8 if metrics.is_cpu_only else 0.6,
            explains=claims.LOGGING,
        )
