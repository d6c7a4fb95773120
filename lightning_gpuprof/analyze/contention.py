"""From CPU times, host samples and the loader to who takes the CPUs of the run."""

from __future__ import annotations

from lightning_gpuprof.model.contention import Contention
from lightning_gpuprof.model.cpu_demand import exceeds_its_cpus, quota_exhausted_ratio
from lightning_gpuprof.model.host import Level
from lightning_gpuprof.model.loading import Loading
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import Unmeasured
from lightning_gpuprof.model.numbers import possible
from lightning_gpuprof.model.share import Share, usable
from lightning_gpuprof.model.signals import condition
from lightning_gpuprof.model.waiting import MIN_SAMPLES


def contention(metrics: Metrics) -> Contention:
    """Who takes the CPUs.

    Args:
        metrics: The run; its ``loading`` is read.
    """
    threads, machine, state = condition(metrics, "torch.num_threads"), metrics.host.machine, metrics.loading
    workers = max(0, metrics.loader.num_workers or 0) if metrics.loader is not None else 0
    waits = isinstance(state, Loading) and state.made is not None and state.cpu_bound is False
    return Contention(
        delay=_delay(metrics),
        by_this_run=exceeds_its_cpus(metrics.cpu, metrics.host),
        quota_exhausted_ratio=quota_exhausted_ratio(metrics.host),
        threads=threads if isinstance(threads, int) and threads >= 1 else None,
        workers=workers,
        computing_workers=0 if waits else workers,
        others_cpus=None if machine is None else _mean(machine.cpu_others_cpus),
        ranks_cpus=None if machine is None else _mean(machine.cpu_ranks_cpus),
    )


def _delay(metrics: Metrics) -> Share | Unmeasured:
    share, samples = metrics.cpu.run_delay, metrics.cpu.run_delay_samples
    if share is None or not usable(share):
        return Unmeasured(why="waiting for a CPU was not measured: the kernel has no schedstat")
    if samples < MIN_SAMPLES:
        return Unmeasured(why=f"waiting for a CPU was sampled in {samples} of the {MIN_SAMPLES} steps needed")
    return share


def _mean(level: Level | None) -> float | None:
    return level.mean if level is not None and possible(level.mean) else None
