"""The workers compute on thread pools of their own, with more threads in all than there are usable CPUs.

## What it means
torch sets its own threads to one in each worker. OpenCV, MKL and OpenMP libraries, or a call of `torch.set_num_threads`
in the dataset, start as many threads in each worker as there are CPUs. Workers times threads then compete for the CPUs,
with each other and with the main thread.

## How it is measured
The most threads of the typical worker, less the two that every worker has beside its main one, times the number of
workers, must pass 1.5 times the usable CPUs. That a pool exists does not show that it works: a worker's CPU time and
its main thread's time in the run queue add up to at most 1 with one thread, and their sum must pass 1.2. If other
programs hold the CPUs, that sum stays small: then threads other than the main one must use two fifths of the worker's
CPU time. And it must matter: steps wait for batches that are made too slowly, or the main thread is without a CPU for
5 % of the step. What fewer threads gain cannot be predicted: measure it (`gpuprof compare`).

## When it is wrong
- Beside other programs, a worker that computes little and hands over large batches: the thread that hands them over
  may have two fifths of its CPU time. It is not named unless the worker also has a pool of threads.
- On CPUs that idle, threads in workers make batches faster: the run queue must show that CPUs are short.
- Fewer than three samples of a worker (one a second), no `/proc`: not evaluated.

## What to do
In the dataset or in `worker_init_fn`: `torch.set_num_threads(1)`, `cv2.setNumThreads(0)`; in the environment
`OMP_NUM_THREADS=1`. Parallel work comes from the workers.
"""

from lightning_gpuprof.model.worker_time import BESIDE_RATIO, THREAD_SAMPLES, WANTED_CPUS, worker_threads
from lightning_gpuprof.rules.base import BaseRule, Finding, Metrics, claims, counted, cpus, measured, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.steps.contention import ONE_THREAD_PER_WORKER

_WANTED = "CPU time of a worker with its main thread's time in the run queue"
_BESIDE = "CPU time of a worker beside its main thread"


def _each(**worker: float | None) -> dict[str, object]:
    return {"each_worker": {"cpu": 0.95, "delay": 0.6, "threads": 6, **worker}, "usable_cpus": 2.0, "worker_cpus": 1.9}


_POOLS = _each()
_BESIDE_OTHERS = _each(cpu=0.4, delay=0.4, main_thread_cpus=0.1)


class WorkerThreadOversub(BaseRule):
    id = "worker-thread-oversub"
    title = "DataLoader workers use too many threads"
    needs = "workers"
    specialises = ("input-bound", "loader-cpu-bound", "step-outliers", "cpu-contention", "cpu-oversubscription")

    most_threads_ratio: float = threshold(1.5, source="heuristic: threads of all workers over usable CPUs")
    least_sum_ratio: float = threshold(WANTED_CPUS, source="heuristic: one thread computes and queues for 1.0 together")
    least_beside_ratio: float = threshold(BESIDE_RATIO, source="heuristic: four threads share the work in equal parts")
    least_queued_ratio: float = threshold(0.10, source="heuristic: below it CPUs are not short")
    least_delay_ratio: float = threshold(0.05, source="heuristic: run-queue time of the main thread")
    least_samples: int = threshold(THREAD_SAMPLES, source="heuristic: cpu-contention, its effect, needs no more")

    examples = (
        fires(
            "workers have four threads", "warning", "on 4 threads each, 8 for 2 CPUs ... OMP_NUM_THREADS=1", **_POOLS
        ),
        fires("one thread could do 99 % of it", "warning", "compute on 4 threads", **_each(cpu=0.61)),
        fires("they were sampled three times", "warning", "compute on 4 threads", **_each(samples=3)),
        fires("three halves of the CPUs", "warning", "for 2 CPUs", **_each(threads=3.6)),
        fires("other programs hold the CPUs", "warning", "compute on 4 threads", **_BESIDE_OTHERS),
        quiet("little more than one thread can do", **_each(cpu=0.59)),
        quiet("fewer threads", **_each(threads=3.5)),
        quiet("no step waits", **_POOLS, items_ms=12.0),
        quiet("there are no workers", **{**_POOLS, "workers": 0}),
        quiet("others hold the CPUs, and one thread works", **_each(cpu=0.4, delay=0.4, main_thread_cpus=0.25)),
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
        found = worker_threads(metrics.host.worker_rows, self.least_samples)
        each, queued = found.computing, found.queued_ratio
        ratio = each * state.num_workers / state.usable_cpus if state.usable_cpus > 0 else 0.0
        working = found.share_the_work(
            least_wanted_cpus=self.least_sum_ratio, least_beside_ratio=self.least_beside_ratio
        )
        if ratio <= self.most_threads_ratio or not working or queued < self.least_queued_ratio:
            return None
        beside = found.beside_ratio
        return self.finding(
            severity="warning",
            subject=state.dataset or "DataLoader",
            summary=f"{counted(state.num_workers, 'worker')} compute on {each:.0f} threads each, "
            f"{each * state.num_workers:.0f} for {cpus(state.usable_cpus)}. A worker's main thread waits for a CPU "
            f"{percent(queued)} of the time.",
            advice=_advice(metrics, each=each),
            change=ONE_THREAD_PER_WORKER,
            evidence=(
                self.evidence("most_threads_ratio", ratio, "threads of all workers over usable CPUs", ""),
                self.evidence("least_sum_ratio", found.wanted_cpus, _WANTED, "CPUs"),
                None if beside is None else self.evidence("least_beside_ratio", beside, _BESIDE),
                self.evidence("least_queued_ratio", queued, "a worker's main thread without a CPU"),
                self.fact("threads of a worker, at most", found.threads),
                self.fact("usable CPUs", state.usable_cpus, "CPUs"),
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
    given = metrics.condition("host.omp_num_threads")
    libraries = "" if given == 1 else " Set OMP_NUM_THREADS=1 for OpenMP libraries."
    return (
        f"Let each worker compute on one thread instead of {each:.0f}: {ONE_THREAD_PER_WORKER.added[0]}. Take "
        f"torch.set_num_threads out of the dataset, and call cv2.setNumThreads(0) for OpenCV.{libraries} The gain "
        "cannot be predicted: compare two runs."
    )
