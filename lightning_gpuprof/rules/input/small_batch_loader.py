"""batch_size is 1, and each fetch costs more than loading its one sample.

## What it means
Each fetch pays for the sampler, collation and, with workers, for a message and shared memory. With one sample per batch
every sample pays it in full.

## How it is measured
batch_size is 1 and the lower bound of the fetch's share of the step passes 5 %. What the sample itself needs is not
counted: without workers the time of its item is taken off; with workers the rule speaks only if they have batches ready
(verdict of the input pipeline `compute` or `transfer`), the fetch takes at most 3 ms, and the batch is smaller than 1
MB. With batches of 8, an eighth of the cost is left per sample: the gain is at most seven eighths, and on a GPU no more
than the device idles; below 5 % of the step the rule is silent.

## When it is wrong
- A larger batch changes the training: learning rate and number of optimizer steps go with it. Where gradients are
  accumulated, the factor can move from there into the batch. As it may be intended, it is at most a warning.
- Samples of different shapes cannot be stacked without padding.
- The step itself has fixed costs, too, which larger batches share: they are not counted here.

## What to do
Raise `batch_size`; or keep the batches of the model and fetch several at a time: a dataset with `__getitems__`, or
`batch_size=None` with samples that are batches already.
"""

from lightning_gpuprof.model.finding import at_most_warning
from lightning_gpuprof.model.loading import MIN_WAIT_RATIO
from lightning_gpuprof.model.missing import MissingSignal, measured
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import Advice, BaseRule, Finding, Metrics, millis, of_each_step, setting, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.input.loading import wait_severity

PROPOSED = 8
"""Batch size that leaves an eighth of what each fetch costs. Heuristic."""

_SHORT_MS = {**dict.fromkeys(("zero_grad", "h2d", "callbacks", "logging"), 0.02), "loop": 0.22}
_SHORT_MS |= {"forward": 0.3, "backward": 0.3, "optimizer": 0.1}


def _fetch(wait_ms: float) -> dict[str, object]:
    compute_ms = {**_SHORT_MS, "data_wait": wait_ms}
    return {"batch_size": 1, "compute_ms": compute_ms, "items_ms": 0.02, "collate_ms": 0.01, "verdict": "transfer"}


_ONE = _fetch(0.5)
_ALONE = {**_ONE, "workers": 0, "verdict": "processing"}
_GPU = {"run": {"device.type": "cuda"}}


class SmallBatchLoader(BaseRule):
    id = "small-batch-loader"
    title = "Each sample is fetched on its own"
    specialises = ("input-bound",)

    least_ratio: float = threshold(MIN_WAIT_RATIO, source="torch-tb-profiler: DataLoader above 5 %")
    most_bytes: float = threshold(1e6, source="heuristic: copying more takes longer than the message")

    examples = (
        fires(
            "the fetch takes 0.5 of 1.5 ms",
            "warning",
            "batch_size=8). Then 8 ... 0.0625 ms each",
            saves_ms=0.4375,
            **_ONE,
        ),
        fires("gradients add up", "warning", "=1 instead of 4", **_ONE, run={"trainer.accumulate_grad_batches": 4}),
        fires("a sample takes 0.05 ms of it", "warning", "costs 0.45", saves_ms=0.394, **{**_ALONE, "items_ms": 0.05}),
        fires("the GPU idles for 0.29 ms", "warning", "=8", saves_ms=0.29, **_ONE, **_GPU, device_idle=0.19333),
        fires("seven eighths of the fetch are 0.21 ms", "warning", "batch_size=8", **_fetch(0.24)),
        quiet("seven eighths are 0.19 ms", **_fetch(0.22)),
        quiet("a batch has two samples", **{**_ONE, "batch_size": 2}),
        quiet("the dataset makes the batches", **{**_ONE, "batch_size": None}),
        quiet("steps are long", batch_size=1),
        quiet("the GPU is busy at that time", **_ONE, **_GPU, device_idle=0.0),
        looks_alike("the sample takes the time", **{**_ALONE, "items_ms": 0.45}),
        looks_alike("the workers are behind", **{**_fetch(2.0), "verdict": "processing"}),
        looks_alike("the fetch takes 3.1 ms", **_fetch(3.1)),
        looks_alike("the batch has 2 MB", **_ONE, run={"batch.bytes": 2_000_000}),
        not_evaluated("workers were not measured", "not measured from inside", **_ONE, measured=False),
        not_evaluated("the loader is not torch's", "not a torch DataLoader", no_loader=True),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        if metrics.batch_size not in (None, 1):
            return None
        state = measured(metrics.loading)
        if metrics.batch_size is None:
            return None  # the dataset makes its batches itself
        if state.wait.lower_ratio < self.least_ratio or state.is_free:
            return None
        price_ms, size = state.fetch_cost_ms, metrics.number("batch.bytes") or 0.0
        if price_ms is None:
            raise MissingSignal("batch loading was not measured from inside")
        if size > self.most_bytes:
            return None
        saved_ms = min(price_ms * (1 - 1 / PROPOSED), state.idle_ms)
        certain_ms = saved_ms * state.wait.lower_ratio / state.wait.median_ratio
        cost = metrics.cost(saved_ms, certain_ms, step_ms=state.period_ms)
        if not cost.is_worth():
            return None
        certain = state.wait.lower_ratio * price_ms / state.wait.median_ms
        return self.finding(
            severity=at_most_warning(wait_severity(state.idle_ratio, certain, metrics.steps.steady_count)),
            subject=state.dataset or "DataLoader",
            summary=f"Fetching a single sample takes {of_each_step(state.wait.median_ms, state.period_ms)}. Each fetch "
            f"costs {millis(price_ms)}, however many samples it returns.",
            advice=_advice(metrics, price_ms=price_ms),
            evidence=(
                self.fact("batch_size", 1),
                self.evidence("least_ratio", state.wait.median_ratio, "waiting for data, share of the step"),
                self.fact("cost of the fetch, share of the step", price_ms / state.period_ms, "ratio"),
                self.fact("num_workers", state.num_workers),
            ),
            cost=cost,
            confidence=0.6,
            explains=claims.WAIT_FOR_BATCHES,
        )


def _advice(metrics: Metrics, *, price_ms: float) -> Advice:
    accumulated = metrics.positive("trainer.accumulate_grad_batches") or 1
    size, rest = PROPOSED, "Adjust the learning rate to the new batch size."
    if accumulated > 1:
        size = accumulated
        rest = f"With accumulate_grad_batches=1 instead of {accumulated} the optimizer sees the same batch."
    change = setting("DataLoader", batch_size=(1, size))
    shared = f"Then {size} samples share the cost: {millis(price_ms / size)} each."
    return f"Fetch several samples at a time: {change.added[0]}. {shared} {rest}", change
