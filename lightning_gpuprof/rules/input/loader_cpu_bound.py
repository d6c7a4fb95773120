"""Finds that making batches is CPU work, and more of it than the usable CPUs can do beside the steps."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import threshold
from lightning_gpuprof.rules.input.loading import cpu_words
from lightning_gpuprof.rules.input.starving import Starving, StarvingRule
from lightning_gpuprof.rules.input.worker_time import WorkerTime, worker_time
from lightning_gpuprof.rules.wording import counted, cpus, millis, percent

_CROWDED_RATIO = 0.25
"""Share of the usable CPUs that others use, from which they count as a reason. Heuristic."""

_NAMED_PART_RATIO = 0.10


@dataclass(frozen=True, kw_only=True)
class LoaderCpuBound(StarvingRule):
    """The workers compute all the time, the steps wait, and there are not enough CPUs for more workers.

    ## What it means

    Decoding, resizing and augmenting cost CPU time. If a batch costs more of it than all usable CPUs deliver during a
    step, no number of workers helps: the batch must become cheaper, or the work must move elsewhere.

    ## How it is measured

    Steps wait for batches for certain, at least a tenth of their time, and because these are made too slowly (verdict
    `processing` of the input pipeline). Each worker's CPU time and its time in the run queue are sampled once a
    second; of the time that the typical worker spends on making batches (its wait for work is taken off), at least 85 %
    must be either. Time in the run queue counts because a worker that wants a CPU is not waiting for storage. The rule
    is silent where enough workers fit on the usable CPUs: there `too-few-workers` speaks.

    The gain is the wait as a whole, for a batch that costs nothing; the bound by which findings are ranked is that
    part of the wait's lower bound. Where `transform-hotspot` or `collate-hotspot` know more, they carry the gain.

    ## When it is wrong

    - Other processes on the same CPUs make workers wait in the run queue: the text says how much they used. Ask for
      more CPUs, or for fewer neighbours, before the code is changed. If the usable CPUs would do without the others, it
      is information only.
    - Several threads in a worker count as one that is always busy; see `worker-thread-oversub`.
    - Fewer than five samples of a worker (one a second), workers that end with each short epoch, no `/proc`: not
      evaluated.

    ## What to do

    Decode and resize once before training; use a decoder that is faster (`torchvision.io`, turbojpeg, DALI); move
    augmentation of whole batches into `LightningModule.on_after_batch_transfer`; keep decoded samples.

    ## Example

    Two workers, 8 samples of 5 ms of work each, 2 CPUs: "A batch costs 40.3 ms of CPU time: for a step of 5.20 ms that
    is the work of 7.8 CPUs, and 2 CPUs are usable."
    """

    id = "loader-cpu-bound"
    specialises = ("input-bound", "step-outliers")

    least_cpu_ratio: float = threshold(0.85, source="catalogue, after SageMaker Debugger: CPU above 90 %")
    least_ratio: float = threshold(0.10, source="catalogue: a tenth of the step is wait")

    def judge(self, metrics: Metrics, found: Starving) -> Finding | None:
        """Judge loaders with workers."""
        time = worker_time(metrics, found.made)
        busy_ratio = time.cpu_ratio + time.queued_ratio
        plan = found.state.plan
        saved = found.gain_without(busy_ratio)
        if busy_ratio < self.least_cpu_ratio or plan.num_workers >= found.state.wanted_workers or saved is None:
            return None
        crowded = _others_ratio(found) >= _CROWDED_RATIO
        level = found.severity(metrics.steps.steady_count)
        return self.finding(
            severity="info" if crowded and _needed_cpus(found, time) < found.state.usable_cpus else level,
            subject=found.dataset,
            summary=(
                f"{counted(found.state.num_workers, 'worker')} {_verb(found, 'computes', 'compute')} in "
                f"{percent(time.cpu_ratio)} of the time that {_verb(found, 'it makes', 'they make')} batches in"
                f"{_queue_words(time, found)}; {found.words}."
            ),
            advice=_advice(metrics, found, time, crowded=crowded),
            evidence=(
                self.evidence("least_cpu_ratio", busy_ratio, "workers compute or want to, share of making batches"),
                Evidence(name="of it ready without a CPU", value=time.queued_ratio, unit="ratio"),
                self.evidence("least_ratio", *found.waiting),
                Evidence(name="time to make a batch", value=found.make_ms, unit="ms"),
                Evidence(name="CPU time to make a batch", value=time.cpu_ratio * found.make_ms, unit="ms"),
                Evidence(name="num_workers", value=found.state.num_workers),
                Evidence(name="usable CPUs", value=found.state.usable_cpus, unit="CPUs"),
                Evidence(name="samples of a worker", value=time.samples),
            ),
            gain=saved,
            confidence=0.6 if crowded else 0.85,
            explains=found.explains,
        )


def _verb(found: Starving, one: str, several: str) -> str:
    return one if found.state.num_workers == 1 else several


def _others_ratio(found: Starving) -> float:
    usable = found.state.usable_cpus
    return (found.state.others_cpus or 0.0) / usable if usable > 0 else 0.0


def _needed_cpus(found: Starving, time: WorkerTime) -> float:
    """CPUs that make batches as fast as steps use them."""
    return time.cpu_ratio * found.make_ms / found.state.compute_ms


def _queue_words(time: WorkerTime, found: Starving) -> str:
    if time.queued_ratio < _NAMED_PART_RATIO:
        return ""
    return f", and {_verb(found, 'is', 'are')} ready without a CPU in {percent(time.queued_ratio)}"


def _advice(metrics: Metrics, found: Starving, time: WorkerTime, *, crowded: bool) -> str:
    state = found.state
    cpu_ms = time.cpu_ratio * found.make_ms
    need = _needed_cpus(found, time)
    work = (
        f" that is the work of {cpus(need)}"
        if need >= state.usable_cpus
        else f", but {millis(found.make_ms)} pass for want of CPUs"
    )
    free = (
        f"First free the CPUs: other processes use {cpus(state.others_cpus or 0.0)} of {cpus(state.usable_cpus)}. "
        if crowded
        else ""
    )
    return (
        f"{free}Make a batch cheaper: it costs {millis(cpu_ms)} of CPU time, for a step of {millis(state.compute_ms)}"
        f"{work} ({cpu_words(state)}). {_where(metrics, found)}Do what gives the same result "
        "each time (decoding, resizing) once before training, and augmentation for whole batches in "
        "LightningModule.on_after_batch_transfer."
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
