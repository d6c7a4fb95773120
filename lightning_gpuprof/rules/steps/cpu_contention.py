"""Threads and workers of this run share too few CPUs, so the main thread waits for one.

## What it means
torch's threads and the DataLoader's workers compete for too few CPUs. Every phase that computes on the host takes
longer.

## How it is measured
The kernel counts how long each thread was ready to run but had no CPU (`/proc/PID/schedstat`). The count is read in
sampled steps, and the lower bound of the median share of the step must pass the threshold. The gain is the waiting
time.

The run itself must be the cause. One of these must hold:

- it needs 5 % more than its usable CPUs: CPU time of process and workers, plus what their main threads waited;
- it uses 95 % of its usable CPUs;
- the quota of its control group ran out in a tenth of the periods.

## When it is wrong
- If the run alone would fit into its CPUs, other programs make it wait. The report then has a caveat and no finding.
  Under such a load, a run that needs too many CPUs as well may go unnoticed.
- The measured wait is a lower bound. Waits of other threads, and CPU time that a hypervisor takes (steal), do not
  count.
- On a GPU, only time in which the device idles counts. Without a trace window the rule is not evaluated.

## What to do
Use as many threads and workers as there are CPUs, or more workers if the step needs them, but no more than keep up with
it. If fewer than now could not keep up, only more CPUs or a cheaper batch help: then the finding is information,
however long the wait, and a finding on the batches counts this time as its own.
"""

from lightning_gpuprof.model.waiting import MIN_SAMPLES
from lightning_gpuprof.rules.base import BaseRule, Evidence, Finding, Metrics, counted, cpus, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.steps.contention import fitting, waiting_for_cpu

_CROWDED = {"num_workers": 4, "process_cpus": 1.0, "worker_cpus": 3.0, "run_delay_ms": 8.0}
_NEEDED = {"workers": 3, "enough": 4, "process_cpus": 1.0, "worker_cpus": 3.0, "run_delay_ms": 8.0}
_NAMED_CPUS = 0.25
"""CPUs of other programs from which they are named (heuristic, as where runs are compared)."""
_TWO_THREADS = {**_CROWDED, "run": {"torch.num_threads": 2}, "worker_cpus": 1.0, "usable_cpus": 2.0}


class CpuContention(BaseRule):
    id = "cpu-contention"
    title = "The main thread waits for a free CPU"

    least_ratio: float = threshold(0.05, source="heuristic")

    examples = (
        fires("4 workers and the step need more than 4 CPUs", "warning", "num_workers=3 instead of 4", **_CROWDED),
        fires("2 torch threads and 4 workers", "warning", "torch.set_num_threads(1)", **_TWO_THREADS),
        fires("all workers are needed", "info", "No setting helps", **_NEEDED),
        quiet("the thread hardly waits", **{**_CROWDED, "run_delay_ms": 0.1}),
        looks_alike("another program uses the CPUs", num_workers=4, run_delay_ms=10.0),
        not_evaluated("the kernel counts no waiting", "schedstat", num_workers=4),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        cost = waiting_for_cpu(metrics, self.least_ratio)
        if cost is None:
            return None
        cpu, found, usable_cpus = metrics.cpu, metrics.contention, cpus(metrics.cpu.usable_cpus)
        threads, workers = counted(found.threads or 1, "torch thread"), counted(found.workers, "worker")
        others = found.others_cpus or 0.0
        beside = f", and other programs take {cpus(others)}" if others >= _NAMED_CPUS else ""
        cause = f"This run needs all {usable_cpus} for {threads} and {workers}{beside}"
        if found.by_quota:
            cause = f"The container's CPU quota ran out in {percent(found.quota_exhausted_ratio or 0.0)} of its periods"
        fit = fitting(metrics)
        return self.finding(
            subject="CPU quota" if found.by_quota else "this run's own threads and workers",
            summary=f"The main thread waits {cost} for a free CPU. {cause}.",
            advice=fit.advice,
            leaves=fit.leaves,
            severity=fit.severity,
            title=fit.title,
            evidence=(
                self.evidence("least_ratio", cost.ratio, "waiting for a CPU, share of the step"),
                Evidence(name="sampled steps", value=cpu.run_delay_samples, limit=MIN_SAMPLES),
                self.fact("usable CPUs", cpu.usable_cpus, "CPUs"),
                self.fact("used by other ranks", found.ranks_cpus, "CPUs"),
                self.fact("used by other processes", found.others_cpus, "CPUs"),
                self.fact("used by the main process", cpu.process_cpus, "CPUs"),
                self.fact("used by workers", cpu.worker_cpus, "CPUs"),
            ),
            cost=cost,
            confidence=0.85 if found.by_quota else 0.8,
            explains=fit.explains,
        )
