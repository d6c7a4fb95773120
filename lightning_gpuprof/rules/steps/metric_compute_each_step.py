"""Metrics of torchmetrics compute the value of each batch, which takes a noticeable part of the step.

## What it means
`self.accuracy(preds, y)` calls the metric's `forward`: it updates the metric, resets a copy, computes the value of this
batch alone, and merges both. A metric with `full_state_update` (the default of your own) even updates twice.
`self.accuracy.update(preds, y)` only updates; Lightning computes the value at the end of the epoch.

## How it is measured
The host's time in calls of the metrics in trace windows, which name the model's modules, without what tracing adds to
all. Of each metric, the fastest window counts. Half of the time of metrics that update twice is the gain; for the
others it is not known how much of it is the update, so that there is none.

## When it is wrong
- The value of each batch is wanted: then the call is right.
- On a GPU, the host may run ahead of the device meanwhile: only as much is gained as the device idles.

## What to do
Update in the step and log the metric itself, with `on_epoch=True`. For a metric of your own whose states are sums,
set `full_state_update = False`: a call then updates once.
"""

from lightning_gpuprof.model.signals import step_idle_ratio
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, Change, Finding, Metrics, listed, measured, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_applicable, not_evaluated, quiet

_TWICE_PART = 0.5
"""Of a call with two updates, one and what is around both go: at least half."""
_TWICE = {"twice": True}
_GPU = {"device.type": "cuda"}


class MetricComputeEachStep(BaseRule):
    id = "metric-compute-each-step"
    title = "Metrics are computed in every step"

    least_ratio: float = threshold(0.03, source="the least worthwhile gain")

    examples = (
        fires(
            "a metric that updates twice takes 10 of 50 ms",
            "warning",
            "Calling metrics takes 10.0 ms of each 50.0 ms step ... Only update train_f1: self.train_f1.update(...)",
            saves_ms=5.0,
            metric_calls={"ms": 10.0, **_TWICE},
        ),
        fires("one that updates once does", "info", "Only update train_f1", saves_ms=0.0, metric_calls={"ms": 10.0}),
        fires(
            "the GPU idles for 4 %",
            "info",
            "Only update",
            metric_calls={"ms": 10.0, **_TWICE},
            idle_ratio=0.04,
            run=_GPU,
        ),
        quiet("calls take 1 ms", metric_calls={"ms": 1.0, **_TWICE}),
        looks_alike("metrics are only updated", metric_calls={"ms": 0.0}),
        not_evaluated("no window has modules", "no trace window", metric_calls={"ms": None}),
        not_applicable("the model has no metric", "no metric of torchmetrics"),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        calls = measured(metrics.metric_calls)
        whole = metrics.cost(calls.ms, calls.ms)
        if not calls.names or whole.ratio < self.least_ratio:
            return None
        gained_ms = _TWICE_PART * calls.twice_ms
        gained = metrics.cost(gained_ms, gained_ms, most_ratio=step_idle_ratio(metrics))
        first = calls.names[0]
        return self.finding(
            severity=gained.severity if gained.is_worth() else "info",
            subject=first,
            summary=f"Calling metrics takes {whole}, as each call also computes the value of the batch.",
            advice=f"Only update {listed(list(calls.names[:3]))}: self.{first}.update(...), then "
            f'self.log("{first}", self.{first}, on_epoch=True). Lightning computes it when the epoch ends.',
            change=Change(remove=(f"self.{first}(...)",), add=(f"self.{first}.update(...)",)),
            evidence=(
                self.evidence("least_ratio", whole.ratio, "calls of metrics, share of the step"),
                self.fact("of metrics that update twice", calls.twice_ms, "ms"),
                self.fact("step time", whole.step_ms, "ms"),
            ),
            cost=gained if gained.is_worth() else None,
            leaves="the update of each batch" if gained.is_worth() else "",
            confidence=0.8 if metrics.is_cpu_only else 0.6,
            explains=claims.METRICS,
        )
