"""What DataLoader workers do while they make batches: compute, want a CPU, or wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from lightning_gpuprof.model.host import WorkerUse
from lightning_gpuprof.model.missing import MissingSignal
from lightning_gpuprof.model.numbers import possible

MIN_SAMPLES = 5
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


def sampled_rows(rows: Sequence[WorkerUse], least: int = MIN_SAMPLES) -> list[WorkerUse]:
    """Workers that were sampled often enough.

    Args:
        rows: All of them.
        least: Samples that each of them needs.

    Raises:
        MissingSignal: There is none.
    """
    if not rows:
        raise MissingSignal("the time of the DataLoader workers was not sampled")
    often = [row for row in rows if row.samples >= least]
    if not often:
        most = max(row.samples for row in rows)
        raise MissingSignal(f"the DataLoader workers were sampled {most} times, {least} are needed")
    return often


def median_delay_ratio(rows: Sequence[WorkerUse]) -> float:
    """Share of its time in which a typical worker was ready to run, but had no CPU.

    Raises:
        MissingSignal: That was not measured, or no worker was sampled often enough.
    """
    delays = [row.use.run_delay_ratio.mean for row in sampled_rows(rows) if row.use.run_delay_ratio is not None]
    if not delays or not all(map(possible, delays)):
        raise MissingSignal("how long the DataLoader workers waited for a CPU was not measured")
    return median(delays)
