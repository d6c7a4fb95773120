"""Metrics update twice in every step: once for the metric of all batches, once more for that of this batch alone.

## What it means
`self.accuracy(preds, y)` calls the `forward` of a metric of torchmetrics. Without `full_state_update = False` in its
class, which is the default of metrics of your own, it updates the metric, resets a copy, updates that, and computes the
value of this batch.

## How it is measured
The share of the steps of a trace window that the host spends in calls of such metrics, by the modules that the window
names; of several windows the least. Half of it is the gain: one of two updates.

## When it is wrong
- On a GPU, the host may run ahead of the device meanwhile: only as much is gained as the device idles.
- A metric whose update depends on its whole state needs both updates if the value of each batch is wanted.

## What to do
Set `full_state_update = False` in the metric's class if its states are sums or lists:
`torchmetrics.utilities.check_forward_full_state_property` tells. Or update only, `self.accuracy.update(preds, y)`, and
log the metric itself with `on_step=False, on_epoch=True`: Lightning computes it when the epoch ends. In a
`MetricCollection`, update the collection.
"""

from lightning_gpuprof.model.signals import step_idle_ratio
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, Change, Finding, Metrics, listed, measured, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_applicable, not_evaluated, quiet

_ONE_OF_TWO = 0.5
_GPU = {"device.type": "cuda"}


class MetricComputeEachStep(BaseRule):
    id = "metric-compute-each-step"
    title = "Metrics update twice in every step"

    least_ratio: float = threshold(0.03, source="the least worthwhile gain")

    examples = (
        fires(
            "its calls take 10 of 50 ms",
            "warning",
            "Calls of train_f1 take 10.0 ms of each 50.0 ms step ... Set full_state_update = False in the class",
            saves_ms=5.0,
            metric_calls={"ms": 10.0},
        ),
        fires("the GPU idles for 20 %", "warning", "Set", metric_calls={"ms": 10.0}, idle_ratio=0.2, run=_GPU),
        quiet("the GPU is busy", metric_calls={"ms": 10.0}, idle_ratio=0.02, run=_GPU),
        quiet("its calls take 2 ms", metric_calls={"ms": 2.0}),
        looks_alike("it is only updated", metric_calls={"ms": 0.0}),
        not_evaluated("no window has modules", "no trace window", metric_calls={"ms": None}),
        not_applicable("there is none", "no metric that updates twice"),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        calls = measured(metrics.metric_calls)
        whole_ms = calls.ratio * metrics.step_ms
        whole = metrics.cost(whole_ms, whole_ms, most_ratio=step_idle_ratio(metrics))
        cost = whole.part(_ONE_OF_TWO)
        if not calls.names or not cost.is_worth(self.least_ratio):
            return None
        first, names = calls.names[0], listed(list(calls.names[:3]))
        change = Change(add=("full_state_update = False",), place=f"in the class of {first}")
        return self.finding(
            subject=first,
            summary=f"Calls of {names} take {whole}: each updates twice.",
            advice=f"Set full_state_update = False in the class of {first} if its states are sums or lists. Calls then "
            "update once. Or call update() only and log the metric itself, with on_step=False and on_epoch=True.",
            change=change,
            evidence=(
                self.evidence("least_ratio", cost.ratio, "one of two updates, share of the step"),
                self.fact("calls per step", whole.ms, "ms"),
                self.fact("step time", whole.step_ms, "ms"),
            ),
            cost=cost,
            leaves=f"{names} updated once",
            confidence=0.8 if metrics.is_cpu_only else 0.6,
            explains=claims.METRICS,
        )
