"""Workers are fast enough on average, but some samples take so long that the queue runs empty.

## What it means
A batch is as slow as its slowest sample, and batches come in order. While one worker is held up, the others fill the
queue as far as `prefetch_factor` allows, and then wait as well. Ordinary steps find their batch ready; a few wait for
long.

## How it is measured
The excess is the wait of all steps beyond the wait of the median step. Its lower bound counts, from a block bootstrap,
so that a single stall does not pass. Three more conditions must hold: the workers are fast enough on average (else
`too-few-workers` or `loader-cpu-bound` fires), the slowest sample takes longer than a step, and no more is lost than
batches take to make.

The proposed prefetch_factor is (S / C + 1) / n, rounded up. S is the time of the slowest sample with the rest of its
batch, C the step without its wait, n the number of workers. The gain is the excess, spread over all steps. With a
longer queue, a step still takes at least 1 / n of the slowest worker's mean batch, as each worker loads every n-th
batch. If another order of batches would save more than twice as much, that is proposed. On a GPU the gain is at most
the idle time of the mean step, and the rule is silent below 5 %; without a trace window, the finding is at most a
warning.

## When it is wrong
- Workers that wait for a CPU are slow now and then, too. If they do so for 30 % of their time, the rule is silent. If
  other programs use a quarter of the CPUs, the slowest sample must have taken 100 ms, and the finding is information
  only.
- Without workers, each slow sample stops the training itself: see `step-outliers` and `single-process-loading`.
- More batches in the queue cost memory in `/dev/shm`: the number is at most 64 per worker.
- Fewer than 50 comparable steps, or no measurement in the workers: not evaluated.

## What to do
Raise `prefetch_factor`. If the order of batches does not matter, let them come in another one (`in_order=False`, torch
2.6 and later). Find the slow samples (large files, long sequences) and make them as cheap as the others.
"""

import math

from lightning_gpuprof.model.input_pipeline import InputPipeline, InputWorker
from lightning_gpuprof.model.loading import MIN_IDLE_RATIO, Loading
from lightning_gpuprof.model.missing import MissingSignal, measured
from lightning_gpuprof.model.numbers import capital, counted, millis, percent, possible
from lightning_gpuprof.model.worker_time import WorkerTime
from lightning_gpuprof.rules.base import Advice, BaseRule, Finding, Metrics, claims, setting, step_idle_ratio, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.input.loading import wait_severity
from lightning_gpuprof.rules.steps.uneven import UNTIL_FULL

_QUEUED_RATIO = 0.30
"""Share of loading batches in which workers have no CPU, from which that may be why samples are slow. Heuristic."""

_ALIKE = "make slow samples (large files, long sequences) as cheap as the others"

_JITTER = {"burst": (0.3, 0.25), "items_ms": 15.0, "verdict": "compute", "samples_ms": (1.0, 200.0)}
_ANY = {**_JITTER, "run": {"loader.in_order": True}, "saves_ms": 4.15}  # 29 % of a mean step of 10 / 0.7 ms
_NO_ORDER = {"loader.in_order": False}
_GPU = {**_JITTER, "run": {"device.type": "cuda"}}


class InputJitter(BaseRule):
    id = "input-jitter"
    title = "A few slow samples stall whole steps"
    needs = "workers"
    specialises = ("step-outliers",)

    least_ratio: float = threshold(0.05, source="heuristic: the excess is 5 % of the time")
    least_factor: float = threshold(5.0, source="heuristic: five times the usual")
    least_crowded_ms: float = threshold(100.0, source="heuristic: others held samples up for 45 ms")
    least_steps: int = threshold(50, source="heuristic: fewer are an accident")

    examples = (
        fires(
            "one takes 200 ms", "critical", "200 ms, the mean 1.00 ms ... =12). Why 12: 24 ... in_order=False", **_ANY
        ),
        fires(
            "the queue is long",
            "critical",
            "Make slow samples (large files, long sequences) as cheap",
            **_JITTER,
            prefetch_factor=30,
        ),
        fires("the excess is at least 5 %", "info", "of the mean step", **{**_JITTER, "burst": (0.3, 0.061)}),
        fires("samples differ by a factor of 5", "critical", "mean 4.00 ms", **{**_JITTER, "samples_ms": (4.0, 21.0)}),
        fires(
            "one worker has more of the slow ones",
            "warning",
            "prefetch_factor",
            **_JITTER,
            worker_ms=24.0,
            saves_ms=2.79,
        ),
        fires("it has nearly all", "critical", "needs 26.0 ms per batch ... no queue hides", **_ANY, worker_ms=27.0),
        quiet("it has all, and the order is not known", **_JITTER, worker_ms=29.5),
        fires("batches come in any order", "critical", "Queue more", **_JITTER, run=_NO_ORDER, worker_ms=29.5),
        fires("others use the CPUs", "info", "The slowest sample took 200 ms", **_JITTER, others_cpus=1.5),
        fires("the GPU idles", "critical", "prefetch_factor", **_GPU, device_idle=0.3),
        fires("what the GPU does is not known", "warning", "prefetch_factor", **_GPU),
        quiet("the excess may be 4.8 %", **{**_JITTER, "burst": (0.3, 0.058)}),
        quiet("samples differ by less", **{**_JITTER, "samples_ms": (4.0, 19.0)}),
        quiet("there are no workers", **{**_JITTER, "workers": 0}),
        quiet("the GPU is busy at that time", **_GPU, device_idle=-0.4),
        looks_alike("there is a single stall", **{**_JITTER, "burst": (0.3, 0.0)}),
        looks_alike("the workers are behind", **{**_JITTER, "verdict": "processing"}),
        looks_alike("batches take less than the stalls", **{**_JITTER, "items_ms": 2.0}),
        looks_alike("workers wait for a CPU", **_JITTER, each_worker={"cpu": 0.1, "delay": 0.4}, idle_ratio=0.4),
        looks_alike("others slow all samples", **{**_JITTER, "samples_ms": (1.0, 90.0)}, others_cpus=1.5),
        not_evaluated("the bound is not known", "bound of the wait", **{**_JITTER, "burst": (0.3, None)}),
        not_evaluated("workers were not measured", "not measured from inside", **_JITTER, measured=False),
        not_evaluated("samples were not timed", "makes them together", **{**_JITTER, "samples_ms": (1.0, None)}),
        not_evaluated("there are 40 steps", "40 steady steps, 50 are needed", **_JITTER, steady=40),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        state = measured(metrics.loading)
        wait = state.wait
        if not state.num_workers:
            return None
        if wait.total_lower_ratio is None or not possible(wait.total_lower_ratio):
            raise MissingSignal("the bound of the wait of all steps was not computed")
        lower_ratio = min(wait.total_lower_ratio, wait.total_ratio) - wait.median_ratio
        if lower_ratio < self.least_ratio:
            return None
        if metrics.steps.steady_count < self.least_steps:
            raise MissingSignal(f"{metrics.steps.steady_count} steady steps, {self.least_steps} are needed")
        found, slowest = _slowest(metrics)
        if found.verdict == "processing" or state.slowest_batch_ms is None:
            return None
        mean_ms, max_ms = slowest.item_mean_ms or 0.0, slowest.item_max_ms or 0.0
        step_ms, excess_ratio = state.mean_ms, wait.total_ratio - wait.median_ratio
        in_order = metrics.condition("loader.in_order") is True
        in_any_order = in_order and state.one_worker_lags
        most_ms = max(0.0, step_ms - state.batch_ms / state.num_workers) if in_any_order else state.queue_saves_ms
        kept = min(1.0, most_ms / (excess_ratio * step_ms))
        idle_ratio = step_idle_ratio(metrics)
        if idle_ratio is not None and idle_ratio < MIN_IDLE_RATIO:
            return None
        most_ratio = math.inf if idle_ratio is None else idle_ratio
        saves_ms = (kept * ratio * step_ms for ratio in (excess_ratio, lower_ratio))
        cost = metrics.cost(*saves_ms, step_ms=step_ms, most_ratio=most_ratio)
        slow = max_ms >= self.least_factor * mean_ms and max_ms > state.compute_ms
        if not slow or state.batch_ms < cost.ms or not cost.is_worth() or _queued(state):
            return None
        crowded = state.is_crowded
        if crowded and max_ms < self.least_crowded_ms:
            return None
        advice = (
            _any_order(state) if in_any_order else _queue(metrics, state, state.slowest_batch_ms, in_order=in_order)
        )
        return self.finding(
            title="Batches that come in order wait for a few slow samples" if in_any_order else self.title,
            severity="info" if crowded else wait_severity(idle_ratio, kept * lower_ratio, metrics.steps.steady_count),
            subject=state.dataset or "DataLoader",
            summary=f"The slowest sample took {millis(max_ms)}, the mean {millis(mean_ms)}. Waiting for such samples "
            f"takes {percent(excess_ratio)} of the mean step. On average, {counted(state.num_workers, 'worker')} would "
            "be fast enough.",
            advice=advice,
            evidence=(
                self.evidence("least_ratio", excess_ratio, "wait beyond the median step's, share of all steps"),
                self.evidence("least_factor", max_ms, "slowest sample", "ms", limit=self.least_factor * mean_ms),
                self.fact("mean sample", mean_ms, "ms"),
                self.fact("median wait", wait.median_ms, "ms"),
                self.fact("num_workers", state.num_workers),
            ),
            cost=cost,
            leaves="" if advice[1] is None or in_any_order else UNTIL_FULL,
            confidence=0.5 if crowded else 0.8,
            explains=claims.OUTLIERS,
            phase="data_wait",
        )


def _slowest(metrics: Metrics) -> tuple[InputPipeline, InputWorker]:
    found = metrics.input
    if found is None or found.verdict == "not-enough-data":
        raise MissingSignal("batch loading was not measured from inside" if found is None else found.summary)
    known = [w for w in found.workers if w.loader == found.slowest and w.item_max_ms and w.item_mean_ms]
    if not known:
        raise MissingSignal("the time of single samples was not measured: the dataset makes them together")
    return found, max(known, key=lambda w: w.item_max_ms or 0.0)


def _queued(state: Loading) -> bool:
    """Whether samples may be slow because the workers had no CPU."""
    return isinstance(state.worker_time, WorkerTime) and state.worker_time.queued_ratio >= _QUEUED_RATIO


def _any_order(state: Loading) -> Advice:
    change = setting("DataLoader", in_order=(True, False))
    return (
        f"If the order of batches does not matter: {change.added[0]}. One worker needs "
        f"{millis(state.queue_pace_ms * state.num_workers)} per batch on average, which no queue hides. Or {_ALIKE}."
    ), change


def _queue(metrics: Metrics, state: Loading, slowest_ms: float, *, in_order: bool) -> Advice:
    now = 2 if metrics.loader is None else metrics.loader.queued_per_worker
    wanted = state.queue_for(slowest_ms)
    order = " If the order of batches does not matter: DataLoader(..., in_order=False)." if in_order else ""
    if wanted <= now:
        hides = f"prefetch_factor={now} should already hide a batch that takes {millis(slowest_ms)}"
        return f"{capital(_ALIKE)}: {hides}.{order}", None
    change = setting("DataLoader", prefetch_factor=(now, wanted))
    why = f"Why {wanted}: {wanted * state.num_workers} queued batches hide one that takes {millis(slowest_ms)}."
    return f"Queue more batches: {change.added[0]}. {why} Or {_ALIKE}.{order}", change
