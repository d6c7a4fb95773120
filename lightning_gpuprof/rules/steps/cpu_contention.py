"""Finds that the training thread is ready to run but has no CPU because this run wants more CPUs than it has."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lightning_gpuprof.model.cpu_demand import QUOTA_RATIO, used_up_ratio, wants_more
from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics, Share
from lightning_gpuprof.model.missing import measured
from lightning_gpuprof.model.waiting import LEAST_SAMPLES
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    NotApplicable,
    condition,
    possible,
    steady_period_ms,
    threshold,
    usable,
    worthwhile,
)
from lightning_gpuprof.rules.steps.host_time import counted_time
from lightning_gpuprof.rules.wording import counted, cpus, millis, percent


@dataclass(frozen=True, kw_only=True)
class CpuContention(BaseRule):
    """The training thread is ready to run, but threads and workers of this run have the CPUs, or its quota is used up.

    ## What it means

    The run's own threads and DataLoader workers want to compute on more CPUs than there are. All phases of the step get
    longer, most those that compute on the host.

    ## How it is measured

    The kernel counts for each thread how long it was ready to run without a CPU (`/proc/PID/schedstat`). It is read at
    the edges of sampled steps; its share of the period of steady steps must pass the threshold with the lower bound of
    the median. What the run wants is the CPU time of its process and its workers with what their main threads waited
    for a CPU: it must be 5 % above the usable CPUs, or the run use 95 % of these (its other threads then wait for each
    other), or the quota of the control group be used up in a tenth of its periods. The gain is the waiting time.

    If the run would fit into its CPUs, other programs make it wait. That is the state of the machine and no fault of
    this program: it is among the caveats of the measurement, and the verdict leaves such waiting out.

    ## When it is wrong

    - Companion threads of the training thread that wait for a CPU make it wait without being counted here: it is a
      lower bound.
    - Under a load by other programs a run gets fewer CPUs than it would use: that it wants too many by itself, too, may
      not be noticed then.
    - What a hypervisor takes away (steal) is not counted by the kernel at all.
    - On a device only the time counts in which the device is idle, which a trace window tells: not evaluated without
      one.

    ## What to do

    Use as many workers and threads as there are CPUs, or give the run more CPUs. Where fewer workers would not keep
    pace with the step, only more CPUs or a cheaper batch help.

    ## Example

    2 torch threads and 4 workers that compute: "Let them fit into 2 CPUs: torch.set_num_threads(1) and num_workers=1
    instead of 4."
    """

    id = "cpu-contention"

    least_ratio: float = threshold(0.05, source="catalogue")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the training thread's waiting for a CPU."""
        period_ms = steady_period_ms(metrics)
        share = delay_share(metrics)
        if share.lower_ratio < self.least_ratio or not worthwhile(share.median_ms, period_ms):
            return None
        if not by_this_run(metrics):
            return None
        waited_ms = min(1.0, share.median_ratio) * period_ms
        time = counted_time(metrics, period_ms, ratio=share.lower_ratio, taken_ms=waited_ms)
        if not time.is_worth(self.least_ratio):
            return None
        cause = _cause(metrics)
        return self.finding(
            severity=time.severity(min(metrics.steps.steady_count, metrics.cpu.run_delay_samples)),
            subject=cause.subject,
            summary=(
                f"The training thread is ready to run but has no CPU for {millis(waited_ms)} of a step of "
                f"{millis(period_ms)} ({percent(min(1.0, share.median_ratio))}): {cause.words}."
            ),
            advice=cause.advice,
            evidence=(
                self.evidence("least_ratio", share.median_ratio, "waiting for a CPU, of the step"),
                Evidence(name="steps in which it was read", value=metrics.cpu.run_delay_samples, limit=LEAST_SAMPLES),
                Evidence(name="CPUs of this run", value=metrics.cpu.usable_cpus),
                *_used(metrics),
            ),
            gain=time.gain,
            confidence=cause.confidence,
            explains=claims.NO_CPU,
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


def ranks_cpus(metrics: Metrics) -> float | None:
    """CPUs of this run that other ranks of the job use, on average; None: there are none, or it is not known."""
    machine = metrics.host.machine
    ranks = machine.cpu_ranks_cpus.mean if machine is not None and machine.cpu_ranks_cpus is not None else None
    return ranks if ranks is not None and possible(ranks) else None


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
        state = measured(metrics.loading)
    except (MissingSignal, NotApplicable):
        return configured_workers(metrics)
    return 0 if state.made is not None and state.cpu_bound is False else configured_workers(metrics)


def by_this_run(metrics: Metrics) -> bool:
    """Whether it is this run that leaves its training thread without a CPU, and not other programs."""
    return wants_more(metrics.cpu, metrics.host)


def _cause(metrics: Metrics) -> _Cause:
    usable_cpus = metrics.cpu.usable_cpus
    throttled = used_up_ratio(metrics.host)
    if throttled is not None and throttled >= QUOTA_RATIO:
        return _Cause(
            subject="CPU quota",
            words=f"the quota of the control group was used up in {percent(throttled)} of its periods",
            advice=f"Raise the container's CPU quota above {cpus(usable_cpus)}, or use fewer workers and threads.",
            confidence=0.85,
        )
    threads, workers = torch_threads(metrics), configured_workers(metrics)
    compute = computing_workers(metrics) > 0
    taken_cpus = workers if compute else metrics.cpu.worker_cpus or 0.0
    room = usable_cpus if possible(usable_cpus) else 1.0
    left = max(1, math.floor(room - taken_cpus))
    fewer = max(0, math.floor(room) - left)
    spare = compute and fewer < workers and fewer >= _needed_workers(metrics)
    changes = [
        *([f"torch.set_num_threads({left})"] if threads is None or threads > left else []),
        *([f"num_workers={fewer} instead of {workers}"] if spare else []),
    ]
    if compute and not spare and not changes:
        cheaper = "or make the batch cheaper: fewer workers would not keep pace with the step"
        return _Cause(
            subject="this run's own threads and workers",
            words=_crowd(metrics, usable_cpus),
            advice=f"Give this run more than {cpus(usable_cpus)}, {cheaper}.",
            confidence=0.8,
        )
    return _Cause(
        subject="this run's own threads and workers",
        words=_crowd(metrics, usable_cpus),
        advice=(
            f"Let them fit into {cpus(usable_cpus)}: {' and '.join(changes)}."
            if changes
            else f"Give this run more than {cpus(usable_cpus)}, or let its other threads compute less (top -H shows "
            "them)."
        ),
        confidence=0.8,
    )


def _crowd(metrics: Metrics, usable_cpus: float) -> str:
    threads, workers = torch_threads(metrics) or 1, configured_workers(metrics)
    return f"this run has {counted(threads, 'torch thread')} and {counted(workers, 'worker')} for {cpus(usable_cpus)}"


def _needed_workers(metrics: Metrics) -> int:
    """Workers that keep pace with the step, without the one to spare; 0 if that was not measured."""
    enough = None if metrics.input is None else metrics.input.enough_workers
    return 0 if enough is None else enough - 1


def _used(metrics: Metrics) -> tuple[Evidence, ...]:
    named = {
        "CPUs that other ranks use": ranks_cpus(metrics),
        "CPUs that other processes use": others_cpus(metrics),
        "CPUs that the training process uses": metrics.cpu.process_cpus,
        "CPUs that workers use": metrics.cpu.worker_cpus,
    }
    return tuple(Evidence(name=name, value=value, unit="CPUs") for name, value in named.items() if value is not None)
