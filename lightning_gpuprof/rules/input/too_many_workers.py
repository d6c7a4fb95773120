"""There are more workers than the CPUs can run at a time, or many more than the steps need.

## What it means
Workers that compute make batches no faster than the CPUs allow. Beyond that number they take turns, the main thread is
one among many that want a CPU, and each worker holds memory. Workers that wait for storage may outnumber the CPUs.
Workers that mostly wait for work gain nothing, but still hold memory.

## How it is measured
**Workers take turns** if there are more of them than usable CPUs (affinity and cgroup quota, divided by the ranks of
the machine), if they often have no CPU, and if this run's own processes use most of the CPUs. It is a warning if the
main thread itself has no CPU for a tenth of the step. What fewer workers gain cannot be predicted: measure it.

**Workers wait for work** if they mostly have none, batches do not hold up the steps, half of them or fewer would keep
pace with the steps with one to spare, and the others hold much memory of their own. It is information, or a warning if
that is a large part of the machine's memory.

## When it is wrong
- If other processes use a quarter of the CPUs, workers may take turns with those: not evaluated.
- The best number lies between the CPUs and a few more: try neighbours of the proposed one.
- Batches that are in time on average, but sometimes far too late, may need more workers than the mean says.
- Fewer than five samples of a worker (one a second), no run-queue time (`/proc/PID/schedstat`): not evaluated.

## What to do
Set the printed number. If the steps still wait, batches must become cheaper (`loader-cpu-bound`).
"""

from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.loading import Loading
from lightning_gpuprof.model.numbers import counted, cpus, decimal_size
from lightning_gpuprof.model.worker_time import median_delay_ratio
from lightning_gpuprof.rules.base import WARNING_RATIO, BaseRule, Metrics, MissingSignal, measured, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.input.loading import loader_change

_OF_CPUS = {"usable_cpus": 2.0, "worker_cpus": 1.6, "process_cpus": 0.3, "others_cpus": 0.05}
_TURNS = {**_OF_CPUS, "workers": 16, "each_worker": {"cpu": 0.1, "delay": 0.8, "own_bytes": 50e6}}
_DELAYED = {**_TURNS, "run_delay_ms": 3.0}


def _idle_workers(workers: int, own_bytes: float) -> dict[str, object]:
    """Batches of 4 ms for steps of 10 ms."""
    each = {"cpu": 0.02, "delay": 0.0, "own_bytes": own_bytes}
    return {"workers": workers, "each_worker": each, "items_ms": 3.0, "idle_ratio": 0.96, "usable_cpus": 32.0}


_IDLE = _idle_workers(16, 440e6)


class TooManyWorkers(BaseRule):
    id = "too-many-workers"
    title = "There are too many DataLoader workers"
    needs = "workers"

    most_workers_ratio: float = threshold(2.0, source="SageMaker Debugger: dataloader cores above 200 %")
    least_queued_ratio: float = threshold(0.30, source="heuristic: a third of the time without a CPU")
    least_used_ratio: float = threshold(0.80, source="MindInsight: CPU active above 80 %; here this run's own")
    least_idle_ratio: float = threshold(0.80, source="heuristic: workers that could make five times as many batches")
    least_freed_gb: float = threshold(1.0, source="heuristic: what is worth a word")
    scarce_ratio: float = threshold(0.10, source="heuristic: so much of the machine's memory is a warning")

    examples = (
        fires("16 compute on 2 CPUs", "warning", "main thread 30 % ... num_workers=1). That frees 750 MB", **_DELAYED),
        fires("the main thread has its CPU", "info", "16 workers share 2 CPUs", run_delay_ms=0.9, **_TURNS),
        fires("5 workers compute on 2 CPUs", "info", "share 2 CPUs", **{**_TURNS, "workers": 5}),
        fires("16 are idle", "warning", "idle 96 % ... 7.04 GB; 2 are ... frees 6.16 GB", **_IDLE, memory_bytes=61e9),
        fires("the machine has 63 GB", "info", "frees 6.16 GB", **_IDLE, memory_bytes=63e9),
        fires("2 of 4 workers are enough", "info", "frees 1.02 GB", **_idle_workers(4, 510e6)),
        quiet("4 workers compute on 2 CPUs", **{**_TURNS, "workers": 4}),
        quiet("2 of 3 workers are enough", **_idle_workers(3, 510e6)),
        quiet("they hold less than 1 GB", **_idle_workers(4, 490e6)),
        quiet("workers are idle for 79 % of the time", **{**_IDLE, "idle_ratio": 0.79}),
        quiet("there are no workers", num_workers=0),
        looks_alike("workers wait for storage", **{**_TURNS, "each_worker": {"cpu": 0.1, "delay": 0.02}}),
        looks_alike("CPUs are left", **{**_TURNS, "worker_cpus": 0.9}),
        looks_alike("the steps wait for batches", **{**_IDLE, "verdict": "processing"}),
        not_evaluated("others use the CPUs", "used 1.2 CPUs of 2 CPUs", **{**_TURNS, "others_cpus": 1.2}),
        not_evaluated("who uses them is not known", "who used the CPUs", **{**_TURNS, "others_cpus": None}),
        not_evaluated(
            "the run queue is not known", "waited for a CPU", **{**_TURNS, "each_worker": {"cpu": 0.1, "delay": None}}
        ),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        state = measured(metrics.loading)
        return self._waiting(metrics, state) or self._taking_turns(metrics, state)

    def _waiting(self, metrics: Metrics, state: Loading) -> Finding | None:
        idle, wanted = None if state.made is None else state.made.idle_ratio, state.recommended_workers
        held, machine = metrics.host.held_by_worker_bytes, metrics.host.machine
        if idle is None or held is None or idle < self.least_idle_ratio or 2 * wanted > state.num_workers:
            return None
        freed_gb = held * (state.num_workers - wanted) / 1e9
        if freed_gb < self.least_freed_gb or metrics.input is None or metrics.input.verdict != "compute":
            return None
        total = machine.memory_total_bytes if machine is not None else None
        scarce = total is not None and freed_gb * 1e9 >= self.scarce_ratio * total
        change = loader_change(metrics, wanted)
        return self.finding(
            severity="warning" if scarce else "info",
            subject=state.dataset or "DataLoader",
            summary=f"{state.num_workers} workers are idle {percent(idle)} of the time and hold "
            f"{decimal_size(held * state.num_workers)}; {wanted} are enough.",
            advice=f"Use fewer workers: {change.added[0]}. That frees {decimal_size(1e9 * freed_gb)}.",
            change=change,
            evidence=(
                self.evidence("least_idle_ratio", idle, "workers without work"),
                self.evidence("least_freed_gb", freed_gb, "memory of workers that are not needed", "GB"),
                self.fact("workers needed to keep up, with one spare", wanted),
                self.fact("time to load a batch", state.batch_ms, "ms"),
            ),
            confidence=0.7,
        )

    def _taking_turns(self, metrics: Metrics, state: Loading) -> Finding | None:
        if state.num_workers <= self.most_workers_ratio * state.usable_cpus:
            return None
        queued_ratio = median_delay_ratio(metrics.host.worker_rows)
        if queued_ratio < self.least_queued_ratio:
            return None
        if state.used_cpus is None or state.others_cpus is None:
            raise MissingSignal("who used the CPUs, this run or others, was not measured")
        if state.is_crowded:
            others = f"{cpus(state.others_cpus)} of {cpus(state.usable_cpus)}"
            raise MissingSignal(f"other processes used {others}: the workers may have waited for these")
        if state.used_cpus < self.least_used_ratio * state.usable_cpus:
            return None
        delay, room = metrics.cpu.run_delay_ratio, int(state.usable_cpus)
        enough = metrics.input.enough_workers if metrics.input is not None else None
        # a main thread that waits for a CPU gets one, if the other workers keep up: as cpu-contention says
        wanted = max(1, room - 1 if delay is not None and delay >= 0.05 and (enough or 1) <= room else room)
        per_cpu = state.num_workers / state.usable_cpus if state.usable_cpus > 0 else float(state.num_workers)
        training = "" if delay is None else f", the main thread {percent(delay)} of the step"
        change = loader_change(metrics, wanted)
        return self.finding(
            severity="warning" if delay is not None and delay >= WARNING_RATIO else "info",
            subject=state.dataset or "DataLoader",
            summary=f"{counted(state.num_workers, 'worker')} share {cpus(state.usable_cpus)}: each waits for "
            f"a CPU {percent(queued_ratio)} of the time{training}.",
            advice=f"Use fewer workers: {change.added[0]}.{_freed(metrics, state.num_workers - wanted)} "
            "The gain cannot be predicted: compare two runs.",
            change=change,
            evidence=(
                self.evidence("most_workers_ratio", per_cpu, "workers over usable CPUs", ""),
                self.evidence("least_queued_ratio", queued_ratio, "a worker without a CPU"),
                self.fact("CPUs used by this run", state.used_cpus, "CPUs"),
                self.fact("CPUs used by others", state.others_cpus, "CPUs"),
                self.fact("main thread without a CPU", delay, "ratio"),
            ),
            confidence=0.7,
        )


def _freed(metrics: Metrics, too_many: int) -> str:
    held = metrics.host.held_by_worker_bytes
    return "" if held is None else f" That frees {decimal_size(held * too_many)}."
