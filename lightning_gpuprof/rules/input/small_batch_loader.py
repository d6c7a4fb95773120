"""Finds that the loader hands over single samples, and that the handing over costs a noticeable part of the step."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.finding import Evidence, Finding, Severity
from lightning_gpuprof.model.loading import LEAST_WAIT_RATIO, RECEIVE_GUARD_MS, Loading
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import measured
from lightning_gpuprof.model.numbers import millis
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    at_least,
    condition,
    gain,
    threshold,
    worthwhile,
)
from lightning_gpuprof.rules.input.loading import wait_severity

_PROPOSED = 8
"""Batch size that leaves an eighth of what each fetch costs. Heuristic."""


@dataclass(frozen=True, kw_only=True)
class SmallBatchLoader(BaseRule):
    """batch_size is 1, and fetching each sample on its own costs more than the sample is worth.

    ## What it means

    Each fetch pays for the sampler, collation and, with workers, for a message and shared memory. With one sample per
    batch every sample pays it in full.

    ## How it is measured

    The configured batch_size is 1 and the lower bound of the fetch's share of the step passes 5 %. What the sample
    itself needs is not counted: without workers the measured time of its item is taken off the fetch; with workers
    the rule speaks only if they have batches ready (verdict of the input pipeline `compute` or `transfer`), the fetch
    takes at most the 3 ms that taking a batch from a worker may cost, and the batch is smaller than 1 MB: then the wait
    is the price of the fetch. With batches of 8, an eighth of it is left per sample: R is seven eighths, and on a GPU
    no more than the device idles; the rule is silent if that is below 5 % of the step.

    ## When it is wrong

    - A larger batch changes the training: learning rate and number of optimizer steps go with it. Where gradients are
      accumulated, the factor can move from there into the batch.
    - Samples of different shapes cannot be stacked without padding.
    - The step itself has fixed costs, too, which larger batches share: they are not counted here.
    - It is at most a warning: the choice may be intended.

    ## What to do

    Raise `batch_size`; or keep the batches of the model and fetch several at a time: a dataset with `__getitems__`, or
    `batch_size=None` with samples that are batches already.

    ## Example

    Tensors of 128 bytes from two workers, steps of 1.2 ms: "Each sample is fetched on its own (batch_size is 1): 29 %
    (at least 27 %) of the step, 0.350 ms of 1.20 ms."
    """

    id = "small-batch-loader"
    title = "Each sample is fetched on its own"
    specialises = ("input-bound",)

    least_ratio: float = threshold(LEAST_WAIT_RATIO, source="torch-tb-profiler: DataLoader above 5 %")
    most_bytes: float = threshold(1e6, source="heuristic: copying more takes longer than the message")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge loaders of single samples."""
        if metrics.loader is not None and metrics.loader.batch_size is not None and metrics.loader.batch_size != 1:
            return None
        state = measured(metrics.loading)
        if metrics.loader is None or metrics.loader.batch_size is None:
            return None  # the dataset makes its batches itself
        if state.wait.lower_ratio < self.least_ratio or state.is_free:
            return None
        price_ms = _price_ms(metrics, state, most_bytes=self.most_bytes)
        recoverable_ms = min(price_ms * (1 - 1 / _PROPOSED), state.idle_ms)
        if not worthwhile(recoverable_ms, state.period_ms):
            return None
        ratio = price_ms / state.period_ms
        certain = state.wait.lower_ratio * price_ms / state.wait.median_ms
        level = wait_severity(state.idle_ratio, certain, metrics.steps.steady_count)
        capped: Severity = "warning" if level == "critical" else level
        advice, change = _advice(metrics, price_ms=price_ms)
        return self.finding(
            severity=capped,
            subject=state.dataset or "DataLoader",
            summary=(
                f"Fetching a single sample takes {millis(state.wait.median_ms)} of each {millis(state.period_ms)} "
                f"step: {at_least(state.wait)}. The fetch itself costs {millis(price_ms)}, whatever it brings."
            ),
            advice=advice,
            change=change,
            evidence=(
                Evidence(name="batch_size", value=1),
                self.evidence("least_ratio", state.wait.median_ratio, "waiting for data, share of the step"),
                Evidence(name="cost of the fetch, share of the step", value=ratio, unit="ratio"),
                Evidence(name="num_workers", value=state.num_workers),
            ),
            gain=gain(
                recoverable_ms, recoverable_ms * state.wait.lower_ratio / state.wait.median_ratio, state.period_ms
            ),
            confidence=0.6,
            explains=claims.WAIT_FOR_BATCHES,
        )


def _price_ms(metrics: Metrics, state: Loading, *, most_bytes: float) -> float:
    """What the fetch costs without the sample; 0 where the wait is for the sample."""
    if state.made is None or metrics.input is None:
        raise MissingSignal("the making of batches was not measured from inside")
    size = condition(metrics, "batch.bytes")
    if isinstance(size, (int, float)) and size > most_bytes:
        return 0.0
    if state.num_workers:
        late = metrics.input.verdict == "processing" or state.wait.median_ms > RECEIVE_GUARD_MS
        return 0.0 if late else state.wait.median_ms
    return max(0.0, state.wait.median_ms - (state.made.items_ms or 0.0))


def _advice(metrics: Metrics, *, price_ms: float) -> tuple[str, Change]:
    accumulated = condition(metrics, "trainer.accumulate_grad_batches")
    moves = isinstance(accumulated, int) and accumulated > 1
    size = accumulated if isinstance(accumulated, int) and moves else _PROPOSED
    change = Change(call="DataLoader", arguments={"batch_size": size}, before={"batch_size": 1})
    rest = (
        f"With accumulate_grad_batches=1 instead of {accumulated} the optimizer sees the same."
        if moves
        else "Adapt the learning rate to it."
    )
    return (
        f"Fetch several samples at a time: {change.added[0]}. {size} samples then share the cost, "
        f"{millis(price_ms / size)} each. {rest}"
    ), change
