"""The workers compute on pools of threads of their own, which together are more than the usable CPUs.

## What it means
torch sets its own threads to one in each worker. OpenCV, MKL and OpenMP libraries, or a call of `torch.set_num_threads`
in the dataset, start as many threads in each worker as there are CPUs. Workers times threads then compete for the CPUs,
with each other and with the main thread.

## How it is measured
The most threads of the typical worker, less the two that every worker has beside its main one, times the number of
workers, must pass 1.5 times the usable CPUs. That a pool exists does not show that it works: a worker's CPU time and
its main thread's time in the run queue add up to at most 1 with one thread, and their sum must pass 1.2. And it must
matter: steps wait for batches that are made too slowly, or the main thread is without a CPU for 5 % of the step. What
fewer threads gain cannot be bounded: measure it (`gpuprof compare`).

## When it is wrong
- If other processes hold the CPUs, the sum stays small and the rule is silent, although pools are there.
- On CPUs that idle, threads in workers make batches faster: the run queue must show that CPUs are short.
- Fewer than three samples of a worker (one a second), no `/proc`: not evaluated.

## What to do
In the dataset or in `worker_init_fn`: `torch.set_num_threads(1)`, `cv2.setNumThreads(0)`; in the environment
`OMP_NUM_THREADS=1`. Parallel work comes from the workers.
"""

from __future__ import annotations

from statistics import median

from lightning_gpuprof.model.missing import MissingSignal, measured
from lightning_gpuprof.model.numbers import counted, cpus
from lightning_gpuprof.model.worker_time import sampled_rows
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, Change, Evidence, Finding, Metrics, condition, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet

_OWN_THREADS = 2
"""Threads of a worker that do not compute: one that feeds the queue, one of multiprocessing. Heuristic: workers that
only index tensors have three with their main thread."""


_ONE_THREAD = Change(add=("DataLoader(..., worker_init_fn=lambda _: torch.set_num_threads(1))",))


def _each(**worker: float | None) -> dict[str, object]:
    return {
        "each_worker": {"cpu": 0.95, "delay": 0.6, "threads": 6.0, **worker},
        "usable_cpus": 2.0,
        "worker_cpus": 1.9,
    }


_POOLS = _each()


class WorkerThreadOversub(BaseRule):
    id = "worker-thread-oversub"
    title = "DataLoader workers compute on too many threads"
    specialises = ("input-bound", "loader-cpu-bound", "step-outliers", "cpu-contention", "cpu-oversubscription")

    most_threads_ratio: float = threshold(1.5, source="catalogue, heuristic: threads of all workers over usable CPUs")
    least_sum_ratio: float = threshold(1.2, source="heuristic: one thread computes and queues for 1.0 together")
    least_queued_ratio: float = threshold(0.10, source="heuristic: below it CPUs are not short")
    least_delay_ratio: float = threshold(0.05, source="catalogue: run-queue time of the main thread")
    least_samples: int = threshold(3, source="heuristic: without this rule cpu-contention says that no setting helps")

    examples = (
        fires(
            "workers have four threads", "warning", "on 4 threads each, 8 for 2 CPUs ... OMP_NUM_THREADS=1", **_POOLS
        ),
        fires("one thread could do 99 % of it", "warning", "compute on 4 threads", **_each(cpu=0.61)),
        fires("they were sampled three times", "warning", "compute on 4 threads", **_each(samples=3)),
        fires("three halves of the CPUs", "warning", "for 2 CPUs", **_each(threads=3.6)),
        quiet("little more than one thread can do", **_each(cpu=0.59)),
        quiet("fewer threads", **_each(threads=3.5)),
        quiet("no step waits", **_POOLS, items_ms=12.0),
        quiet("there are no workers", **{**_POOLS, "workers": 0}),
        looks_alike("the pools do nothing", **_each(cpu=0.5, delay=0.1)),
        looks_alike("one thread waits for a CPU", **_each(cpu=0.4, threads=3.0)),
        looks_alike("there are CPUs enough", **{**_each(cpu=3.0, delay=0.02), "usable_cpus": 16.0}),
        looks_alike("no thread waits for a CPU", **_each(cpu=3.0, delay=0.02)),
        not_evaluated("the workers were not sampled", "was not sampled", items_ms=39.0),
        not_evaluated("they were sampled twice", "sampled 2 times, 3 are needed", **_each(samples=2)),
        not_evaluated("the run queue is not known", "run-queue time", **_each(delay=None)),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        state = measured(metrics.loading)
        if not state.num_workers or not self._matters(metrics):
            return None
        rows = sampled_rows(metrics.host.worker_rows, self.least_samples)
        threads = [row.use.threads_count for row in rows if row.use.threads_count is not None]
        spent = [
            (row.use.cpu_cpus.mean, row.use.run_delay_ratio.mean)
            for row in rows
            if row.use.cpu_cpus is not None and row.use.run_delay_ratio is not None
        ]
        if not threads or not spent:
            raise MissingSignal("threads, CPU time or run-queue time of the DataLoader workers were not measured")
        each = max(1.0, median(threads) - _OWN_THREADS)
        ratio = each * state.num_workers / state.usable_cpus if state.usable_cpus > 0 else 0.0
        working, queued = median(cpu + delay for cpu, delay in spent), median(delay for _, delay in spent)
        if ratio <= self.most_threads_ratio or working < self.least_sum_ratio or queued < self.least_queued_ratio:
            return None
        return self.finding(
            severity="warning",
            subject=state.dataset or "DataLoader",
            summary=f"{counted(state.num_workers, 'worker')} compute on {each:.0f} threads each, "
            f"{each * state.num_workers:.0f} for {cpus(state.usable_cpus)}. A worker's main thread waits for a CPU "
            f"{percent(queued)} of the time.",
            advice=_advice(metrics, each=each),
            change=_ONE_THREAD,
            evidence=(
                self.evidence("most_threads_ratio", ratio, "threads of all workers over usable CPUs", ""),
                self.evidence(
                    "least_sum_ratio",
                    working,
                    "CPU time of a worker with its main thread's time in the run queue",
                    "CPUs",
                ),
                self.evidence("least_queued_ratio", queued, "a worker's main thread without a CPU"),
                Evidence(name="threads of a worker, at most", value=median(threads)),
                Evidence(name="usable CPUs", value=state.usable_cpus, unit="CPUs"),
            ),
            confidence=0.8,
            explains=claims.WAIT_FOR_BATCHES,
        )

    def _matters(self, metrics: Metrics) -> bool:
        delay = metrics.cpu.run_delay_ratio
        if delay is not None and delay >= self.least_delay_ratio:
            return True
        return measured(metrics.starving) is not None


def _advice(metrics: Metrics, *, each: float) -> str:
    given = condition(metrics, "host.omp_num_threads")
    libraries = "" if given == 1 else " Set OMP_NUM_THREADS=1 for OpenMP libraries."
    return (
        f"Let each worker compute on one thread instead of {each:.0f}: {_ONE_THREAD.added[0]}. Take "
        f"torch.set_num_threads out of the dataset, and call cv2.setNumThreads(0) for OpenCV.{libraries} Compare "
        "two runs: the gain cannot be bounded in advance."
    )
