"""Metrics flow in, an estimate of what more DataLoader workers can gain flows out; the input rules share it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from lightning_gpuprof.model.finding import Evidence, Severity
from lightning_gpuprof.model.input_pipeline import InputLoader, enough_workers
from lightning_gpuprof.model.metrics import CpuFacts, Metrics, Share
from lightning_gpuprof.rules.base import (
    MissingSignal,
    condition,
    device_idle_ratio,
    device_step,
    is_cpu_only,
    possible,
    require_possible,
    severity,
    steady_period_ms,
    step_share,
    worthwhile,
)
from lightning_gpuprof.rules.steps.interpreter_lock import holds_the_interpreter
from lightning_gpuprof.rules.wording import cpus, millis

RECEIVE_MS = 0.5
"""What it costs the training thread at least to take a finished batch from a worker process.

Heuristic: small tensors took 1.0 ms (5th percentile) to 3.3 ms (median of 800 kB batches) on 2 CPUs; the bound of the
gain uses half of the least, so that it stays a bound."""

RECEIVE_GUARD_MS = 3.0
"""What the same may cost without anything being wrong: with workers, a shorter wait does not show an empty queue.
Heuristic, same measurement."""

SINGLE_GUARD_MS = 1.0
"""Wait of a loader without workers that workers would not shorten for certain. Heuristic, same measurement."""

EMPTY_QUEUE_RATIO = 0.30
"""Share of steps that find no batch ready from which the workers are behind. MindInsight: queue empty above 30 %."""

LEAST_WAIT_RATIO = 0.05
"""Share of the step from which waiting for a batch is worth a word. torch-tb-profiler: DataLoader above 5 %."""

LEAST_IDLE_RATIO = 0.05
"""Share of the step in which the device has no work, below which waiting for data is free. Heuristic."""

CPU_BOUND_RATIO = 0.5
"""CPU time over wall time of the loading from which it competes for CPUs. Heuristic: below it, workers mostly wait."""

IN_TIME_RATIO = 0.8
"""Time between two batches of the workers over the step without its wait, up to which more workers bring nothing.
As in the verdict of the input pipeline."""

SPIN_MS = 5.0
"""How long an idle OpenMP thread keeps a CPU busy before it sleeps. Heuristic: about 6 ms per step were seen with two
threads."""

STREAM_SAMPLER = "_InfiniteConstantSampler"
"""What torch gives a loader whose dataset is iterable: no sampler can be chosen then."""

MAX_WORKERS = 16
"""Most workers that are proposed where they mostly wait and CPUs are no limit. Heuristic: each is a process with its
own memory."""

_LEAST_COMPUTE_MS = 0.05

_NAMED_CPUS = 0.25
"""Use of the CPUs by others from which it is worth a word. Heuristic."""


@dataclass(frozen=True, kw_only=True)
class CpuTime:
    """CPU time per step within bounds: of a process it is known only as a whole."""

    least_ms: float
    most_ms: float


@dataclass(frozen=True, kw_only=True)
class Loading:
    """How the training loop is fed, per steady step."""

    period_ms: float
    wait: Share
    """As :func:`making_wait`."""
    num_workers: int
    batch_ms: float
    """P, the time that one batch takes to make in one process: the mean as measured there, or, with workers, the most
    that it can be: all of them at work all the time."""
    cpu_ms: CpuTime | None
    """CPU time that making one batch takes; None: not known."""
    used_cpus: float | None
    """CPUs that the training process and its workers used; None: not known."""
    usable_cpus: float
    on_gpu: bool
    dataset: str
    compute_threads: int | None = None
    """Threads on which torch computes the model on the same CPUs; None: on a GPU, or not known."""
    made: InputLoader | None = None
    """How batches are made, as measured in the processes that make them; None: not measured there."""
    queued_ms: float = 0.0
    """Time per step in which what makes batches was ready to run but had no CPU, over all its processes; 0 also where
    that was not measured."""
    others_cpus: float | None = None
    """CPUs that processes of others used of the usable ones; None: not known."""
    idle_ratio: float | None = 1.0
    """Share of the step in which the device has no work while the batch is made, all of it on a CPU: the rest of the
    wait is free. None: no trace window tells."""
    is_stream: bool = False
    """An iterable dataset: each worker runs all of it, unless it takes a part for each."""
    has_model: bool = False
    """The dataset uses the model that is trained; workers would have copies that do not learn."""

    @property
    def compute_ms(self) -> float:
        """Median time that the step needs without the wait."""
        return max(_LEAST_COMPUTE_MS, self.period_ms - self.wait.median_ms)

    @property
    def idle_ms(self) -> float:
        """The most that a wait can cost per step: the device's idle time, or all where that is not known."""
        return self.period_ms if self.idle_ratio is None else self.idle_ratio * self.period_ms

    @property
    def is_free(self) -> bool:
        """Whether the device is known to work nearly all the time, so that a wait costs next to nothing."""
        return self.idle_ratio is not None and self.idle_ratio < LEAST_IDLE_RATIO

    @property
    def cpu_bound(self) -> bool | None:
        """Whether making a batch keeps a CPU at work, or waits for one, rather than for storage; None: not known."""
        # CPU time is known per median step: a mean time of batches that steps in bursts wait for is not held to it.
        whole_ms = min(self.batch_ms, _most_ms(self.num_workers, self.wait, self.period_ms))
        return None if self.cpu_ms is None else self.cpu_ms.most_ms + self.queued_ms >= CPU_BOUND_RATIO * whole_ms

    @property
    def free_cpus(self) -> float | None:
        """CPUs that neither this run nor, as far as that is known, anybody else used; None: not known."""
        if self.used_cpus is None:
            return None
        return max(0.0, self.usable_cpus - self.used_cpus - (self.others_cpus or 0.0))

    @property
    def wanted_workers(self) -> int:
        """Workers with which batches come faster than steps use them, if CPUs were no limit: as the view has it."""
        return enough_workers(self.batch_ms, self.compute_ms)


@dataclass(frozen=True, kw_only=True)
class WorkerPlan:
    """A number of workers and what it brings."""

    num_workers: int
    period_ms: float
    """T', the period that is left at best."""
    recoverable_ms: float
    """R = min(W, max(0, T - T'), idle time of the device)."""
    lower_ms: float
    """R from the lower bound of the wait and the most that taking a batch from a worker may cost."""


def loading(metrics: Metrics) -> Loading:
    """Gather what is known about the training DataLoader.

    Raises:
        MissingSignal: Too few steady steps, or the loader is not a ``torch`` DataLoader, so that its workers are not
            known.
    """
    period_ms = steady_period_ms(metrics)
    wait = making_wait(metrics)
    facts = metrics.loader
    if facts is None or facts.num_workers is None:
        kind = f" ({facts.kind})" if facts is not None and facts.kind else ""
        raise MissingSignal(f"the training loader{kind} is not a torch DataLoader, its workers are not known")
    workers = facts.num_workers
    require_possible("the number of workers", workers)
    cpu = metrics.cpu
    threads = condition(metrics, "torch.num_threads")
    made = _made(metrics, workers)
    require_possible("the number of usable CPUs", cpu.usable_cpus)
    require_possible("the use of the CPUs", cpu.process_cpus or 0.0, cpu.worker_cpus or 0.0)
    return Loading(
        period_ms=period_ms,
        wait=wait,
        num_workers=workers,
        batch_ms=_most_ms(workers, wait, period_ms) if made is None or made.make_ms is None else made.make_ms,
        cpu_ms=_loading_cpu_ms(metrics, workers=workers, wait_ms=wait.median_ms, period_ms=period_ms),
        used_cpus=_used_cpus(metrics.cpu, workers=workers),
        usable_cpus=metrics.cpu.usable_cpus,
        on_gpu=condition(metrics, "device.type") == "cuda",
        dataset=facts.dataset,
        made=made,
        compute_threads=threads if metrics.run.get("device.type") == "cpu" and isinstance(threads, int) else None,
        queued_ms=_queued_ms(metrics, workers=workers, period_ms=period_ms),
        others_cpus=_others_cpus(metrics),
        idle_ratio=making_idle_ratio(metrics, period_ms),
        is_stream=condition(metrics, "loader.sampler") == STREAM_SAMPLER,
        has_model=metrics.run.get("loader.dataset_has_model") is True,
    )


def slowest_order(metrics: Metrics) -> InputLoader | None:
    """The loader whose sampler takes longest for the indices of a batch; None if that was not measured."""
    loaders = () if metrics.input is None else metrics.input.loaders
    known = [one for one in loaders if one.order_ms is not None and possible(one.order_ms)]
    return max(known, key=lambda one: one.order_ms or 0.0, default=None)


def making_wait(metrics: Metrics) -> Share:
    """The wait for batches while they are made: without the sampler's time, which stays in the training process.

    Raises:
        MissingSignal: The wait was not measured, or is one for the interpreter, as every other phase of the step has.
    """
    if metrics.loader is not None and metrics.loader.num_workers == 0 and holds_the_interpreter(metrics):
        raise MissingSignal(
            "another Python thread of the program keeps the training thread waiting (interpreter-lock): how long it "
            "takes to make a batch cannot be told"
        )
    wait, slowest = step_share(metrics, "data_wait"), slowest_order(metrics)
    order_ms = 0.0 if slowest is None else slowest.order_ms or 0.0
    if not order_ms:
        return wait
    ratio, lower = order_ms / steady_period_ms(metrics), wait.total_lower_ratio
    return replace(
        wait,
        median_ms=max(0.0, wait.median_ms - order_ms),
        median_ratio=max(0.0, wait.median_ratio - ratio),
        lower_ratio=max(0.0, wait.lower_ratio - ratio),
        total_ratio=max(0.0, wait.total_ratio - ratio),
        total_lower_ratio=None if lower is None else max(0.0, lower - ratio),
    )


def workers_set_the_pace(metrics: Metrics) -> bool:
    """Whether steps wait for workers that are behind: whatever else gets shorter, the wait gets longer.

    Without workers it does not: then a batch takes as long to make, however long the rest of the step is. Nor where the
    wait may be what it costs to take a batch from a worker.
    """
    loader, wait = metrics.loader, metrics.share("data_wait")
    if loader is None or not loader.num_workers or wait is None or metrics.fetch_waited_ratio is None:
        return False
    return metrics.fetch_waited_ratio >= EMPTY_QUEUE_RATIO and wait.median_ms > RECEIVE_GUARD_MS


def step_idle_ratio(metrics: Metrics) -> float | None:
    """Share of a step in which the device has no work, 1 on a CPU; None if no trace window tells."""
    return 1.0 if is_cpu_only(metrics) else device_idle_ratio(metrics)


def fetch_idle_ratio(metrics: Metrics) -> float | None:
    """Share of a step in which the device has no work and a batch is waited for: what the wait costs.

    A device that is idle elsewhere in the step, for want of launches, makes a fetch beside its work no dearer.

    Returns:
        As :func:`step_idle_ratio`, which it is where windows do not tell what the device did during the fetch.
    """
    idle_ratio, step, wait = step_idle_ratio(metrics), device_step(metrics), metrics.share("data_wait")
    in_fetch = step.idle_in_phase.get("data_wait") if step is not None and step.sees_fetch else None
    if idle_ratio is None or in_fetch is None or wait is None:
        return idle_ratio
    return min(idle_ratio, wait.median_ratio * in_fetch)


def making_idle_ratio(metrics: Metrics, period_ms: float) -> float | None:
    """As :func:`fetch_idle_ratio`, without what the sampler costs of it: no idle time is gained twice."""
    idle_ratio, slowest = fetch_idle_ratio(metrics), slowest_order(metrics)
    if idle_ratio is None or slowest is None:
        return idle_ratio
    return max(0.0, idle_ratio - (slowest.order_ms or 0.0) / period_ms)


def fetch_is_seen(metrics: Metrics) -> bool:
    """Whether it is known what a wait costs: on a CPU, or where a window shows the device also before a fetch."""
    step = device_step(metrics)
    return bool(is_cpu_only(metrics)) or (step is not None and step.sees_fetch)


def wait_severity(idle_ratio: float | None, certain: float, steps: int) -> Severity:
    """Severity of a wait for data: at most a warning where the device may have work meanwhile.

    Args:
        idle_ratio: As :attr:`Loading.idle_ratio`.
        certain: Lower bound of the wait's share of the step.
        steps: Steps that it rests on.
    """
    if idle_ratio is not None:
        return severity(min(certain, idle_ratio), steps)
    level = severity(certain, steps)
    return "warning" if level == "critical" else level


def plan_workers(state: Loading) -> WorkerPlan:
    """The number of workers with which the step no longer waits, as far as CPUs allow, and the gain that it brings.

    ``ceil(P / T_compute) + 1`` workers, not more than usable CPUs where making a batch is CPU work (or where that is
    not known), at least one. Afterwards the period is at least the step without its wait plus the receipt of a batch,
    at least ``P / workers``, and at least the CPU time of one step over the usable CPUs. No more is gained than the
    device idles.
    """
    most = MAX_WORKERS if state.cpu_bound is False else max(1, int(state.usable_cpus))
    workers = max(1, min(state.wanted_workers, most))
    # CPU work that is not known is taken for the whole batch: the careful assumption.
    work_ms = state.compute_ms + (state.batch_ms if state.cpu_ms is None else state.cpu_ms.least_ms)
    pace_ms = max(state.batch_ms / workers, work_ms / state.usable_cpus if state.usable_cpus > 0 else 0.0)
    period_ms = max(state.compute_ms + RECEIVE_MS, pace_ms)
    most_ms = max(state.compute_ms + RECEIVE_GUARD_MS, pace_ms)
    wait_ms = min(state.wait.median_ms, state.idle_ms)
    recoverable_ms = min(wait_ms, max(0.0, state.period_ms - period_ms))
    slack_ms = state.wait.median_ms - state.wait.lower_ratio * state.period_ms
    return WorkerPlan(
        num_workers=workers,
        period_ms=period_ms,
        recoverable_ms=recoverable_ms,
        lower_ms=max(0.0, min(wait_ms, state.period_ms - most_ms) - max(0.0, slack_ms)),
    )


def helpful_plan(state: Loading, waited_ratio: float | None) -> WorkerPlan | None:
    """The plan, if more workers are the cure.

    Args:
        state: How the loop is fed.
        waited_ratio: Share of steps that found no batch ready; with workers, only an empty queue shows that they are
            behind.

    Returns:
        None if the wait may be the price of any fetch, if workers are not behind or make their batches in time, if no
        more of them than now are possible, if the device has work meanwhile, or if the gain is not worthwhile.
    """
    if certain_ratio(state) < LEAST_WAIT_RATIO:
        return None
    if state.num_workers and (waited_ratio is None or waited_ratio < EMPTY_QUEUE_RATIO):
        return None
    return None if made_in_time(state) else better_plan(state)


def better_plan(state: Loading) -> WorkerPlan | None:
    """The plan, if it has more workers than now, the device idles meanwhile, and its gain is worthwhile."""
    if state.is_free or state.has_model:
        return None
    plan = plan_workers(state)
    helps = plan.num_workers > state.num_workers and worthwhile(plan.recoverable_ms, state.period_ms)
    return plan if helps else None


def made_in_time(state: Loading) -> bool:
    """Whether workers, as measured in them, make batches well before the step wants them.

    What is waited for then is the way of a batch to the training thread, or a CPU for it.
    """
    measured = state.num_workers > 0 and state.made is not None
    return measured and state.batch_ms / state.num_workers <= IN_TIME_RATIO * state.compute_ms


def certain_ratio(state: Loading) -> float:
    """Lower bound of the wait's share, without what a fetch may cost although nothing is wrong."""
    guard_ms = SINGLE_GUARD_MS if state.num_workers == 0 else RECEIVE_GUARD_MS
    return max(0.0, state.wait.lower_ratio - guard_ms / state.period_ms)


def curable_ratio(state: Loading) -> float:
    """Lower bound of the share that more workers can take off: without the most that taking a batch may cost."""
    return max(0.0, state.wait.lower_ratio - RECEIVE_GUARD_MS / state.period_ms)


def code_line(state: Loading, workers: int) -> str:
    """The DataLoader call with the proposed values; pinned memory only where there is a GPU to copy to."""
    pinned = "pin_memory=True, " if state.on_gpu else ""
    return f"DataLoader(..., num_workers={workers}, {pinned}persistent_workers=True)"


def sharding_words(state: Loading) -> str:
    """What an iterable dataset has to do before it gets workers, as a sentence; empty where that is no matter."""
    if not state.is_stream or state.num_workers:
        return ""
    return (
        " The dataset is iterable: first let each worker take its part, or every worker reads all of it and an epoch "
        "has that many times the steps. In __iter__, with info = torch.utils.data.get_worker_info(), read only every "
        "info.num_workers-th file or record, from number info.id on."
    )


def cpu_words(state: Loading) -> str:
    """What is known about CPUs: ``2 CPUs are usable, 0.9 free``."""
    usable = f"{cpus(state.usable_cpus)} {'is' if state.usable_cpus == 1 else 'are'} usable"
    free = state.free_cpus
    if free is None:
        return f"{usable}, how many are free was not measured"
    others = state.others_cpus
    beside = f", {others:.1f} used by other processes" if others is not None and others >= _NAMED_CPUS else ""
    return f"{usable}, {free:.1f} free{beside}"


def batch_words(state: Loading) -> str:
    """How long a batch takes to make and how long the step is without it."""
    most = "one batch takes" if state.num_workers == 0 else f"one batch takes a worker{'' if state.made else ' up to'}"
    return f"{most} {millis(state.batch_ms)} to make, the step needs {millis(state.compute_ms)} without it"


def cap_words(state: Loading, workers: int) -> str:
    """What else to know about the proposed workers: why not more of them, and who competes with them; or empty."""
    words = _fewer_words(state) if workers < state.wanted_workers else ""
    threads = state.compute_threads
    if threads is not None and threads > 1 and state.cpu_bound is not False and threads + workers > state.usable_cpus:
        left = max(1, int(state.usable_cpus) - workers)
        words += (
            f" The model computes on these CPUs as well, on {threads} threads: call torch.set_num_threads({left}), or "
            "workers and model slow each other down."
        )
    return words


def _fewer_words(state: Loading) -> str:
    """Why fewer workers are proposed than would keep pace."""
    keep_pace = f" {state.wanted_workers} workers would keep pace with the step, but"
    if state.cpu_bound:
        return (
            f"{keep_pace} making a batch is CPU work, and {cpus(state.usable_cpus)} cannot do more of it at a time: "
            "for more, make the batch cheaper."
        )
    if state.cpu_bound is None:
        return f"{keep_pace} whether loading is CPU work was not measured, so not more than usable CPUs are proposed."
    return f"{keep_pace} each is a process with a memory of its own, so not more than {MAX_WORKERS} are proposed."


def making_evidence(state: Loading) -> list[Evidence]:
    """The time to make a batch, and its parts where they were measured."""
    made = state.made
    name = "time to make a batch" if state.num_workers == 0 else "time for a worker to make a batch"
    if made is None or made.items_ms is None or made.collate_ms is None:
        return [Evidence(name=name if state.num_workers == 0 else f"{name}, at most", value=state.batch_ms, unit="ms")]
    return [
        Evidence(name=name, value=state.batch_ms, unit="ms"),
        Evidence(name="of it items, measured there", value=made.items_ms, unit="ms"),
        Evidence(name="of it collate_fn, measured there", value=made.collate_ms, unit="ms"),
    ]


def _made(metrics: Metrics, workers: int) -> InputLoader | None:
    """How the loader that sets the pace makes its batches, if that was measured and it is the configured one."""
    found = metrics.input
    if found is None or found.verdict == "not-enough-data":
        return None
    one = next((x for x in found.loaders if x.loader == found.slowest), None)
    if one is None or one.workers != workers or one.make_ms is None:
        return None
    return one if possible(one.make_ms) and one.make_ms > 0 else None


def _most_ms(workers: int, wait: Share, period_ms: float) -> float:
    """The most that making a batch can take in a median step."""
    return wait.median_ms if workers == 0 else workers * period_ms


def _loading_cpu_ms(metrics: Metrics, *, workers: int, wait_ms: float, period_ms: float) -> CpuTime | None:
    if workers:
        if metrics.cpu.worker_cpus is None:
            return None
        worker_ms = metrics.cpu.worker_cpus * period_ms
        return CpuTime(least_ms=worker_ms, most_ms=worker_ms)
    if metrics.cpu.process_cpus is None:
        return None
    process_ms = metrics.cpu.process_cpus * period_ms
    compute_ms = max(0.0, period_ms - wait_ms)
    threads = condition(metrics, "torch.num_threads")
    if not isinstance(threads, int) or threads < 1:
        threads = max(1, math.ceil(metrics.cpu.usable_cpus))
    # At most: the step without its wait kept one CPU at work. At least: it kept one busy per thread, and each thread
    # but the first went on spinning for a while.
    computing_ms = threads * compute_ms + (threads - 1) * min(SPIN_MS, wait_ms)
    return CpuTime(
        least_ms=min(wait_ms, max(0.0, process_ms - computing_ms)),
        most_ms=min(wait_ms, max(0.0, process_ms - compute_ms, _fetch_cpu_ms(metrics))),
    )


def _queued_ms(metrics: Metrics, *, workers: int, period_ms: float) -> float:
    """How long per step what makes batches was ready to run without having a CPU.

    Of the training thread that is known for whole steps: its fetch has the part that it has of the CPU time.
    """
    if workers:
        rows = metrics.host.worker_rows
        delays = [row.use.run_delay_ratio.mean for row in rows if row.use.run_delay_ratio is not None]
        return sum(delay for delay in delays if possible(delay)) * period_ms
    delay = metrics.cpu.run_delay_ratio
    whole_ms = sum(row.cpu_ms or 0.0 for row in metrics.phases)
    if delay is None or not possible(delay) or not whole_ms > 0:
        return 0.0
    return delay * period_ms * _fetch_cpu_ms(metrics) / whole_ms


def _fetch_cpu_ms(metrics: Metrics) -> float:
    """CPU time of the training thread in the fetch; 0 also where it was not sampled."""
    found = next((row.cpu_ms for row in metrics.phases if row.phase == "data_wait"), None)
    return found if found is not None and possible(found) else 0.0


def _others_cpus(metrics: Metrics) -> float | None:
    machine = metrics.host.machine
    others = machine.cpu_others_cpus if machine is not None else None
    return others.mean if others is not None and possible(others.mean) else None


def _used_cpus(facts: CpuFacts, *, workers: int) -> float | None:
    if facts.process_cpus is None or (workers and facts.worker_cpus is None):
        return None
    return facts.process_cpus + (facts.worker_cpus or 0.0)
