"""Finds that the training thread is ready to run but has no CPU, and who has it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.host import HostUse
from lightning_gpuprof.model.metrics import Metrics, Share
from lightning_gpuprof.rules.base import (
    MissingSignal,
    NotApplicable,
    condition,
    gain,
    possible,
    severity,
    share_evidence,
    source_of,
    steady_period_ms,
    threshold,
    usable,
    worthwhile,
)
from lightning_gpuprof.rules.input.loading import loading
from lightning_gpuprof.rules.steps.host_time import counted_ratio
from lightning_gpuprof.rules.steps.waiting import LEAST_SAMPLES
from lightning_gpuprof.rules.wording import counted, cpus, millis, percent

EXPLAINS = "waiting for a CPU"

_THROTTLED_RATIO = 0.10
_OTHERS_CPUS = 0.3


@dataclass(frozen=True, kw_only=True)
class CpuContention:
    """The training thread is ready to run, but other threads have the CPUs.

    ## What it means

    More threads want to compute than there are CPUs for this run: other jobs on the machine, DataLoader workers, or
    threads of torch and other libraries. All phases of the step get longer, most those that compute on the host.

    ## How it is measured

    The kernel counts for each thread how long it was ready to run without a CPU (`/proc/PID/schedstat`). It is read at
    the edges of sampled steps; its share of the period of steady steps must pass the threshold with the lower bound of
    the median. Who had the CPUs is told from what other processes used of this run's CPUs, from the workers, and from
    the number of torch's threads. The gain is the waiting time.

    ## When it is wrong

    - Companion threads of the training thread that wait for a CPU make it wait without being counted here: it is a
      lower bound.
    - In a container the CPUs of other containers count as other processes only where they are on CPUs that this run may
      use. What a hypervisor takes away (steal) is not counted by the kernel at all.
    - On a device only the time counts in which the device is idle, which a trace window tells: not evaluated without
      one.

    ## What to do

    Give the run CPUs of its own, or use as many workers and threads as there are CPUs.

    ## Example

    "Give this run CPUs of its own: other processes take 1.6 of its 2 CPUs, and the training thread waits 4.2 ms of 9.1
    ms for one."
    """

    id: ClassVar[str] = "cpu-contention"

    least_ratio: float = threshold(0.05, source="catalogue")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the training thread's waiting for a CPU."""
        period_ms = steady_period_ms(metrics)
        share = delay_share(metrics)
        if share.lower_ratio < self.least_ratio or not worthwhile(share.median_ms, period_ms):
            return None
        lower_ratio = counted_ratio(metrics, share.lower_ratio, period_ms)
        # not the median time: it was read in a few steps, which may have been longer ones
        waited_ms = min(1.0, share.median_ratio) * period_ms
        recoverable_ms = counted_ratio(metrics, min(1.0, share.median_ratio), period_ms) * period_ms
        if lower_ratio < self.least_ratio or not worthwhile(recoverable_ms, period_ms):
            return None
        cause = _cause(metrics)
        return Finding(
            rule=self.id,
            severity=severity(lower_ratio, min(metrics.steps.steady_count, metrics.cpu.run_delay_samples)),
            subject=cause.subject,
            summary=(
                f"The training thread is ready to run but has no CPU for {millis(waited_ms)} of a step of "
                f"{millis(period_ms)} ({percent(min(1.0, share.median_ratio))}): {cause.words}."
            ),
            advice=cause.advice,
            evidence=(
                share_evidence(
                    "waiting for a CPU, of the step",
                    share.median_ratio,
                    limit=self.least_ratio,
                    source=source_of(type(self), "least_ratio"),
                ),
                Evidence(name="steps in which it was read", value=metrics.cpu.run_delay_samples, limit=LEAST_SAMPLES),
                Evidence(name="CPUs of this run", value=metrics.cpu.usable_cpus),
                *_used(metrics),
            ),
            gain=gain(recoverable_ms, lower_ratio * period_ms, period_ms),
            confidence=cause.confidence,
            explains=EXPLAINS,
        )


@dataclass(frozen=True, kw_only=True)
class _Cause:
    subject: str
    words: str
    advice: str
    confidence: float


def delay_share(metrics: Metrics) -> Share:
    """Share of the period in which the training thread waits for a CPU.

    Raises:
        MissingSignal: It was not measured, or in too few steps.
    """
    share, samples = metrics.cpu.run_delay, metrics.cpu.run_delay_samples
    if share is None or not usable(share):
        raise MissingSignal("how long the training thread waits for a CPU was not measured (needs schedstat)")
    if samples < LEAST_SAMPLES:
        raise MissingSignal(f"waiting for a CPU was read in {samples} steps, {LEAST_SAMPLES} are needed")
    return share


def others_cpus(metrics: Metrics) -> float | None:
    """CPUs of this run that other processes use, on average; None: not measured."""
    machine = metrics.host.machine
    others = machine.cpu_others_cpus.mean if machine is not None and machine.cpu_others_cpus is not None else None
    return others if others is not None and possible(others) else None


def torch_threads(metrics: Metrics) -> int | None:
    """Threads on which torch computes; None: not known."""
    threads = condition(metrics, "torch.num_threads")
    return threads if isinstance(threads, int) and threads >= 1 else None


def configured_workers(metrics: Metrics) -> int:
    """Workers of the loader that sets the pace; 0 where it is not known."""
    return max(0, metrics.loader.num_workers or 0) if metrics.loader is not None else 0


def computing_workers(metrics: Metrics) -> int:
    """Workers that want a CPU: none of them where they were measured to mostly wait, for storage as a rule."""
    try:
        state = loading(metrics)
    except (MissingSignal, NotApplicable):
        return configured_workers(metrics)
    return 0 if state.made is not None and state.cpu_bound is False else configured_workers(metrics)


def _cause(metrics: Metrics) -> _Cause:
    others = others_cpus(metrics)
    usable_cpus = metrics.cpu.usable_cpus
    throttled = _throttled_ratio(metrics.host)
    if throttled is not None and throttled >= _THROTTLED_RATIO:
        return _Cause(
            subject="CPU quota",
            words=f"the quota of the control group was used up in {percent(throttled)} of its periods",
            advice=f"Raise the container's CPU quota above {cpus(usable_cpus)}, or use fewer workers and threads.",
            confidence=0.85,
        )
    own = (metrics.cpu.worker_cpus or 0.0) + max(0.0, (metrics.cpu.process_cpus or 0.0) - 1.0)
    if others is not None and others >= _OTHERS_CPUS and others >= own:
        return _Cause(
            subject="other processes",
            words=f"other processes take {cpus(others)} of the {cpus(usable_cpus)} of this run",
            advice=(
                "Give this run CPUs of its own (taskset, cgroups, Slurm's --cpus-per-task and --exclusive): others "
                f"take {cpus(others)} of {cpus(usable_cpus)}."
            ),
            confidence=0.9,
        )
    threads, workers = torch_threads(metrics), configured_workers(metrics)
    if own >= _OTHERS_CPUS:
        compute = computing_workers(metrics) > 0
        taken_cpus = workers if compute else metrics.cpu.worker_cpus or 0.0
        left = max(1, math.floor(usable_cpus - taken_cpus)) if possible(usable_cpus) else 1
        return _Cause(
            subject="this run's own threads and workers",
            words=(
                f"this run has {counted(threads or 1, 'torch thread')} and {counted(workers, 'worker')} for "
                f"{cpus(usable_cpus)}"
            ),
            advice=(
                f"Let them fit into {cpus(usable_cpus)}: torch.set_num_threads({left}) with "
                f"{counted(workers, 'worker')}{', or fewer workers' if compute else ''}."
            ),
            confidence=0.8,
        )
    return _Cause(
        subject="training thread",
        words="who has the CPUs was not measured" if others is None else "neither other processes nor workers use many",
        advice=(
            "Look at the machine while the run goes on (top -H): threads that are bound to the same CPU as the "
            "training thread, or other containers."
        ),
        confidence=0.6,
    )


def _throttled_ratio(host: HostUse) -> float | None:
    ratio = host.cgroup.throttled_ratio if host.cgroup is not None else None
    return ratio if ratio is not None and possible(ratio) else None


def _used(metrics: Metrics) -> tuple[Evidence, ...]:
    named = {
        "CPUs that other processes use": others_cpus(metrics),
        "CPUs that the training process uses": metrics.cpu.process_cpus,
        "CPUs that workers use": metrics.cpu.worker_cpus,
    }
    return tuple(Evidence(name=name, value=value, unit="CPUs") for name, value in named.items() if value is not None)
