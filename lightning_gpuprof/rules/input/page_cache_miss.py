"""Finds that later epochs read their data from the disk again, because they do not stay in memory."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.host import Reading
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal, threshold
from lightning_gpuprof.rules.input.starving import Starving, StarvingRule
from lightning_gpuprof.rules.input.worker_time import worker_time
from lightning_gpuprof.rules.wording import percent


@dataclass(frozen=True, kw_only=True)
class PageCacheMiss(StarvingRule):
    """Steps wait for workers that wait for a disk, and later epochs read it as much as the first: nothing stays cached.

    ## What it means

    The operating system keeps files that were read in free memory, so that from the second epoch on a dataset that fits
    comes from there. One that is larger than the free memory, or than the memory limit of the container, is read from
    the disk in each epoch.

    ## How it is measured

    Steps wait for batches for certain, at least a tenth of their time, and because these are made too slowly (verdict
    `processing`); the typical worker waits for the disk (state D) in at least a fifth of the looks; and of what the
    training process and its workers read by system calls in epochs after the first, at least half came from disks, at 5
    MB/s or more. The gain is the time that workers wait, as far as the looks found them waiting for the disk, over the
    workers.

    ## When it is wrong

    - Data that are mapped into memory are not in the system calls: the share is then held to 1, which is right if they
      come from the disk.
    - Datasets that give each sample once, or new files in each epoch, cannot be cached.
    - Reads on network file systems may not be counted as disk reads: then it is silent.
    - One epoch only: silent. No bytes (`/proc/PID/io`), less than five seconds after the first epoch: not evaluated.

    ## What to do

    Make the data smaller (compressed, uint8, resized before training), keep a part in memory, use shards that are read
    in order, or ask for more memory: the page cache counts towards the container's limit.

    ## Example

    "Epochs after the first read 11.0 GB from disks, 1.57 GB each: 100 % of all that was read."
    """

    id = "page-cache-miss"
    specialises = ("input-bound", "loader-io-bound", "step-outliers")

    least_miss_ratio: float = threshold(0.50, source="catalogue, heuristic: half of what is read")
    least_disk_ratio: float = threshold(0.20, source="catalogue: as loader-io-bound")
    least_ratio: float = threshold(0.10, source="catalogue: a tenth of the step is wait")
    least_bytes_per_s: float = threshold(5e6, source="heuristic: less is no dataset")
    least_s: float = threshold(5.0, source="heuristic: five samples")

    def judge(self, metrics: Metrics, found: Starving) -> Finding | None:
        """Judge loaders with workers over more than one epoch."""
        later = metrics.host.later_epochs
        if later is None:
            return None
        if later.disk_bytes is None or later.call_bytes is None:
            raise MissingSignal("what was read from disks was not measured")
        if later.seconds < self.least_s:
            raise MissingSignal(
                f"{later.seconds:.1f} s after the first epoch were sampled, {self.least_s:.0f} are needed"
            )
        time = worker_time(metrics, found.made)
        if time.disk_ratio is None:
            raise MissingSignal("whether workers wait for disks was not measured")
        miss = min(1.0, later.disk_bytes / max(1.0, later.call_bytes))
        saved = found.gain_without(min(time.waiting_ratio, time.disk_ratio))
        reads = later.disk_bytes >= self.least_bytes_per_s * later.seconds and miss >= self.least_miss_ratio
        if not reads or time.disk_ratio < self.least_disk_ratio or saved is None:
            return None
        epoch_bytes = later.disk_bytes / max(1, later.epochs)
        return self.finding(
            severity=found.severity(metrics.steps.steady_count),
            subject=found.dataset,
            summary=(
                f"Epochs after the first read {_amount(later.disk_bytes)} from disks, {_amount(epoch_bytes)} each: "
                f"{percent(miss)} of all that was read; {found.words}."
            ),
            advice=_advice(metrics, found, epoch_bytes),
            evidence=(
                self.evidence("least_miss_ratio", miss, "read from disks in later epochs, of all that was read"),
                self.evidence("least_disk_ratio", time.disk_ratio, "looks at a worker in state D"),
                self.evidence("least_ratio", *found.waiting),
                Evidence(name="read from disks in an epoch", value=epoch_bytes, unit="bytes"),
                Evidence(name="rate", value=_rate(later), unit="bytes/s"),
                *_memory(metrics),
            ),
            gain=saved,
            confidence=0.8,
            explains=found.explains,
        )


def _rate(later: Reading) -> float:
    return (later.disk_bytes or 0.0) / later.seconds if later.seconds else 0.0


def _amount(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:.3g} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.3g} MB"


def _available(metrics: Metrics) -> float | None:
    """Memory that files could be kept in, of the machine or within the limit of the group."""
    machine, group = metrics.host.machine, metrics.host.cgroup
    free = machine.memory_available_bytes.mean if machine is not None and machine.memory_available_bytes else None
    limit = group.memory_limit_bytes if group is not None else None
    known = [value for value in (free, limit) if value is not None]
    return min(known) if known else None


def _memory(metrics: Metrics) -> tuple[Evidence, ...]:
    free = _available(metrics)
    return () if free is None else (Evidence(name="memory that files could be kept in", value=free, unit="bytes"),)


def _advice(metrics: Metrics, found: Starving, epoch_bytes: float) -> str:
    name = found.state.dataset or "the dataset"
    free = _available(metrics)
    if free is None:
        room = "whether it fits into memory is not known"
    elif epoch_bytes > free:
        room = f"it does not fit into the {_amount(free)} of memory that files could be kept in"
    else:
        room = (
            f"it would fit into the {_amount(free)} of memory that files could be kept in: look for what drops it "
            "(O_DIRECT, posix_fadvise, files that are written anew, other processes that read much)"
        )
    return (
        f"Let {name} read less than {_amount(epoch_bytes)} an epoch: {room}. Store samples smaller (uint8, resized, "
        "compressed), keep a part of them in memory, or in large files that are read in order."
    )
