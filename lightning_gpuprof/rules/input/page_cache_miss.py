"""Steps wait for workers that wait for a disk, and later epochs read as much from it as the first: nothing is cached.

## What it means
The operating system keeps files in free memory. From the second epoch on, a dataset that fits is read from there. A
dataset that is larger than the free memory, or than the container's limit, is read from the disk in each epoch.

## How it is measured
Three conditions must hold:

- steps wait for at least a tenth of their time because batches are made too slowly (verdict `processing`);
- a fifth of the samples finds the typical worker waiting for the disk (state D);
- in later epochs, at least half of what the run reads by system calls comes from disks, at 5 MB/s or more.

The gain is the time that workers wait for the disk, divided by the workers.

## When it is wrong
- Memory-mapped data are not read by system calls: the share is then taken as 1.
- Datasets that give each sample once, or new files in each epoch, cannot be cached.
- Network file systems may not count as disks: the rule is then silent.
- No bytes (`/proc/PID/io`), less than five seconds after the first epoch: not evaluated.

## What to do
Make the data smaller (compressed, uint8, resized), keep a part in memory, use shards that are read in order, or ask for
more memory: the page cache counts towards the container's limit.
"""

from lightning_gpuprof.model.loading import Starving
from lightning_gpuprof.rules.base import Finding, Metrics, MissingSignal, decimal_size, measured, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.input.starving import StarvingRule, cost_of_part

_WORKER = {"cpu": 0.2, "delay": 0.05, "disk": 0.6}
_UNKNOWN = {**_WORKER, "disk": None}
_DISK = {"usable_cpus": 2.0, "worker_cpus": 0.4, "each_worker": _WORKER}


def _again(**later: float | None) -> dict[str, object]:
    return {**_DISK, "later_epochs": {"epochs": 7, "seconds": 13.0, "disk_bytes": 11e9, "call_bytes": 10e9, **later}}


class PageCacheMiss(StarvingRule):
    id = "page-cache-miss"
    title = "Every epoch reads the data from disk"
    specialises = ("input-bound", "loader-io-bound", "step-outliers")

    least_miss_ratio: float = threshold(0.50, source="heuristic: half of what is read")
    least_disk_ratio: float = threshold(0.20, source="heuristic: as loader-io-bound")
    least_ratio: float = threshold(0.10, source="heuristic: a tenth of the step is wait")
    least_bytes_per_s: float = threshold(5e6, source="heuristic: less is no dataset")
    least_s: float = threshold(5.0, source="heuristic: five samples")

    examples = (
        fires("all is read again", "critical", "reads 1.57 GB from disk: 100 % ... Only 1 GB of memory", **_again()),
        fires("it would fit", "critical", "would fit into the 1 GB", **_again(disk_bytes=5e9, call_bytes=5e9)),
        quiet("half is cached", **_again(disk_bytes=4.9e9)),
        quiet("workers read little", **_again(disk_bytes=1e6, call_bytes=1e6)),
        quiet("steps do not wait", **_again(), items_ms=12.0),
        quiet("there is one epoch", **_DISK),
        looks_alike("workers do not wait for the disk", **{**_again(), "each_worker": {**_WORKER, "disk": 0.1}}),
        not_evaluated("reading is unknown", "was not measured", **_again(disk_bytes=None)),
        not_evaluated("4 s are sampled", "4.0 s after the first epoch", **_again(seconds=4.0)),
        not_evaluated("waits are unknown", "whether workers wait", **{**_again(), "each_worker": _UNKNOWN}),
    )

    def judge(self, metrics: Metrics, found: Starving) -> Finding | None:
        later = metrics.host.later_epochs
        if later is None:
            return None
        if later.disk_bytes is None or later.call_bytes is None:
            raise MissingSignal("what was read from disks was not measured")
        if later.seconds < self.least_s:
            sampled = f"{later.seconds:.1f} s after the first epoch were sampled"
            raise MissingSignal(f"{sampled}, {self.least_s:.0f} are needed")
        time = measured(found.state.worker_time)
        if time.disk_ratio is None:
            raise MissingSignal("whether workers wait for disks was not measured")
        miss = min(1.0, later.disk_bytes / max(1.0, later.call_bytes))
        cost = cost_of_part(metrics, found, min(time.waiting_ratio, time.disk_ratio))
        reads = later.disk_bytes >= self.least_bytes_per_s * later.seconds and miss >= self.least_miss_ratio
        if not reads or time.disk_ratio < self.least_disk_ratio or not cost.is_worth():
            return None
        epoch_bytes, free = later.disk_bytes / max(1, later.epochs), metrics.host.cacheable_bytes
        return self.of_starving(
            metrics,
            found,
            cost,
            subject=found.dataset,
            summary=(f"Each later epoch reads {decimal_size(epoch_bytes)} from disk: {percent(miss)} of its data."),
            advice=_advice(found.dataset, epoch_bytes, free),
            evidence=(
                self.evidence("least_miss_ratio", miss, "read from disk in later epochs, share of all reads"),
                self.evidence("least_disk_ratio", time.disk_ratio, "samples of a worker in state D"),
                self.waiting(found),
                self.fact("read from disk per epoch", epoch_bytes, "bytes"),
                self.fact("read from disk", later.disk_bytes / later.seconds, "bytes/s"),
                self.fact("memory free for cached files", free, "bytes"),
            ),
            confidence=0.8,
        )


def _advice(name: str, epoch_bytes: float, free: float | None) -> str:
    why = "" if free is None else f" Only {decimal_size(free)} of memory can cache files."
    if free is not None and epoch_bytes <= free:
        why = (
            f" It would fit into the {decimal_size(free)} of memory that can cache files, so find what evicts it "
            "(O_DIRECT, posix_fadvise, files rewritten, other processes)."
        )
    return (
        f"Make {name} read less than {decimal_size(epoch_bytes)} per epoch: store samples smaller (uint8, resized, "
        f"compressed), keep a part in memory, or use large files that are read in order.{why}"
    )
