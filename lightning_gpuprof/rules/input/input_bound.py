"""Finds that the training thread waits for its batches, whatever the reason."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding, Severity
from lightning_gpuprof.model.loading import LEAST_WAIT_RATIO, SINGLE_GUARD_MS, CpuTime, Loading, WorkerPlan
from lightning_gpuprof.model.metrics import Metrics, Share
from lightning_gpuprof.model.missing import measured
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    at_least,
    gain,
    is_cpu_only,
    steady_period_ms,
    threshold,
    worthwhile,
)
from lightning_gpuprof.rules.input.loading import code_line, cpu_words, sharding_words, wait_severity
from lightning_gpuprof.rules.wording import counted, millis, percent

_NAMED_QUEUE_RATIO = 0.1
"""Waiting for a CPU, of the making of a batch, from which it is worth a word. Heuristic."""


@dataclass(frozen=True, kw_only=True)
class InputBound(BaseRule):
    """Every step waits for the next batch: the data come later than the model could take them.

    ## What it means

    Before a step begins, Lightning fetches the next batch. If the fetch takes a good part of the step, step after
    step, the model could run faster if the data came earlier. `single-process-loading` and `too-few-workers` name the
    two most frequent reasons; where one of them speaks, it carries its gain, and this finding shows the symptom.

    ## How it is measured

    W is the time of the fetch (phase `data_wait`), T the period from one step start to the next, both over steady steps
    that were not traced. The rule speaks when the lower bound of the median of W / T passes the threshold. The severity
    goes by the same bound without what a fetch may cost although nothing is wrong: 1 ms without workers, 3 ms with
    them (taking a small batch from a worker process took 1 to 3 ms on a busy machine with 2 CPUs); a wait that is not
    above that must be a tenth of the step, and is information only.

    The most that can be gained is R = min(W, T - T'). T' is the period that remains with the proposed workers (see
    `single-process-loading`). If workers would not help, the cure is a cheaper batch, and R = W. On a GPU, R is held
    below the time in which the device had no work during the fetch, as far as a trace window has seen that: idle time
    elsewhere in the step is not the fetch's, and what `sampler-slow` gains of it is not counted again. Of a window
    whose fetches lie before all work of the device (one of a single step), only the idle time as a whole is known.

    ## When it is wrong

    - On a GPU, the wait costs nothing while the device still works on the step before. Without a trace window that
      shows the device during a fetch the confidence is 0.6, and it is at most a warning; a wait that may also be the
      price of any fetch is then not judged.
    - An iterable dataset without a length is fetched one batch ahead: the wait belongs to the batch after.
    - Where the workers make their batches in time, but the training thread has no CPU in a tenth of the step or more,
      the wait is for a CPU, too: information only.
    - Rare, very long fetches do not show in a median. `step-outliers` finds those, and the rules of the workers where
      these deliver their batches in bursts; a small wait of all steps beside such bursts is told there.
    - Fewer than 10 steady steps: not evaluated.

    ## What to do

    Make the batch beside the step (workers; not where the dataset uses the model that is trained, as in reinforcement
    learning), or make it cheaper: decode and resize once before training, keep decoded
    samples in memory, use larger reads, move augmentation to the device (`on_after_batch_transfer`).

    ## Example

    A dataset sleeps 2 ms per item, 16 items per batch, no workers; the step itself takes 3 ms:
    "92 % (at least 91 %) of the step is spent waiting for the next batch: 32.3 ms of 35.3 ms."
    """

    id = "input-bound"

    least_ratio: float = threshold(LEAST_WAIT_RATIO, source="torch-tb-profiler: DataLoader above 5 %")
    least_uncertain_ratio: float = threshold(0.10, source="TraceML; for a wait that may be the price of any fetch")
    least_idle_ratio: float = threshold(0.05, source="heuristic: a wait while the device works is free")
    least_delay_ratio: float = threshold(0.10, source="heuristic: without a CPU, a batch that is ready is not taken")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the wait for batches in steady steps."""
        period_ms = steady_period_ms(metrics)
        wait = measured(metrics.fetch.making)
        if wait.lower_ratio < self.least_ratio:
            return None
        idle_ratio = None if is_cpu_only(metrics) else metrics.fetch.making_idle_ratio
        if idle_ratio is not None and idle_ratio < self.least_idle_ratio:
            return None
        state = _known_loading(metrics)
        certain = max(0.0, wait.lower_ratio - SINGLE_GUARD_MS / period_ms) if state is None else state.certain_ratio
        if certain < self.least_ratio and wait.lower_ratio < self.least_uncertain_ratio:
            return None
        if certain < self.least_ratio and state is not None and state.bursts is not None:
            return None  # that wait is part of the bursts, which rules of the workers tell
        seen = metrics.fetch.is_seen
        if certain < self.least_ratio and metrics.windows and not seen:
            raise MissingSignal(
                f"a fetch of {millis(wait.median_ms)} may be the price of any fetch, and what the device does "
                "meanwhile was not seen: trace several steps, TraceConfig(active=3)"
            )
        plan = None if state is None else state.helpful_plan
        recoverable_ms, lower_ms = _recoverable(wait, plan=plan, period_ms=period_ms, idle_ratio=idle_ratio)
        if not worthwhile(recoverable_ms, period_ms):
            return None
        known_ratio = 1.0 if idle_ratio is None and seen else idle_ratio if seen else None
        level: Severity = wait_severity(known_ratio, certain, metrics.steps.steady_count)
        if state is not None and state.made_in_time and (metrics.cpu.run_delay_ratio or 0.0) >= self.least_delay_ratio:
            level = "info"
        evidence = [
            self.evidence("least_ratio", wait.median_ratio, "data_wait share of the step"),
            Evidence(name="data_wait", value=wait.median_ms, unit="ms"),
            Evidence(name="period", value=period_ms, unit="ms"),
        ]
        if state is not None:
            evidence.append(Evidence(name="num_workers", value=state.num_workers))
        if idle_ratio is not None:
            name = "device idle share of the step" + (", during the wait" if seen else "")
            evidence.append(Evidence(name=name, value=idle_ratio, unit="ratio"))
        return self.finding(
            severity=level,
            subject="DataLoader" if metrics.loader is None else metrics.loader.dataset or metrics.loader.kind,
            summary=(
                f"{at_least(wait)} of the step is spent waiting for the next batch: {millis(wait.median_ms)} of "
                f"{millis(period_ms)}."
            ),
            advice=_advice(state, plan, wait=wait, period_ms=period_ms),
            evidence=tuple(evidence),
            gain=gain(recoverable_ms, lower_ms, period_ms),
            confidence=_confidence(certain=certain, seen=seen),
            explains=claims.WAIT_FOR_BATCHES,
        )


def _known_loading(metrics: Metrics) -> Loading | None:
    try:
        return measured(metrics.loading)
    except MissingSignal:  # not a torch DataLoader: the wait is measured all the same
        return None


def _recoverable(
    wait: Share, *, plan: WorkerPlan | None, period_ms: float, idle_ratio: float | None
) -> tuple[float, float]:
    recoverable_ms, lower_ms = wait.median_ms, wait.lower_ratio * period_ms
    if plan is not None:
        recoverable_ms, lower_ms = plan.recoverable_ms, plan.lower_ms
    if idle_ratio is not None:
        recoverable_ms = min(recoverable_ms, idle_ratio * period_ms)
    return recoverable_ms, lower_ms


def _confidence(*, certain: float, seen: bool) -> float:
    if certain < LEAST_WAIT_RATIO:
        return 0.5
    return 0.95 if seen else 0.6


def _advice(state: Loading | None, plan: WorkerPlan | None, *, wait: Share, period_ms: float) -> str:
    target_ms = max(0.0, period_ms - wait.median_ms)
    goal = f"Have a batch ready every {millis(target_ms)}; now one comes every {millis(period_ms)}"
    cheaper = (
        "decode and resize samples once before training, keep decoded samples in memory, move augmentation into "
        "LightningModule.on_after_batch_transfer"
    )
    if state is None:
        return f"{goal}: prefetch batches in a thread or process of the loader, or make them cheaper: {cheaper}."
    if plan is not None:
        return (
            f"{goal}. First make batches beside the step: {code_line(state, plan.num_workers)} instead of num_workers="
            f"{state.num_workers} leaves at best {millis(plan.period_ms)}. Then make them cheaper: {cheaper}."
            f"{sharding_words(state)}"
        )
    if state.num_workers and state.certain_ratio < LEAST_WAIT_RATIO:
        return (
            f"{goal}. A fetch of {millis(wait.median_ms)} with {counted(state.num_workers, 'worker')} can be the price "
            "of taking a batch from a worker: return fewer and larger tensors per batch from collate_fn, or raise "
            "batch_size."
        )
    if state.num_workers == 0 and wait.median_ms < SINGLE_GUARD_MS:
        return (
            f"{goal}. Workers would cost as much: fetch whole batches instead of single samples, with a dataset that "
            "takes a list of indices: DataLoader(dataset, batch_size=None, "
            "sampler=BatchSampler(RandomSampler(dataset), batch_size, drop_last=False))."
        )
    if state.has_model:
        return (
            f"{goal}. {state.dataset} uses the model that is trained, so the workers of a DataLoader cannot make the "
            "batches: their copies of the model do not learn. Make a batch cheaper: run the model on several samples "
            "at a time, in torch.inference_mode() where nothing is learned from it."
        )
    share = "" if state.cpu_ms is None else f" ({_cpu_share(state, state.cpu_ms)})"
    return (
        f"{goal}. {_more_workers(state)} not help by themselves ({cpu_words(state)}): make a batch "
        f"cheaper than {millis(state.batch_ms)}{share}: {cheaper}."
    )


def _cpu_share(state: Loading, cpu_ms: CpuTime) -> str:
    work = f"up to {percent(min(1.0, cpu_ms.most_ms / state.batch_ms))} of it CPU work"
    queued = min(1.0, state.queued_ms / state.batch_ms)
    return work if queued < _NAMED_QUEUE_RATIO else f"{work}, {percent(queued)} waiting for a CPU"


def _more_workers(state: Loading) -> str:
    return f"More workers than {state.num_workers} do" if state.num_workers else "Workers do"
