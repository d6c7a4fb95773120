"""Finds that steps wait for workers which wait themselves: for a disk, or for something else that is not a CPU."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import threshold
from lightning_gpuprof.rules.input.loading import code_line
from lightning_gpuprof.rules.input.starving import Starving, StarvingRule
from lightning_gpuprof.rules.input.worker_time import WorkerTime, worker_time
from lightning_gpuprof.rules.wording import counted, millis, percent

_LITTLE_READING_BYTES_PER_S = 100e3
"""Reading by system calls that no dataset of files does with. Heuristic: workers that only slept read 3 kB/s."""


@dataclass(frozen=True, kw_only=True)
class LoaderIoBound(StarvingRule):
    """Steps wait for batches, and the workers that make them wait as well, without using a CPU.

    ## What it means

    A worker that reads from a slow disk or a network, sleeps, or waits for a lock uses no CPU. More CPUs or cheaper
    transforms do not help it; storage that answers faster, larger reads, and more workers that wait at the same time
    do.

    ## How it is measured

    Steps wait for batches for certain, at least a tenth of their time, and because these are made too slowly (verdict
    `processing` of the input pipeline). Of the time that the typical worker spends on making batches (its wait for work
    is taken off), at least half must be neither on a CPU nor ready for one; both are sampled once a second.

    Which kind of wait it is comes from the looks themselves: if at least a fifth of them found the workers in the
    uninterruptible state in which Linux waits for disks (D), the disk is blamed;
    else the finding says "waiting (not CPU)". What the machine's disks do as a whole blames nobody: it is everybody's.

    The gain is that part of a batch's making, over the workers, and at most the wait.

    ## When it is wrong

    - Network file systems and memory-mapped files may or may not show as state D.
    - A worker that waits for processes or threads of its own shows as waiting, whatever those do.
    - Fewer than five samples of a worker (one a second), no run-queue time (`/proc/PID/schedstat`): not evaluated.

    ## What to do

    Copy the data to a local disk or `/dev/shm`; store it in large files that are read in order (webdataset, litdata)
    rather than one file per sample; more workers than CPUs, as they do not compete for these; a larger
    `prefetch_factor` against single slow reads.

    ## Example

    Two workers, items that wait 5 ms each: "2 workers wait in 96 % of the time that they make batches in, for something
    that is not a CPU: waiting (not CPU), no disk was seen."
    """

    id = "loader-io-bound"
    specialises = ("input-bound", "step-outliers")

    least_waiting_ratio: float = threshold(0.50, source="catalogue: worker CPU below 50 %")
    least_ratio: float = threshold(0.10, source="catalogue: a tenth of the step is wait")
    least_disk_ratio: float = threshold(
        0.20, source="catalogue: IO pressure above 20 %, here of the workers themselves"
    )

    def judge(self, metrics: Metrics, found: Starving) -> Finding | None:
        """Judge loaders with workers."""
        time = worker_time(metrics, found.made)
        saved = found.gain_without(time.waiting_ratio)
        if time.waiting_ratio < self.least_waiting_ratio or saved is None:
            return None
        disk = time.disk_ratio is not None and time.disk_ratio >= self.least_disk_ratio
        workers = found.state.num_workers
        one = workers == 1
        evidence = [
            self.evidence("least_waiting_ratio", time.waiting_ratio, "workers wait (not CPU), share of making batches"),
            Evidence(name="workers compute, share of making batches", value=time.cpu_ratio, unit="ratio"),
            self.evidence("least_ratio", *found.waiting),
            Evidence(name="time to make a batch", value=found.make_ms, unit="ms"),
            Evidence(name="num_workers", value=workers),
            Evidence(name="samples of a worker", value=time.samples),
        ]
        if time.disk_ratio is not None:
            evidence.append(self.evidence("least_disk_ratio", time.disk_ratio, "looks at a worker in state D"))
        if time.read_bytes_per_s is not None:
            evidence.append(Evidence(name="read by a worker", value=time.read_bytes_per_s, unit="bytes/s"))
        return self.finding(
            severity=found.severity(metrics.steps.steady_count),
            subject=found.dataset,
            summary=(
                f"{counted(workers, 'worker')} {'waits' if one else 'wait'} in {percent(time.waiting_ratio)} of the "
                f"time that {'it makes' if one else 'they make'} batches in, "
                f"{_for_what(time, disk=disk)}; {found.words}."
            ),
            advice=_advice(found, time, disk=disk),
            evidence=tuple(evidence),
            gain=saved,
            confidence=0.85 if disk else 0.7,
            explains=found.explains,
        )


def _for_what(time: WorkerTime, *, disk: bool) -> str:
    if disk:
        return f"for a disk: {percent(time.disk_ratio or 0.0)} of the looks found one in state D"
    seen = "state D was not read" if time.disk_ratio is None else "no disk was seen"
    return f"for something that is not a CPU: waiting (not CPU), {seen}"


def _advice(found: Starving, time: WorkerTime, *, disk: bool) -> str:
    state = found.state
    name = state.dataset or "the dataset"
    waited_ms = time.waiting_ratio * found.make_ms
    plan = state.better_plan
    more = (
        f" Until then let more workers wait at the same time: {code_line(state, plan.num_workers)} instead of "
        f"num_workers={state.num_workers}; they compete for no CPU."
        if plan is not None and state.cpu_bound is False
        else ""
    )
    if disk:
        rate = "" if time.read_bytes_per_s is None else f" (a worker reads {time.read_bytes_per_s / 1e6:.3g} MB/s)"
        how = (
            f"Make {name} read less or faster{rate}: copy the data to a local disk or /dev/shm, "
            "or store samples in large files that are read in order"
        )
    elif time.read_bytes_per_s is not None and time.read_bytes_per_s < _LITTLE_READING_BYTES_PER_S:
        how = (
            f"Look for sleeps, locks, requests over a network or processes in {name}: a worker "
            f"reads only {time.read_bytes_per_s / 1e3:.3g} kB/s by system calls meanwhile"
        )
    else:
        how = (
            f"Make what {name} waits for answer faster (a network file system, a database, a "
            "lock): copy the data to a local disk, or read larger pieces at a time"
        )
    whole = f"Of the {millis(found.make_ms)} that a batch takes to make, {millis(waited_ms)} are such waiting."
    return f"{how}. {whole}{more}"
