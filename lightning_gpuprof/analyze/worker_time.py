"""From samples of DataLoader workers to what they do while they make batches."""

from __future__ import annotations

from statistics import median

from lightning_gpuprof.model.host import ProcessUse
from lightning_gpuprof.model.input_pipeline import InputLoader
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import MissingSignal
from lightning_gpuprof.model.numbers import possible
from lightning_gpuprof.model.worker_time import WorkerTime, sampled_rows


def worker_time(metrics: Metrics, made: InputLoader) -> WorkerTime:
    """Medians over the workers: one slow worker is not all of them.

    Args:
        metrics: The run.
        made: How the loader that sets the pace makes its batches.

    Raises:
        MissingSignal: The workers' time was not sampled, not often enough, or not its parts.
    """
    rows = sampled_rows(metrics.host.worker_rows)
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


def _cpu(use: ProcessUse) -> float:
    if use.cpu_cpus is None:
        raise MissingSignal("the CPU time of the DataLoader workers was not measured")
    return use.cpu_cpus.mean


def _queued(use: ProcessUse) -> float:
    if use.run_delay_ratio is None:
        raise MissingSignal("how long the DataLoader workers waited for a CPU was not measured")
    return use.run_delay_ratio.mean
