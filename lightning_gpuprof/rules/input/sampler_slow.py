"""The sampler takes a noticeable part of every step to choose the samples of a batch.

## What it means
The sampler runs in the main process, even if workers load the batches: while it sorts, searches or draws in Python,
training waits.

## How it is measured
Each call of torch's iterator for the next indices is timed. The median per batch must pass 5 % of the step. The gain is
that time, at most the wait for data; `single-process-loading` and `input-bound` count the rest only.

## When it is wrong
- On a GPU only the device's idle time during the fetch counts. Without a trace window it is at most a warning.
- Work that a sampler does once per epoch is not in a median: see `epoch-boundary-idle`.
- Workers that are behind are waited for instead: the step gets no faster than they deliver.
- Iterators that are not torch's own, and fewer than 10 batches: not evaluated.

## What to do
Compute the order of the epoch at once, vectorised (`torch.randperm`, `torch.argsort`), and just iterate over it in
`__iter__`; or use `shuffle=True`. More workers do not help.
"""

import math

from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, Finding, Metrics, MissingSignal, of_each_step, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.input.loading import wait_severity

_ORDER = {"order_ms": 9.0, "items_ms": 1.0, "collate_ms": 0.0, "workers": 0}
_ITEMS, _GPU = {**_ORDER, "items_ms": 9.0}, {"run": {"device.type": "cuda"}}


class SamplerSlow(BaseRule):
    id = "sampler-slow"
    title = "The sampler is slow"
    specialises = ("input-bound",)

    least_ratio: float = threshold(0.05, source="torch-tb-profiler: DataLoader above 5 %")

    examples = (
        fires(
            "the sampler takes 9 of 20 ms",
            "critical",
            "takes 9.00 ms of each 20.0 ms step (45 %)",
            saves_ms=9.0,
            **_ORDER,
        ),
        fires("the GPU idles for a fifth", "warning", "randperm", saves_ms=5.6, **_ITEMS, **_GPU, device_idle=0.2),
        quiet("the sampler is quick", **{**_ITEMS, "order_ms": 0.5}),
        looks_alike("the GPU is busy at that time", **_ORDER, **_GPU, device_idle=0.0),
        not_evaluated("the sampler was not timed", "sampler was not measured", **{**_ITEMS, "order_ms": None}),
        not_evaluated("nothing was measured", "sampler was not measured", **_ORDER, measured=False),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        step_ms, wait = metrics.step_ms, metrics.share_of("data_wait")
        if wait.lower_ratio < self.least_ratio:
            return None
        slowest = metrics.fetch.order
        if slowest is None or slowest.order_ms is None:
            raise MissingSignal("the time of the sampler was not measured")
        order_ms, idle_ratio = min(slowest.order_ms, wait.median_ms), metrics.fetch.idle_ratio
        certain_ms, name = min(slowest.order_ms, wait.lower_ratio * step_ms), f"sampler{_named(slowest.order_of)}"
        cost = metrics.cost(order_ms, certain_ms, most_ratio=math.inf if idle_ratio is None else idle_ratio)
        if not cost.is_worth(self.least_ratio):
            return None
        return self.finding(
            severity=wait_severity(idle_ratio, cost.lower_ratio, cost.steps),
            subject=slowest.order_of or "sampler",
            summary=f"The {name} takes {of_each_step(slowest.order_ms, step_ms)}.",
            advice=f"Compute the order once per epoch in the {name}, vectorised with torch.randperm or torch.argsort, "
            "and iterate over that; or use shuffle=True. More workers would not help: the sampler runs in the main "
            "process.",
            evidence=(
                self.evidence("least_ratio", cost.ratio, "sampler, share of the step"),
                self.fact("sampler per batch, median", slowest.order_ms, "ms"),
                self.fact("waiting for data", wait.median_ms, "ms"),
                self.fact("num_workers", slowest.workers),
            ),
            cost=cost,
            confidence=0.95 if idle_ratio is not None else 0.6,
            explains=claims.SAMPLER,
        )


def _named(shown: str) -> str:
    """`` `Choosing` (data.py:20)`` of ``Choosing (data.py:20)``; empty where it is not known."""
    name, _, place = shown.partition(" ")
    return f" `{name}` {place}".rstrip() if name else ""
