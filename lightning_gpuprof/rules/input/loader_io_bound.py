"""Steps wait for batches while the workers that load them wait, too, without using a CPU.

## What it means
A worker that reads from a slow disk or a network, sleeps, or waits for a lock uses no CPU. Faster storage, larger reads
and more workers that wait at the same time help; more CPUs or cheaper transforms do not.

## How it is measured
Steps wait for at least a tenth of their time because batches are made too slowly (verdict `processing` of the input
pipeline). While it makes batches, the typical worker is neither on a CPU nor ready for one for at least half of the
time (sampled once a second). If a fifth of the samples found it in state D, in which Linux waits for disks, the disk is
blamed. The gain is that part of loading a batch, divided by the number of workers, and at most the wait.

## When it is wrong
- Network file systems and memory-mapped files may or may not show as state D.
- A worker that waits for its own processes or threads shows as waiting, whatever those do.
- Fewer than five samples of a worker, no run-queue time (`/proc/PID/schedstat`): not evaluated.

## What to do
Copy the data to a local disk or `/dev/shm`; store it in large files that are read in order (webdataset, litdata); use
more workers than CPUs; raise `prefetch_factor` against single slow reads.
"""

from lightning_gpuprof.model.loading import Starving
from lightning_gpuprof.model.worker_time import WorkerTime
from lightning_gpuprof.rules.base import Finding, Metrics, counted, decimal_size, measured, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.input.loading import loader_change
from lightning_gpuprof.rules.input.starving import StarvingRule, cost_of_part

_LITTLE_READING_BYTES_PER_S = 100e3
"""Reading by system calls that no dataset of files does with. Heuristic: workers that only slept read 3 kB/s."""


_HOST = {"usable_cpus": 2.0, "worker_cpus": 0.1, "process_cpus": 0.1}


def _waits(**worker: float) -> dict[str, object]:
    return {**_HOST, "each_worker": {"cpu": 0.05, "delay": 0.02, "read_bytes_per_s": 2e3, **worker}}


class LoaderIoBound(StarvingRule):
    id = "loader-io-bound"
    title = "DataLoader workers mostly wait"
    needs = "workers"
    specialises = ("input-bound", "step-outliers")

    least_waiting_ratio: float = threshold(0.50, source="heuristic: worker CPU below 50 %")
    least_ratio: float = threshold(0.10, source="heuristic: a tenth of the step is wait")
    least_disk_ratio: float = threshold(
        0.20, source="heuristic: IO pressure above 20 %, here of the workers themselves"
    )

    examples = (
        fires("two sleep", "critical", "93 % ... other than a CPU or a disk ... 2 kB/s ... num_workers=5)", **_waits()),
        fires("workers wait for a disk", "critical", "reads 40 MB/s)", **_waits(disk=0.6, read_bytes_per_s=40e6)),
        fires("no disk is involved", "critical", "network file system, database, lock", **_waits(read_bytes_per_s=5e6)),
        quiet("workers wait for a CPU", **_HOST, each_worker={"cpu": 0.2, "delay": 0.75}),
        quiet("workers wait for work", **_HOST, each_worker={"cpu": 0.5, "delay": 0.02}, idle_ratio=0.4),
        quiet("batches are made in time", **_waits(), items_ms=12.0),
        looks_alike("workers compute", **_HOST, each_worker={"cpu": 0.95}),
        not_evaluated("workers were not sampled", "was not sampled", **_HOST, each_worker=None),
    )

    def judge(self, metrics: Metrics, found: Starving) -> Finding | None:
        time = measured(found.state.worker_time)
        cost = cost_of_part(metrics, found, time.waiting_ratio)
        if time.waiting_ratio < self.least_waiting_ratio or not cost.is_worth():
            return None
        disk = time.disk_ratio is not None and time.disk_ratio >= self.least_disk_ratio
        workers = found.state.num_workers
        waits, in_disk = "workers wait for no CPU, share of loading batches", "samples of a worker in state D"
        spend = "spends" if workers == 1 else "spend"
        plan = found.state.better_plan if found.state.cpu_bound is False else None
        change = None if plan is None else loader_change(metrics, plan.num_workers)
        until = "" if change is None else f" Until then, let more workers wait at the same time: {change.added[0]}."
        return self.of_starving(
            metrics,
            found,
            cost,
            subject=found.dataset,
            summary=f"{counted(workers, 'worker')} {spend} {percent(time.waiting_ratio)} of the loading time waiting "
            f"{_for_what(time, disk=disk)}.",
            advice=f"{_advice(found.state.dataset or 'DataLoader', time, disk=disk)}{until}",
            evidence=(
                self.evidence("least_waiting_ratio", time.waiting_ratio, waits),
                self.fact("workers compute, share of loading batches", time.cpu_ratio, "ratio"),
                self.waiting(found),
                self.fact("time to load a batch", found.make_ms, "ms"),
                self.fact("num_workers", workers),
                self.fact("samples of a worker", time.samples),
                None if time.disk_ratio is None else self.evidence("least_disk_ratio", time.disk_ratio, in_disk),
                self.fact("read by a worker", time.read_bytes_per_s, "bytes/s"),
            ),
            confidence=0.85 if disk else 0.7,
            change=change,
        )


def _for_what(time: WorkerTime, *, disk: bool) -> str:
    if disk:
        return "for a disk"
    return "for something other than a CPU" if time.disk_ratio is None else "for something other than a CPU or a disk"


def _advice(name: str, time: WorkerTime, *, disk: bool) -> str:
    read = time.read_bytes_per_s
    if disk:
        rate = "" if read is None else f" (a worker reads {decimal_size(read)}/s)"
        return (
            f"Make {name} read less or faster{rate}: copy the data to a local disk or /dev/shm, or store samples in "
            "large files that are read in order."
        )
    if read is not None and read < _LITTLE_READING_BYTES_PER_S:
        return (
            f"Look for sleeps, locks, network requests or subprocesses in {name}: a worker reads only "
            f"{decimal_size(read)}/s."
        )
    return (
        f"Speed up what {name} waits for (network file system, database, lock): copy the data to a local disk, or read "
        "larger pieces."
    )
