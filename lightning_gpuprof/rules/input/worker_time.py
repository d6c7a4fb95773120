"""Metrics flow in, what DataLoader workers do while they make batches flows out: compute, want a CPU, or wait."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from lightning_gpuprof.model.host import ProcessUse, WorkerUse
from lightning_gpuprof.model.input_pipeline import InputLoader
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal, possible

LEAST_SAMPLES = 5
"""Samples of a worker, one a second, that a statement about its time needs. Heuristic."""


@dataclass(frozen=True, kw_only=True)
class WorkerTime:
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


def worker_time(metrics: Metrics, made: InputLoader) -> WorkerTime:
    """Medians over the workers: one slow worker is not all of them.

    Args:
        metrics: The run.
        made: How the loader that sets the pace makes its batches.

    Raises:
        MissingSignal: The workers' time was not sampled, not often enough, or not its parts.
    """
    rows = sampled_rows(metrics)
    idle = min(0.99, made.idle_ratio or 0.0)
    making = 1.0 - idle
    cpu = median(_cpu(row.use) for row in rows)
    queued = median(_queued(row.use) for row in rows)
    if not possible(cpu) or not possible(queued):
        raise MissingSignal("the CPU time of the DataLoader workers is no possible number")
    cpu_ratio = min(1.0, cpu / making)
    queued_ratio = min(1.0 - cpu_ratio, queued / making)
    disk = [row.use.disk_sleep_ratio for row in rows if row.use.disk_sleep_ratio is not None]
    read = [row.use.read_call_bytes_per_s.mean for row in rows if row.use.read_call_bytes_per_s is not None]
    return WorkerTime(
        cpu_ratio=cpu_ratio,
        queued_ratio=queued_ratio,
        waiting_ratio=1.0 - cpu_ratio - queued_ratio,
        disk_ratio=min(1.0, median(disk) / making) if disk else None,
        read_bytes_per_s=median(read) if read else None,
        workers=len(rows),
        samples=min(row.samples for row in rows),
    )


def sampled_rows(metrics: Metrics) -> list[WorkerUse]:
    """Workers that were sampled often enough.

    Raises:
        MissingSignal: There is none.
    """
    rows = metrics.host.worker_rows
    if not rows:
        raise MissingSignal("the time of the DataLoader workers was not sampled")
    often = [row for row in rows if row.samples >= LEAST_SAMPLES]
    if not often:
        most = max(row.samples for row in rows)
        raise MissingSignal(f"the DataLoader workers were sampled {most} times, {LEAST_SAMPLES} are needed")
    return often


def _cpu(use: ProcessUse) -> float:
    if use.cpu_cpus is None:
        raise MissingSignal("the CPU time of the DataLoader workers was not measured")
    return use.cpu_cpus.mean


def _queued(use: ProcessUse) -> float:
    if use.run_delay_ratio is None:
        raise MissingSignal("how long the DataLoader workers waited for a CPU was not measured")
    return use.run_delay_ratio.mean
