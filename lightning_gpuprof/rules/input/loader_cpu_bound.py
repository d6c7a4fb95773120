"""The workers compute all the time, the steps wait, and there are not enough CPUs for more workers.

## What it means
Decoding, resizing and augmenting cost CPU time. If a batch costs more of it than all usable CPUs deliver during a step,
no number of workers helps: the batch must become cheaper, or the work must move elsewhere.

## How it is measured
Steps wait for at least a tenth of their time because batches are made too slowly (verdict `processing` of the input
pipeline). While it makes batches, the typical worker computes, or is ready to run without a CPU, for at least 85 % of
the time (sampled once a second). If enough workers fit on the CPUs, `too-few-workers` fires instead.

The gain is the wait that a batch of a quarter of the CPU time would save, on the CPUs that neither the main process nor
other programs use. Where `transform-hotspot` or `collate-hotspot` know more, they carry it.

## When it is wrong
- If other processes use the CPUs, free those first. If the usable CPUs would suffice without the others, the finding is
  information only.
- Several threads of a worker count as one that is always busy; see `worker-thread-oversub`.
- Fewer than five samples of a worker, workers that end with each short epoch, no `/proc`: not evaluated.

## What to do
Decode and resize once before training; use a faster decoder (`torchvision.io`, turbojpeg, DALI); move augmentation of
whole batches into `LightningModule.on_after_batch_transfer`; keep decoded samples.
"""

from lightning_gpuprof.model.loading import Starving
from lightning_gpuprof.rules.base import Finding, Metrics, counted, cpus, measured, millis, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.input.loading import CHEAPER
from lightning_gpuprof.rules.input.starving import StarvingRule, cost_of_part

_NAMED_PART_RATIO = 0.10

_HOST = {"usable_cpus": 2.0, "worker_cpus": 1.9, "process_cpus": 0.1}
_BUSY = {**_HOST, "each_worker": {"cpu": 0.95, "delay": 0.02}}
_COMPUTING = {**_BUSY, "transforms": {"Blur": 0.4, "Crop": 0.35, "Flip": 0.05}, "saves_ms": 10.0}
_QUEUED = {**_HOST, "worker_cpus": 0.7, "each_worker": {"cpu": 0.35, "delay": 0.6}}


class LoaderCpuBound(StarvingRule):
    id = "loader-cpu-bound"
    title = "Batch loading needs more CPUs"
    needs = "workers"
    specialises = ("input-bound", "step-outliers", "cpu-contention")

    least_cpu_ratio: float = threshold(0.85, source="heuristic, after SageMaker Debugger: CPU above 90 %")
    least_ratio: float = threshold(0.10, source="heuristic: a tenth of the step is wait")

    examples = (
        fires("two compute", "critical", "96 % ... Blur 39 %, Crop 34 %. ... 38.4 ms ... take 3.8 CPUs", **_COMPUTING),
        fires("others use CPUs", "info", "61 % waiting for a CPU ... 1.3 CPUs of 2", **_QUEUED, others_cpus=1.3),
        fires("batches come in bursts", "critical", "arrive in bursts", **_BUSY, burst=0.4),
        quiet("more workers fit on the CPUs", **{**_BUSY, "usable_cpus": 8.0}),
        quiet("the wait may be what a fetch costs", **_BUSY, items_ms=26.0),
        quiet("workers wait for work", **_HOST, each_worker={"cpu": 0.6, "delay": 0.02}),
        looks_alike("workers wait for storage", **_HOST, each_worker={"cpu": 0.1, "delay": 0.02}),
        not_evaluated("workers were not sampled", "was not sampled", **_HOST, each_worker=None),
        not_evaluated("they were sampled four times", "5 are needed", **_HOST, each_worker={"samples": 4}),
    )

    def judge(self, metrics: Metrics, found: Starving) -> Finding | None:
        state, time = found.state, measured(found.state.worker_time)
        busy_ratio = time.cpu_ratio + time.queued_ratio
        cost = cost_of_part(metrics, found, busy_ratio, state.cheaper_saves_ms)
        are_short = state.plan.num_workers < state.recommended_workers  # CPUs
        if busy_ratio < self.least_cpu_ratio or not are_short or not cost.is_worth():
            return None
        others = state.others_cpus or 0.0
        crowded = state.is_crowded
        cpu_ms = time.cpu_ratio * found.make_ms
        need = cpu_ms / state.compute_ms
        spend = "spends" if state.num_workers == 1 else "spend"
        queued = "" if time.queued_ratio < _NAMED_PART_RATIO else f" and {percent(time.queued_ratio)} waiting for a CPU"
        free = (
            f"First free the CPUs: other processes use {cpus(others)} of {state.usable_cpus:.3g}. " if crowded else ""
        )
        why = (
            f"Loading one in every step would take {cpus(need)}, and you have {state.usable_cpus:.3g}."
            if need >= state.usable_cpus
            else f"Loading one takes {millis(found.make_ms)}, because workers wait for a CPU."
        )
        return self.of_starving(
            metrics,
            found,
            cost,
            level="info" if crowded and need < state.usable_cpus else None,
            subject=found.dataset,
            summary=f"{counted(state.num_workers, 'worker')} {spend} {percent(time.cpu_ratio)} of the loading time "
            f"computing{queued}.",
            advice=f"{free}Make the batch cheaper: {CHEAPER}. {_where(metrics, found)}A batch costs {millis(cpu_ms)} "
            f"of CPU time. {why}",
            evidence=(
                self.evidence(
                    "least_cpu_ratio", busy_ratio, "workers compute or wait for a CPU, share of loading batches"
                ),
                self.fact("workers wait for a CPU, share of loading batches", time.queued_ratio, "ratio"),
                self.waiting(found),
                self.fact("time to load a batch", found.make_ms, "ms"),
                self.fact("CPU time to load a batch", cpu_ms, "ms"),
                self.fact("step without the wait", state.compute_ms, "ms"),
                self.fact("num_workers", state.num_workers),
                self.fact("usable CPUs", state.usable_cpus, "CPUs"),
                self.fact("samples of a worker", time.samples),
            ),
            confidence=0.6 if crowded else 0.85,
        )


def _where(metrics: Metrics, found: Starving) -> str:
    """The parts that hold most of it."""
    parts = [] if metrics.input is None else [p for p in metrics.input.parts if p.loader == found.made.loader]
    items = (found.made.items_ms or 0.0) / found.make_ms
    named = [f"{p.name} {percent(p.share * items)}" for p in parts if p.share and p.share * items >= _NAMED_PART_RATIO]
    collate = (found.made.collate_ms or 0.0) / found.make_ms
    if collate >= _NAMED_PART_RATIO:
        named.append(f"collate_fn {percent(collate)}")
    return f"Where it goes: {', '.join(named[:4])}. " if named else ""
