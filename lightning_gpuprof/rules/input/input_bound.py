"""Every step waits for the next batch: batches arrive more slowly than the model uses them.

## What it means
Before each step, Lightning fetches the next batch. The two most frequent reasons for a slow fetch have rules of their
own, `single-process-loading` and `too-few-workers`. If one of them fires, it carries the gain.

## How it is measured
The rule compares the phase `data_wait`, as a share of the steady, untraced steps, with its threshold: the lower bound
of the median must pass. The severity follows from the same bound minus what any fetch may cost, 1 ms without workers
and 3 ms with them. A wait below that cost must take a tenth of the step, and is information only.

The gain is the wait, or the part of it that the proposed workers remove (see `single-process-loading`). If the workers
use all CPUs, it is what a batch of a quarter of the CPU time would save. On a GPU, the gain is at most the time that
the GPU idles during the fetch, as far as a trace window shows it.

## When it is wrong
- A wait is free while the GPU still works on the previous step. Without a trace window that shows the GPU during a
  fetch, the finding is at most a warning, with a confidence of 0.6.
- An iterable dataset without a length is fetched one batch ahead: the wait belongs to the next batch.
- If the workers are in time but the main thread has no CPU for a tenth of the step, the finding is information only.
- A median does not show rare long fetches (`step-outliers`) or batches that arrive in bursts (`too-few-workers`).

## What to do
Make batches in workers, unless the dataset uses the model that is trained. Or make batches cheaper: decode and resize
once, keep decoded samples in memory, read larger pieces, augment on the device (`on_after_batch_transfer`).
"""

import math

from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.loading import MIN_WAIT_RATIO, SINGLE_GUARD_MS, STREAM_SAMPLER, Loading
from lightning_gpuprof.model.metrics import LoaderFacts
from lightning_gpuprof.model.numbers import counted, cpus, millis, percent
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, Change, Metrics, MissingSignal, measured, of_each_step, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.input.loading import CHEAPER, loader_change, more_workers, wait_severity, why_workers

_NAMED_QUEUE_RATIO = 0.1
"""Waiting for a CPU, of the making of a batch, from which it is worth a word. Heuristic."""

_FEW_TENSORS = 2
"""As many as an input and its target. Heuristic."""

_SLOW = {"times_ms": {"data_wait": 50.0}, "num_workers": 0}
_GPU = {"times_ms": {"data_wait": 50.0}, "run": {"device.type": "cuda"}}
_BUSY_CPUS = {"num_workers": 2, "usable_cpus": 2, "process_cpus": 0.5, "worker_cpus": 1.5}
_FULL = {**_SLOW, **_BUSY_CPUS, "lacks": "num_workers=", "saves_ms": 50.0}
_ONE_CPU = {**_SLOW, "usable_cpus": 1, "process_cpus": 1.0, "run": {"trainer.world_size": 2}}
_OF_MODEL = {**_SLOW, "run": {"loader.dataset_has_model": True}, "lacks": "num_workers"}
_SHORT = {"forward": 3.0, "backward": 2.0, "optimizer": 1.0, "zero_grad": 0.0, "h2d": 0.0}
_FETCH = {**_SHORT, "callbacks": 0.0, "logging": 0.0, "loop": 2.0}
_DEAR = {**_FETCH, "data_wait": 0.95}
_RECEIPT = {"data_wait": 2.5, "forward": 4.0, "backward": 5.0}
_STREAMED = {"loader.sampler": STREAM_SAMPLER}
_STREAM = LoaderFacts(
    kind="Stream", num_workers=None, batch_size=None, pin_memory=None, persistent_workers=None, prefetch_factor=None
)


class InputBound(BaseRule):
    id = "input-bound"
    title = "Steps wait for data"

    least_ratio: float = threshold(MIN_WAIT_RATIO, source="torch-tb-profiler: DataLoader above 5 %")
    least_uncertain_ratio: float = threshold(0.10, source="TraceML; for a wait that may be the price of any fetch")
    least_idle_ratio: float = threshold(0.05, source="heuristic: a wait while the device works is free")
    least_delay_ratio: float = threshold(0.10, source="heuristic: without a CPU, a batch that is ready is not taken")

    examples = (
        fires("batches take 50 of 99 ms", "critical", "50.0 ms of each 99.2 ms step", **_SLOW),
        fires("only 19 steps are steady", "warning", "50.0 ms", **_SLOW, steady=19),
        fires("the loader is not torch's", "critical", "Prefetch", **{**_SLOW, "loader": _STREAM}, saves_ms=50.0),
        fires(
            "workers use all CPUs", "critical", "More than 2 workers would ... 2 CPUs are usable, none free", **_FULL
        ),
        fires(
            "two ranks have a CPU each",
            "critical",
            "Workers would not help: 1 CPU is usable by each rank, none free. With more CPUs: DataLoader(..., num",
            **_ONE_CPU,
        ),
        fires("the dataset uses the model", "critical", "is never updated", **_OF_MODEL),
        fires("workers cost it", "info", "fewer, larger", times_ms=_RECEIPT),
        fires(
            "the batch has few tensors",
            "info",
            "Raise batch_size: the wait",
            times_ms=_RECEIPT,
            run={"batch.tensors": 2},
        ),
        fires("any fetch costs a tenth", "info", "BatchSampler", times_ms=_DEAR, num_workers=0),
        fires("the dataset is iterable", "info", "yield a batch", times_ms=_DEAR, num_workers=0, run=_STREAMED),
        fires("the GPU idles for a fifth", "critical", "50.0", **_GPU, num_workers=0, idle_ratio=0.201, saves_ms=19.9),
        fires("what the GPU does is not known", "warning", "50.0 ms", **_GPU),
        quiet("the wait is a twentieth and may be the fetch", times_ms={**_FETCH, "data_wait": 0.85}, num_workers=0),
        looks_alike("the GPU is busy at that time", **_GPU, idle_ratio=0.01),
        looks_alike("a callback holds the step", times_ms={"callbacks": 60.0}),
        not_evaluated("nine steps are steady", "9 steady steps were measured, 10 are needed", **_SLOW, steady=9),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        step_ms = metrics.step_ms
        wait = measured(metrics.fetch.making)
        if wait.lower_ratio < self.least_ratio:
            return None
        idle_ratio = None if metrics.is_cpu_only else metrics.fetch.making_idle_ratio
        if idle_ratio is not None and idle_ratio < self.least_idle_ratio:
            return None
        state = metrics.loading if isinstance(metrics.loading, Loading) else None  # else it is not torch's
        certain = max(0.0, wait.lower_ratio - SINGLE_GUARD_MS / step_ms) if state is None else state.certain_ratio
        noise = math.inf if metrics.validity.conditional else metrics.steps.half_interval_ratio or 0.0
        if certain < self.least_ratio and wait.lower_ratio < self.least_uncertain_ratio + noise:
            return None
        bursts = None if state is None else state.bursts
        if bursts is not None:
            if certain < self.least_ratio:
                return None  # that wait is part of the bursts, which rules of the workers report
            wait, step_ms, state, certain = bursts.wait, bursts.period_ms, bursts, bursts.certain_ratio
        waited_ms = metrics.share_of("data_wait").median_ms if state is None else state.waited_ms
        seen = metrics.fetch.is_seen
        if certain < self.least_ratio and metrics.windows and not seen:
            unseen = "no window shows the device during a fetch: trace several steps, TraceConfig(active=3)"
            raise MissingSignal(f"a fetch of {millis(wait.median_ms)} may be normal, and {unseen}")
        saves_ms = (wait.median_ms, wait.lower_ratio * step_ms) if state is None else state.saves_ms
        cost = metrics.cost(*saves_ms, step_ms=step_ms, most_ratio=math.inf if idle_ratio is None else idle_ratio)
        if not cost.is_worth():
            return None
        level = wait_severity((idle_ratio or 1.0) if seen else None, certain, metrics.steps.steady_count)
        delay_ratio = metrics.cpu.run_delay_ratio or 0.0
        lacks_cpu = state is not None and state.made_in_time and delay_ratio >= self.least_delay_ratio
        plan = None if state is None else state.helpful_plan
        change = None if state is None or plan is None else more_workers(metrics, state, plan.num_workers)
        return self.finding(
            severity="info" if lacks_cpu else level,
            subject="DataLoader" if metrics.loader is None else metrics.loader.dataset or metrics.loader.kind,
            summary=f"Waiting for the next batch takes {of_each_step(waited_ms, step_ms)}.",
            advice=_for_a_cpu(delay_ratio) if lacks_cpu else _advice(metrics, state, change, wait_ms=wait.median_ms),
            evidence=(
                self.evidence("least_ratio", wait.median_ratio, "waiting for data, share of the step"),
                self.fact("waiting for data", wait.median_ms, "ms"),
                self.fact("step time", step_ms, "ms"),
                self.fact("num_workers", state.num_workers if state is not None else None),
                self.fact(f"device idle{' during the wait' if seen else ''}, share of the step", idle_ratio, "ratio"),
            ),
            cost=cost,
            confidence=0.5 if certain < MIN_WAIT_RATIO else 0.95 if seen else 0.6,
            explains=claims.WAIT_FOR_BATCHES if bursts is None else claims.OUTLIERS,
            phase="data_wait",
            change=change,
        )


def _for_a_cpu(delay_ratio: float) -> str:
    return (
        "Leave a CPU for the main thread: use fewer torch threads or workers, or stop other programs. Batches are "
        f"ready in time, but the main thread waits for a CPU in {percent(delay_ratio)} of the step."
    )


def _advice(metrics: Metrics, state: Loading | None, change: Change | None, *, wait_ms: float) -> str:
    if state is None:
        return f"Prefetch batches in a background thread or process, or make them cheaper: {CHEAPER}."
    if change is not None:
        return f"Load batches in worker processes: {change.added[0]}. {why_workers(metrics, state, change)}"
    if state.num_workers and (state.made_in_time or state.certain_ratio < MIN_WAIT_RATIO):
        return _cheaper_receipt(metrics, state, wait_ms)
    if state.num_workers == 0 and wait_ms < SINGLE_GUARD_MS:
        return _whole_batches(state)
    if state.has_model:
        return (
            "Make the batch cheaper: run the model on several samples at a time, under torch.inference_mode(). Workers "
            f"cannot help: {state.dataset} uses the model being trained, and a worker's copy of it is never updated."
        )
    free = (
        "" if state.free_cpus is None else f", {f'{state.free_cpus:.1f}' if state.free_cpus >= 0.05 else 'none'} free"
    )
    are = "is" if state.usable_cpus == 1 else "are"
    usable = f"{cpus(state.usable_cpus)} {are} usable{' by each rank' if metrics.is_distributed else ''}{free}"
    cheaper = f"Make batches cheaper than {millis(state.batch_ms)}{_cpu_share(state)}: {CHEAPER}."
    if state.num_workers:
        return f"{cheaper} More than {counted(state.num_workers, 'worker')} would not help: {usable}."
    with_cpus = loader_change(metrics, state.recommended_workers).added[0]
    return f"{cheaper} Workers would not help: {usable}. With more CPUs: {with_cpus}."


def _cheaper_receipt(metrics: Metrics, state: Loading, wait_ms: float) -> str:
    tensors = metrics.condition("batch.tensors")
    fewer = not isinstance(tensors, int) or tensors > _FEW_TENSORS
    if state.certain_ratio >= MIN_WAIT_RATIO:
        what = "Send fewer bytes to the main process, uint8 in place of float32 for example"
    else:
        what = "Raise batch_size"
    what += ", or return fewer, larger tensors from collate_fn" if fewer else ""
    workers = counted(state.num_workers, "worker")
    return f"{what}: the wait of {millis(wait_ms)} may be just the cost of receiving a batch from {workers}."


def _whole_batches(state: Loading) -> str:
    if state.is_stream:
        how = "yield a batch at a time from the dataset: DataLoader(dataset, batch_size=None)"
    else:
        how = (
            "use a dataset that takes a list of indices: DataLoader(dataset, batch_size=None, "
            "sampler=BatchSampler(RandomSampler(dataset), batch_size, drop_last=False))"
        )
    no_workers = "Adding DataLoader workers would not help: their overhead is as large as the saving."
    return f"Fetch whole batches at once: {how}. {no_workers}"


def _cpu_share(state: Loading) -> str:
    if state.cpu_ms is None:
        return ""
    computing = f"up to {percent(min(1.0, state.cpu_ms.most_ms / state.batch_ms))} CPU work"
    queued = min(1.0, state.queued_ms / state.batch_ms)
    return f" ({computing}{'' if queued < _NAMED_QUEUE_RATIO else f', {percent(queued)} waiting for a CPU'})"
