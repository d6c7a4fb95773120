"""torch's threads and the DataLoader's workers outnumber the CPUs of this run and wait for each other.

## What it means
torch starts as many threads as the machine has cores, in each rank; workers come on top. In a container with a smaller
quota, or with several ranks, they share the CPUs, and an operation ends only when its last thread has had its turn.

## How it is measured
Threads plus workers, over the CPUs of this rank (affinity and quota, divided by the ranks on the host). Also, the main
thread must wait for a CPU (as in `cpu-contention`, whose time it explains), nine tenths of the CPUs must be in use,
mostly by this run, and the run must need more than it has.

## When it is wrong
- Workers that mostly wait, for a disk for example, need no CPU. They are left out only where that was measured.
- Threads of other libraries (OpenMP, MKL, OpenCV in workers) are not counted.
- On a GPU only the time counts in which the device is idle: not evaluated without a trace window.

## What to do
Fit threads and workers into the CPUs: `torch.set_num_threads`, or `OMP_NUM_THREADS` per rank. Where all of them are
needed, no setting helps, and the finding is information.
"""

from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, Finding, Metrics, MissingSignal, counted, cpus, possible, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.steps.contention import fitting, waiting_for_cpu

_LOAD = {"run_delay_ms": 20.0, "process_cpus": 3.4, "worker_cpus": 0.5, "cpus_of_others": 0.0}
_MANY = {**_LOAD, "run": {"torch.num_threads": 8}}


class CpuOversubscription(BaseRule):
    id = "cpu-oversubscription"
    title = "Threads and workers outnumber the CPUs"
    specialises = ("cpu-contention",)

    most_per_cpu: float = threshold(1.5, source="heuristic")
    least_delay_ratio: float = threshold(0.05, source="as cpu-contention")
    least_use_ratio: float = threshold(0.9, source="heuristic: CPUs with room left are not too few")

    examples = (
        fires("8 threads and 2 workers on 4 CPUs", "critical", "torch.set_num_threads(2)", **_MANY),
        fires("9 workers on 4 CPUs", "critical", "num_workers=3 instead of 9", **{**_LOAD, "num_workers": 9}),
        quiet("8 threads that need not wait", **{**_MANY, "run_delay_ms": 0.5}),
        looks_alike("other programs use the CPUs", **{**_MANY, "process_cpus": 1.0, "cpus_of_others": 3.0}),
        not_evaluated("the load by others is not known", "other processes", **{**_MANY, "cpus_of_others": None}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        metrics.require_steady()
        cpu, found = metrics.cpu, metrics.contention
        threads, workers, usable_cpus = found.threads, found.computing_workers, cpu.usable_cpus
        if threads is None or not possible(usable_cpus) or usable_cpus <= 0:
            raise MissingSignal("the number of torch threads or of CPUs is not known")
        per_cpu = (threads + workers) / usable_cpus
        cost = waiting_for_cpu(metrics, self.least_delay_ratio) if per_cpu > self.most_per_cpu else None
        if cost is None:
            return None
        if cpu.process_cpus is None or found.others_cpus is None or not possible(cpu.process_cpus):
            raise MissingSignal("the CPU time of this run or of other processes was not measured")
        own, others = cpu.process_cpus + (cpu.worker_cpus or 0.0), found.others_cpus
        if own + others < self.least_use_ratio * usable_cpus or others > own:
            return None
        who = [counted(threads, "torch thread"), *([counted(workers, "worker")] if workers else [])]
        fit = fitting(metrics)
        return self.finding(
            subject=", ".join(who),
            summary=f"{' and '.join(who)} share {cpus(usable_cpus)}. The main thread waits {cost} for a free one.",
            advice=fit.advice,
            leaves=fit.leaves,
            severity=fit.severity,
            title=fit.title,
            evidence=(
                self.evidence("most_per_cpu", per_cpu, "threads and workers per CPU"),
                self.evidence("least_delay_ratio", cost.ratio, "waiting for a CPU, share of the step"),
                self.fact("used by this run", own, "CPUs"),
                self.fact("used by other processes", others, "CPUs"),
            ),
            cost=cost,
            confidence=0.7,
            explains=claims.NO_CPU,
        )
