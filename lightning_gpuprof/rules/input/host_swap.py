"""The host runs out of memory: pages are read back from swap, or `/dev/shm` is almost full.

## What it means
Memory that was swapped out comes back from disk, page by page, while the process stands still: steps become many times
as long, and irregular. Workers hand over batches through `/dev/shm`; if that is full, they are killed with a bus error.

## How it is measured
Swap: pages were read back in at least three samples (one a second) and a tenth of them, *and* it concerns this run: its
processes had at least ten major faults a second, or all tasks of its control group stood still for memory for at least
5 % of the time (pressure, `full`). The gain is that pressure's share of the step, if it was measured.

Shared memory: with workers, `/dev/shm` was filled to 90 % or more.

## When it is wrong
- Swap traffic is the machine's: another job may be the one that needs the memory.
- Memory-mapped datasets have major faults without any swap: they alone say nothing here.
- `/dev/shm` may be filled by files of others.
- No `/proc/vmstat`, fewer than three samples: not evaluated.

## What to do
Use fewer workers, a smaller `prefetch_factor`, smaller batches, and datasets as arrays rather than lists of objects,
which each worker copies as it touches them. Make `/dev/shm` larger (`docker run --shm-size`), or call
`torch.multiprocessing.set_sharing_strategy("file_system")`.
"""

from lightning_gpuprof.model.host import MAJOR_FAULTS_PER_S, MachineUse
from lightning_gpuprof.model.missing import MissingSignal
from lightning_gpuprof.model.numbers import counted, decimal_size, percent
from lightning_gpuprof.rules.base import BaseRule, Change, Finding, Metrics, Value, claims, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet

_STALLED, _ONE = {"faults": 0.0, "full": 0.2}, {"num_workers": 1, "prefetch_factor": 1}


class HostSwap(BaseRule):
    id = "host-swap"
    title = "The host runs out of memory"

    least_samples: int = threshold(3, source="heuristic: three samples")
    least_samples_ratio: float = threshold(0.10, source="heuristic: rare swapping does not matter")
    least_faults_per_s: float = threshold(MAJOR_FAULTS_PER_S, source="heuristic: a fault costs 0.1 ms (SSD) to 10 ms")
    least_full_ratio: float = threshold(0.05, source="heuristic: memory pressure, full, above 5 %")
    most_shm_ratio: float = threshold(0.90, source="heuristic")

    examples = (
        fires(
            "memory comes from swap",
            "warning",
            "in 24 of 60 samples, 4 MB/s ... 200 MB of memory was free",
            swapping={},
        ),
        fires("2 workers queue 4", "warning", "num_workers=1, prefetch_factor=1). Now ... 4 batches", swapping={}),
        fires("its group stood still", "warning", "memory 20 % of the time", saves_ms=10.0, swapping=_STALLED),
        fires("a tenth of the samples", "warning", "6 of 60 samples", swapping={"count": 6}),
        fires("one worker queues one batch", "warning", "smaller batches", swapping={}, **_ONE),
        fires("shared memory is 90 % full", "warning", "--shm-size", swapping={"count": 0, "shm": 0.9}),
        quiet("fewer samples", swapping={"count": 5}),
        quiet("shared memory is 89 % full", swapping={"count": 0, "shm": 0.89}),
        quiet("/dev/shm is full without workers", swapping={"count": 0, "shm": 0.95}, num_workers=0),
        looks_alike("others are swapped", swapping={"faults": 2.0, "full": 0.01}),
        looks_alike("pages only leave", swapping={"read": 0.0}),
        looks_alike("faults are of mapped files", swapping={"count": 0}),
        not_evaluated("the host was not sampled", "0 samples of the host", swapping={"samples": 0}),
        not_evaluated("nothing was readable", "neither swap traffic", swapping={"count": None, "shm": None}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        step_ms = metrics.step_ms
        machine = metrics.host.machine
        if machine is None or metrics.host.samples < self.least_samples:
            sampled = counted(metrics.host.samples, "sample")
            raise MissingSignal(f"{sampled} of the host, {self.least_samples} are needed")
        workers, shm = metrics.num_workers, machine.shm_used_ratio
        swap = self._swap(metrics, machine, step_ms)
        if swap is not None:
            return swap
        if shm is not None and workers and shm.max >= self.most_shm_ratio:
            return self._shm(metrics, used_ratio=shm.max, workers=workers, size_bytes=machine.shm_size_bytes)
        if machine.swapping_samples is None and shm is None:
            raise MissingSignal("neither swap traffic nor /dev/shm was readable")
        return None

    def _swap(self, metrics: Metrics, machine: MachineUse, step_ms: float) -> Finding | None:
        samples = metrics.host.samples
        if machine.swapping_samples is None or machine.swap_in_bytes_per_s is None:
            return None
        swapping, read = machine.swapping_samples, machine.swap_in_bytes_per_s.mean
        if swapping < max(self.least_samples, self.least_samples_ratio * samples) or not read > 0:
            return None
        waits = "all tasks of the group wait for memory"
        faults, full = metrics.host.major_faults_per_s, metrics.host.memory_stall_ratio
        stalled = full is not None and full >= self.least_full_ratio
        if faults < self.least_faults_per_s and not stalled:
            return None
        change, least = _fewer_batches(metrics), machine.memory_available_min_bytes
        free = "" if least is None else f" At the lowest point, {decimal_size(least)} of memory was free."
        return self.finding(
            severity="warning",
            subject="swap",
            summary=f"Memory was read back from swap in {swapping} of {samples} samples, {decimal_size(read)}/s on "
            f"average. This run had {faults:,.0f} major faults per second"
            + (f" and was stalled on memory {percent(full)} of the time." if full is not None else "."),
            advice=f"{_less_memory(metrics, change)}{free}",
            change=change,
            evidence=(
                self.evidence("least_samples", swapping, "samples with swap traffic"),
                self.fact("read back from swap", read, "bytes/s"),
                self.evidence("least_faults_per_s", faults, "major faults of this run", "1/s"),
                None if full is None else self.evidence("least_full_ratio", full, waits),
            ),
            cost=metrics.cost(full * step_ms, full * step_ms) if stalled and full is not None else None,
            confidence=0.7,
            explains=claims.SWAPPING,
        )

    def _shm(self, metrics: Metrics, *, used_ratio: float, workers: int, size_bytes: float | None) -> Finding:
        size = "" if size_bytes is None else f" of {decimal_size(size_bytes)}"
        change = _fewer_batches(metrics)
        return self.finding(
            severity="warning",
            subject="/dev/shm",
            summary=f"/dev/shm{size} was {percent(used_ratio)} full: {counted(workers, 'worker')} use it.",
            advice=(
                f"Make it larger (docker run --shm-size; Kubernetes: an emptyDir with medium: Memory), or call "
                f'torch.multiprocessing.set_sharing_strategy("file_system") before the loaders are made. '
                f"{_less_memory(metrics, change)}"
            ),
            change=change,
            evidence=(
                self.evidence("most_shm_ratio", used_ratio, "/dev/shm used, at most"),
                self.fact("num_workers", workers),
            ),
            confidence=0.7,
        )


def _fewer_batches(metrics: Metrics) -> Change | None:
    """Half as many workers and batches of each; None where that is one already."""
    loader = metrics.loader
    if loader is None or not loader.num_workers:
        return None
    now: dict[str, Value] = {"num_workers": loader.num_workers, "prefetch_factor": loader.prefetch_factor or 2}
    half: dict[str, Value] = {name: max(1, int(value or 1) // 2) for name, value in now.items()}
    return None if half == now else Change(call="DataLoader", arguments=half, before=now)


def _less_memory(metrics: Metrics, change: Change | None) -> str:
    if change is None:
        return "Keep less in memory: use smaller batches, or a dataset that is memory-mapped or read in pieces."
    workers, prefetch = (int(value or 0) for value in change.before.values())
    use = metrics.host.workers
    own = "" if use is None or use.uss_bytes is None else f" The workers hold {decimal_size(use.uss_bytes.mean)}."
    return (
        f"Keep fewer batches and processes in memory: {change.added[0]}. Now {counted(workers, 'worker')} queue "
        f"{workers * prefetch} batches.{own}"
    )
