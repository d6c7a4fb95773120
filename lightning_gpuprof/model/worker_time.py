"""What DataLoader workers do while they make batches: compute, want a CPU, or wait."""

from collections.abc import Sequence
from statistics import median

import msgspec

from lightning_gpuprof.model.host import WorkerUse
from lightning_gpuprof.model.missing import MissingSignal
from lightning_gpuprof.model.numbers import counted, possible

MIN_SAMPLES = 5
"""Samples of a worker, one a second, that a statement about its time needs. Heuristic."""


THREAD_SAMPLES = 3
"""The same for a statement about its threads. Heuristic: without it `cpu-contention` says that no setting helps."""

WANTED_CPUS = 1.2
"""CPU time of a worker and time of its main thread in the run queue, per second, from which more than one thread
computes. Heuristic: one thread computes and queues for 1.0 together."""

BESIDE_RATIO = 0.4
"""Share of a worker's CPU time that other threads than its main one use, from which they compute. Heuristic: of four
threads that share the work they use three quarters, and one that hands batches over uses less than a third."""

_OWN_THREADS = 2
"""Threads of a worker that do not compute: one that feeds the queue, one of multiprocessing. Heuristic: workers that
only index tensors have three with their main thread."""


class WorkerTime(msgspec.Struct, frozen=True, kw_only=True):
    """Where a typical worker's time goes while it makes batches, without its wait for work. Shares of 0 to 1."""

    cpu_ratio: float
    """It computes."""
    queued_ratio: float
    """It is ready to run, but has no CPU."""
    waiting_ratio: float
    """The rest: it waits for a disk, a network, a lock, a clock."""
    disk_ratio: float | None
    """Share of the looks that found it waiting for a disk; None: not known."""
    read_bytes_per_s: float | None
    """Bytes that it read by system calls, whatever served them; None: not known."""
    workers: int
    samples: int
    """Of the worker with fewest."""


def sampled_rows(rows: Sequence[WorkerUse], least: int = MIN_SAMPLES) -> list[WorkerUse]:
    """Workers that were sampled often enough.

    Args:
        rows: All of them.
        least: Samples that each of them needs.

    Returns:
        In the order given, at least one.

    Raises:
        MissingSignal: There is none.
    """
    if not rows:
        raise MissingSignal("the time of the DataLoader workers was not sampled")
    often = [row for row in rows if row.samples >= least]
    if not often:
        most = max(row.samples for row in rows)
        raise MissingSignal(f"the DataLoader workers were sampled {counted(most, 'time')}, {least} are needed")
    return often


class WorkerThreads(msgspec.Struct, frozen=True, kw_only=True):
    """The threads of a typical worker, and what shows that they compute."""

    threads: float
    """At most."""
    wanted_cpus: float
    """CPU time of the worker with its main thread's time in the run queue, per second: at most 1 with one thread."""
    queued_ratio: float
    """Share of the time in which its main thread was ready to run, but had no CPU."""
    beside_ratio: float | None
    """Share of its CPU time that other threads than the main one use; None: not measured."""

    @property
    def computing(self) -> float:
        """Threads that may compute, at least 1."""
        return max(1.0, self.threads - _OWN_THREADS)

    def share_the_work(
        self, *, least_wanted_cpus: float = WANTED_CPUS, least_beside_ratio: float = BESIDE_RATIO
    ) -> bool:
        """Whether a pool of threads computes: the worker wants more than one CPU, or others do most of the work.

        Where other programs hold the CPUs, no worker gets as much as it wants; who does the work stays the same.

        Args:
            least_wanted_cpus: Of the worker, from which more than one thread computes.
            least_beside_ratio: Share of its CPU time, from which other threads compute.
        """
        return self.wanted_cpus >= least_wanted_cpus or (self.beside_ratio or 0.0) >= least_beside_ratio


def worker_threads(rows: Sequence[WorkerUse], least: int = THREAD_SAMPLES) -> WorkerThreads:
    """What a typical worker computes on.

    Args:
        rows: All of them.
        least: Samples that each of them needs.

    Returns:
        Medians over the workers that were sampled often enough.

    Raises:
        MissingSignal: No worker was sampled often enough, or not its threads and CPU times.
    """
    found = [row.use for row in sampled_rows(rows, least)]
    threads = [use.threads_count for use in found if use.threads_count is not None]
    spent = [
        (use.cpu_cpus.mean, use.run_delay_ratio.mean, use.main_thread_cpus)
        for use in found
        if use.cpu_cpus is not None and use.run_delay_ratio is not None
    ]
    if not threads or not spent:
        raise MissingSignal("threads, CPU time or run-queue time of the DataLoader workers were not measured")
    beside = [1.0 - min(1.0, main / cpu) for cpu, _, main in spent if main is not None and cpu > 0]
    return WorkerThreads(
        threads=median(threads),
        wanted_cpus=median(cpu + delay for cpu, delay, _ in spent),
        queued_ratio=median(delay for _, delay, _ in spent),
        beside_ratio=median(beside) if beside else None,
    )


def median_delay_ratio(rows: Sequence[WorkerUse]) -> float:
    """Share of its time in which a typical worker was ready to run, but had no CPU.

    Where that was not measured, it raises MissingSignal.
    """
    delays = [row.use.run_delay_ratio.mean for row in sampled_rows(rows) if row.use.run_delay_ratio is not None]
    if not delays or not all(map(possible, delays)):
        raise MissingSignal("how long the DataLoader workers waited for a CPU was not measured")
    return median(delays)
