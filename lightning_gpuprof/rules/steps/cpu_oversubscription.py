"""Finds that this run itself has more busy threads and workers than CPUs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    condition,
    possible,
    steady_period_ms,
    threshold,
    worthwhile,
)
from lightning_gpuprof.rules.steps.cpu_contention import (
    by_this_run,
    computing_workers,
    delay_share,
    others_cpus,
    torch_threads,
)
from lightning_gpuprof.rules.steps.host_time import counted_time
from lightning_gpuprof.rules.wording import counted, cpus, millis, percent


@dataclass(frozen=True, kw_only=True)
class CpuOversubscription(BaseRule):
    """The threads of torch and the DataLoader's workers of this run are more than its CPUs, and wait for each other.

    ## What it means

    torch takes as many threads as the machine has cores, in each rank; workers come on top. In a container with a
    smaller quota, or with several ranks, they share the CPUs, and an operation is done when its last thread has had
    its turn.

    ## How it is measured

    torch's threads plus workers, over the CPUs of this rank (affinity and quota, divided by the ranks on the host). The
    number alone proves nothing: the training thread must wait for a CPU, too (as in `cpu-contention`, whose time it
    explains), nine tenths of the CPUs must be in use, by other processes less than by the run itself, and the run must
    want more than it has by itself: what other programs make it wait is no fault of its threads.

    ## When it is wrong

    - Workers that mostly wait, for a disk for example, do not need a CPU each: where that was measured, they do not
      count, and otherwise they count although they should not.
    - Other libraries' threads (OpenMP, MKL, OpenCV in workers) are not in the number.
    - On a device only the time counts in which the device is idle, which a trace window tells: not evaluated without
      one.

    ## What to do

    `torch.set_num_threads`, or `OMP_NUM_THREADS` per rank, so that threads and workers together fit the CPUs.

    ## Example

    "Set torch.set_num_threads(1): 4 torch threads and 3 workers share 2 CPUs, and the training thread waits for one in
    31 % of the step."
    """

    id = "cpu-oversubscription"
    specialises = ("cpu-contention",)

    most_per_cpu: float = threshold(1.5, source="catalogue")
    least_delay_ratio: float = threshold(0.05, source="as cpu-contention")
    least_use_ratio: float = threshold(0.9, source="heuristic: CPUs with room left are not too few")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the number of threads and workers."""
        period_ms = steady_period_ms(metrics)
        threads = torch_threads(metrics)
        usable_cpus = metrics.cpu.usable_cpus
        if threads is None or not possible(usable_cpus) or usable_cpus <= 0:
            raise MissingSignal("the number of torch's threads or of the CPUs was not measured")
        workers = computing_workers(metrics)
        per_cpu = (threads + workers) / usable_cpus
        if per_cpu <= self.most_per_cpu:
            return None
        share = delay_share(metrics)
        if share.lower_ratio < self.least_delay_ratio or not worthwhile(share.median_ms, period_ms):
            return None
        process, others = metrics.cpu.process_cpus, others_cpus(metrics)
        if process is None or others is None or not possible(process):
            raise MissingSignal("the CPU time of the run or of other processes was not measured")
        own = process + (metrics.cpu.worker_cpus or 0.0)
        if own + others < self.least_use_ratio * usable_cpus or others > own:
            return None
        if not by_this_run(metrics):
            return None
        # not the median time: it was read in a few steps, which may have been longer ones
        waited_ms = min(1.0, share.median_ratio) * period_ms
        time = counted_time(metrics, period_ms, ratio=share.lower_ratio, taken_ms=waited_ms)
        if not time.is_worth(self.least_delay_ratio):
            return None
        who = [counted(threads, "torch thread"), *([counted(workers, "worker")] if workers else [])]
        return self.finding(
            severity=time.severity(min(metrics.steps.steady_count, metrics.cpu.run_delay_samples)),
            subject=", ".join(who),
            summary=(
                f"{' and '.join(who)} share {cpus(usable_cpus)}: the "
                f"training thread waits for one for {millis(waited_ms)} of a step of {millis(period_ms)} "
                f"({percent(min(1.0, share.median_ratio))})."
            ),
            advice=_advice(metrics, threads, workers, usable_cpus),
            evidence=(
                self.evidence("most_per_cpu", per_cpu, "threads and workers per CPU"),
                self.evidence("least_delay_ratio", share.median_ratio, "waiting for a CPU, of the step"),
                Evidence(name="CPUs that this run uses", value=own, unit="CPUs"),
                Evidence(name="CPUs that other processes use", value=others, unit="CPUs"),
            ),
            gain=time.gain,
            confidence=0.7,
            explains=claims.NO_CPU,
        )


def _advice(metrics: Metrics, threads: int, workers: int, usable_cpus: float) -> str:
    room = max(1, math.floor(usable_cpus))
    wanted = max(1, room - workers)
    fewer = f", and num_workers={max(1, room - wanted)} instead of {workers}" if workers + wanted > room + 1 else ""
    ranks = condition(metrics, "trainer.devices")
    each = " in each rank (or OMP_NUM_THREADS)" if isinstance(ranks, int) and ranks > 1 else ""
    if wanted >= threads:
        return f"Use fewer workers: num_workers={max(1, room - threads)} instead of {workers} for {cpus(usable_cpus)}."
    return (
        f"Set torch.set_num_threads({wanted}){each}{fewer}: {cpus(usable_cpus)} are there, {threads + workers} are "
        "wanted."
    )
