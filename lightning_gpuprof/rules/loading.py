"""Metrics flow in, an estimate of what more DataLoader workers can gain flows out; the input rules share it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lightning_gpuprof.model.metrics import CpuFacts, Metrics, Share
from lightning_gpuprof.rules.base import (
    MissingSignal,
    condition,
    require_possible,
    steady_period_ms,
    step_share,
    worthwhile,
)
from lightning_gpuprof.rules.wording import cpus, millis

RECEIVE_MS = 0.5
"""What it costs the training thread at least to take a finished batch from a worker process.

Ours: small tensors took 1.0 ms (5th percentile) to 3.3 ms (median of 800 kB batches) on 2 CPUs; the bound of the gain
uses half of the least, so that it stays a bound."""

RECEIVE_GUARD_MS = 3.0
"""What the same may cost without anything being wrong: with workers, a shorter wait does not show an empty queue. Ours,
same measurement."""

SINGLE_GUARD_MS = 1.0
"""Wait of a loader without workers that workers would not shorten for certain. Ours, same measurement."""

EMPTY_QUEUE_RATIO = 0.30
"""Share of steps that find no batch ready from which the workers are behind. MindInsight: queue empty above 30 %."""

LEAST_WAIT_RATIO = 0.05
"""Share of the step from which waiting for a batch is worth a word. torch-tb-profiler: DataLoader above 5 %."""

CPU_BOUND_RATIO = 0.5
"""CPU time over wall time of the loading from which it competes for CPUs. Ours: below it, workers mostly wait."""

SPIN_MS = 5.0
"""How long an idle OpenMP thread keeps a CPU busy before it sleeps. Ours: about 6 ms per step were seen with two
threads."""

MAX_WORKERS = 16
"""Most workers that are proposed where they mostly wait and CPUs are no limit. Ours: each is a process with its own
memory."""

_LEAST_COMPUTE_MS = 0.05


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
    num_workers: int
    batch_ms: float
    """P, the time that one batch takes to make in one process. With workers it is the most that it can be: all of
    them at work all the time."""
    cpu_ms: CpuTime | None
    """CPU time that making one batch takes; None: not known."""
    used_cpus: float | None
    """CPUs that the training process and its workers used; None: not known."""
    usable_cpus: float
    on_gpu: bool
    dataset: str
    compute_threads: int | None = None
    """Threads on which torch computes the model on the same CPUs; None: on a GPU, or not known."""

    @property
    def compute_ms(self) -> float:
        """Median time that the step needs without the wait."""
        return max(_LEAST_COMPUTE_MS, self.period_ms - self.wait.median_ms)

    @property
    def cpu_bound(self) -> bool | None:
        """Whether making a batch keeps a CPU at work, rather than waiting for storage; None: not known."""
        return None if self.cpu_ms is None else self.cpu_ms.most_ms >= CPU_BOUND_RATIO * self.batch_ms

    @property
    def free_cpus(self) -> float | None:
        """CPUs that nothing of this run used; None: not known."""
        return None if self.used_cpus is None else max(0.0, self.usable_cpus - self.used_cpus)


@dataclass(frozen=True, kw_only=True)
class WorkerPlan:
    """A number of workers and what it brings."""

    num_workers: int
    period_ms: float
    """T', the period that is left at best."""
    recoverable_ms: float
    """R = min(W, max(0, T - T'))."""
    lower_ms: float
    """R from the lower bound of the wait."""


def loading(metrics: Metrics) -> Loading:
    """Gather what is known about the training DataLoader.

    Raises:
        MissingSignal: Too few steady steps, or the loader is not a ``torch`` DataLoader, so that its workers are not
            known.
    """
    period_ms = steady_period_ms(metrics)
    wait = step_share(metrics, "data_wait")
    facts = metrics.loader
    if facts is None or facts.num_workers is None:
        kind = f" ({facts.kind})" if facts is not None and facts.kind else ""
        raise MissingSignal(f"the training loader{kind} is not a torch DataLoader, its workers are not known")
    workers = facts.num_workers
    require_possible("the number of workers", workers)
    cpu = metrics.cpu
    threads = condition(metrics, "torch.num_threads")
    require_possible("the number of usable CPUs", cpu.usable_cpus)
    require_possible("the use of the CPUs", cpu.process_cpus or 0.0, cpu.worker_cpus or 0.0)
    return Loading(
        period_ms=period_ms,
        wait=wait,
        num_workers=workers,
        batch_ms=wait.median_ms if workers == 0 else workers * period_ms,
        cpu_ms=_loading_cpu_ms(metrics, workers=workers, wait_ms=wait.median_ms, period_ms=period_ms),
        used_cpus=_used_cpus(metrics.cpu, workers=workers),
        usable_cpus=metrics.cpu.usable_cpus,
        on_gpu=condition(metrics, "device.type") == "cuda",
        dataset=facts.dataset,
        compute_threads=threads if metrics.run.get("device.type") == "cpu" and isinstance(threads, int) else None,
    )


def plan_workers(state: Loading) -> WorkerPlan:
    """The number of workers with which the step no longer waits, as far as CPUs allow, and the gain that it brings.

    ``ceil(P / T_compute) + 1`` workers, not more than usable CPUs where making a batch is CPU work (or where that is
    not known), at least one. Afterwards the period is at least the step without its wait plus the receipt of a batch,
    at least ``P / workers``, and at least the CPU time of one step over the usable CPUs.
    """
    wanted = math.ceil(state.batch_ms / state.compute_ms) + 1
    most = MAX_WORKERS if state.cpu_bound is False else max(1, int(state.usable_cpus))
    workers = max(1, min(wanted, most))
    # CPU work that is not known is taken for the whole batch: the careful assumption.
    work_ms = state.compute_ms + (state.batch_ms if state.cpu_ms is None else state.cpu_ms.least_ms)
    period_ms = max(
        state.compute_ms + RECEIVE_MS,
        state.batch_ms / workers,
        work_ms / state.usable_cpus if state.usable_cpus > 0 else 0.0,
    )
    recoverable_ms = min(state.wait.median_ms, max(0.0, state.period_ms - period_ms))
    slack_ms = state.wait.median_ms - state.wait.lower_ratio * state.period_ms
    return WorkerPlan(
        num_workers=workers,
        period_ms=period_ms,
        recoverable_ms=recoverable_ms,
        lower_ms=max(0.0, recoverable_ms - max(0.0, slack_ms)),
    )


def helpful_plan(state: Loading, waited_ratio: float | None) -> WorkerPlan | None:
    """The plan, if more workers are the cure.

    Args:
        state: How the loop is fed.
        waited_ratio: Share of steps that found no batch ready; with workers, only an empty queue shows that they are
            behind.

    Returns:
        None if the wait may be the price of any fetch, if workers are not behind, if no more of them than now are
        possible, or if the gain is not worthwhile.
    """
    if certain_ratio(state) < LEAST_WAIT_RATIO:
        return None
    if state.num_workers and (waited_ratio is None or waited_ratio < EMPTY_QUEUE_RATIO):
        return None
    plan = plan_workers(state)
    helps = plan.num_workers > state.num_workers and worthwhile(plan.recoverable_ms, state.period_ms)
    return plan if helps else None


def certain_ratio(state: Loading) -> float:
    """Lower bound of the wait's share, without what a fetch may cost although nothing is wrong."""
    guard_ms = SINGLE_GUARD_MS if state.num_workers == 0 else RECEIVE_GUARD_MS
    return max(0.0, state.wait.lower_ratio - guard_ms / state.period_ms)


def code_line(state: Loading, workers: int) -> str:
    """The DataLoader call with the proposed values; pinned memory only where there is a GPU to copy to."""
    pinned = "pin_memory=True, " if state.on_gpu else ""
    return f"DataLoader(..., num_workers={workers}, {pinned}persistent_workers=True)"


def cpu_words(state: Loading) -> str:
    """What is known about CPUs: ``2 CPUs are usable, 0.9 free``."""
    usable = f"{cpus(state.usable_cpus)} {'is' if state.usable_cpus == 1 else 'are'} usable"
    free = state.free_cpus
    return f"{usable}, how many are free was not measured" if free is None else f"{usable}, {free:.1f} free"


def batch_words(state: Loading) -> str:
    """How long a batch takes to make and how long the step is without it."""
    most = "one batch takes" if state.num_workers == 0 else "one batch takes a worker up to"
    return f"{most} {millis(state.batch_ms)} to make, the step needs {millis(state.compute_ms)} without it"


def cap_words(state: Loading, workers: int) -> str:
    """What else to know about the proposed workers: why not more of them, and who competes with them; or empty."""
    words = ""
    if state.cpu_bound is None:
        words = " Whether loading is CPU work was not measured, so not more workers than usable CPUs are proposed."
    threads = state.compute_threads
    if threads is not None and threads > 1 and state.cpu_bound is not False and threads + workers > state.usable_cpus:
        left = max(1, int(state.usable_cpus) - workers)
        words += (
            f" The model computes on these CPUs as well, on {threads} threads: call torch.set_num_threads({left}), or "
            "workers and model slow each other down."
        )
    return words


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
        most_ms=min(wait_ms, max(0.0, process_ms - compute_ms)),
    )


def _used_cpus(facts: CpuFacts, *, workers: int) -> float | None:
    if facts.process_cpus is None or (workers and facts.worker_cpus is None):
        return None
    return facts.process_cpus + (facts.worker_cpus or 0.0)
