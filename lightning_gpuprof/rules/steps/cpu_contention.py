"""Finds that the main thread is ready to run but has no CPU because this run wants more CPUs than it has."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.cpu_demand import QUOTA_RATIO, used_up_ratio, wants_more
from lightning_gpuprof.model.finding import Evidence, Finding, worthwhile
from lightning_gpuprof.model.metrics import Metrics, Share
from lightning_gpuprof.model.missing import MissingSignal, NotApplicable, measured
from lightning_gpuprof.model.numbers import counted, cpus, millis, percent, possible
from lightning_gpuprof.model.share import usable
from lightning_gpuprof.model.signals import condition, steady_period_ms
from lightning_gpuprof.model.waiting import MIN_SAMPLES
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.steps.host_time import HostTime

_CROWDED = {"num_workers": 4, "process_cpus": 1.0, "worker_cpus": 3.0, "run_delay_ms": 8.0}
_TWO_THREADS = {**_CROWDED, "run": {"torch.num_threads": 2}, "worker_cpus": 1.0, "usable_cpus": 2.0}


@dataclass(frozen=True, kw_only=True)
class CpuContention(BaseRule):
    """Threads and workers of this run need more CPUs than it has, so the main thread waits for one.

    ## What it means
    torch's threads and the DataLoader's workers compete for too few CPUs. Every phase that computes on the host takes
    longer.

    ## How it is measured
    The kernel counts how long each thread was ready to run without a CPU (`/proc/PID/schedstat`). It is read in sampled
    steps, and the lower bound of the median share of the step must pass the threshold. The run itself must be the
    cause: it needs 5 % more than its usable CPUs (CPU time of process and workers, plus what their main threads
    waited), or uses 95 % of them, or the quota of its control group ran out in a tenth of the periods. The gain is the
    waiting time.

    ## When it is wrong
    - If the run alone would fit into its CPUs, other programs make it wait. That is a caveat of the measurement and no
      finding. Under such a load it may go unnoticed that the run needs too many CPUs as well.
    - It is a lower bound: waiting of companion threads, and CPU time that a hypervisor takes (steal), are not counted.
    - On a GPU only the time counts in which the device is idle: not evaluated without a trace window.

    ## What to do
    Use as many threads and workers as there are CPUs. Where fewer workers could not keep up with the step, only more
    CPUs or a cheaper batch help.
    """

    id = "cpu-contention"
    title = "The main thread waits for a free CPU"

    least_ratio: float = threshold(0.05, source="catalogue")

    examples = (
        fires("4 workers and the step need more than 4 CPUs", "warning", "num_workers=3 instead of 4", **_CROWDED),
        fires("2 torch threads and 4 workers", "warning", "torch.set_num_threads(1)", **_TWO_THREADS),
        fires("all threads are needed", "warning", "No setting helps", **{**_CROWDED, "num_workers": 3}),
        quiet("the thread hardly waits", **{**_CROWDED, "run_delay_ms": 0.1}),
        looks_alike("another program uses the CPUs", num_workers=4, run_delay_ms=10.0),
        not_evaluated("the kernel counts no waiting", "schedstat", num_workers=4),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the main thread's waiting for a CPU."""
        period_ms = steady_period_ms(metrics)
        share = delay_share(metrics)
        if share.lower_ratio < self.least_ratio or not worthwhile(share.median_ms, period_ms):
            return None
        if not by_this_run(metrics):
            return None
        waited_ms = min(1.0, share.median_ratio) * period_ms
        time = HostTime(
            period_ms=period_ms,
            ratio=share.lower_ratio,
            taken_ms=waited_ms,
            most_ratio=measured(metrics.host_limit.ratio),
        )
        if not time.is_worth(self.least_ratio):
            return None
        cause = _cause(metrics)
        return self.finding(
            severity=time.severity(min(metrics.steps.steady_count, metrics.cpu.run_delay_samples)),
            subject=cause.subject,
            summary=(
                f"The main thread waits {millis(waited_ms)} of each {millis(period_ms)} step "
                f"({percent(min(1.0, share.median_ratio))}) for a free CPU. {cause.words}."
            ),
            advice=cause.advice,
            evidence=(
                self.evidence("least_ratio", share.median_ratio, "waiting for a CPU, share of the step"),
                Evidence(name="sampled steps", value=metrics.cpu.run_delay_samples, limit=MIN_SAMPLES),
                Evidence(name="usable CPUs", value=metrics.cpu.usable_cpus, unit="CPUs"),
                *_used(metrics),
            ),
            gain=time.gain,
            confidence=cause.confidence,
            explains=claims.NO_CPU,
            change=cause.change,
        )


@dataclass(frozen=True, kw_only=True)
class _Cause:
    subject: str
    words: str
    advice: str
    confidence: float = 0.8
    change: Change | None = None


def delay_share(metrics: Metrics) -> Share:
    """Share of the step time in which the main thread waits for a CPU.

    Raises:
        MissingSignal: It was not measured, or in too few steps.
    """
    share, samples = metrics.cpu.run_delay, metrics.cpu.run_delay_samples
    if share is None or not usable(share):
        raise MissingSignal("waiting for a CPU was not measured: the kernel has no schedstat")
    if samples < MIN_SAMPLES:
        raise MissingSignal(f"waiting for a CPU was sampled in {samples} of the {MIN_SAMPLES} steps needed")
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
    """Whether it is this run that leaves its main thread without a CPU, and not other programs."""
    return wants_more(metrics.cpu, metrics.host)


def _cause(metrics: Metrics) -> _Cause:
    usable_cpus = metrics.cpu.usable_cpus
    throttled = used_up_ratio(metrics.host)
    if throttled is not None and throttled >= QUOTA_RATIO:
        return _Cause(
            subject="CPU quota",
            words=f"The container's CPU quota ran out in {percent(throttled)} of its periods",
            advice=f"Raise the container's CPU quota above {cpus(usable_cpus)} or use fewer workers and threads.",
            confidence=0.85,
        )
    threads, workers = torch_threads(metrics), configured_workers(metrics)
    compute = computing_workers(metrics) > 0
    taken_cpus = workers if compute else metrics.cpu.worker_cpus or 0.0
    room = usable_cpus if possible(usable_cpus) else 1.0
    left = max(1, math.floor(room - taken_cpus))
    fewer = max(0, math.floor(room) - left)
    spare = compute and fewer < workers and fewer >= _needed_workers(metrics)
    blame = _Cause(subject="this run's own threads and workers", words=_crowd(metrics, usable_cpus), advice="")
    change = Change(
        call="DataLoader",
        arguments={"num_workers": fewer} if spare else {},
        before={"num_workers": workers},
        remove=(f"torch.set_num_threads({threads})",) if threads is not None and threads > left else (),
        add=(f"torch.set_num_threads({left})",) if threads is None or threads > left else (),
    )
    if change.added:
        settings = [*change.add, *([f"num_workers={fewer} instead of {workers}"] if spare else [])]
        return replace(blame, advice=f"Fit the run into {cpus(usable_cpus)}: {' and '.join(settings)}.", change=change)
    more = cpus(math.floor(room) + 1)
    if compute:
        cheaper = "or make the batch cheaper. Fewer workers could not keep up with the step"
        return replace(blame, advice=f"No setting helps: use at least {more} {cheaper}.")
    return replace(blame, advice=f"Use at least {more}, or find the other threads that compute: top -H.")


def _crowd(metrics: Metrics, usable_cpus: float) -> str:
    threads, workers = torch_threads(metrics) or 1, configured_workers(metrics)
    return f"This run fills {cpus(usable_cpus)}: {counted(threads, 'torch thread')} and {counted(workers, 'worker')}"


def _needed_workers(metrics: Metrics) -> int:
    """Workers that keep pace with the step, without the one to spare; 0 if that was not measured."""
    enough = None if metrics.input is None else metrics.input.enough_workers
    return 0 if enough is None else enough - 1


def _used(metrics: Metrics) -> tuple[Evidence, ...]:
    named = {
        "used by other ranks": ranks_cpus(metrics),
        "used by other processes": others_cpus(metrics),
        "used by the main process": metrics.cpu.process_cpus,
        "used by workers": metrics.cpu.worker_cpus,
    }
    return tuple(Evidence(name=name, value=value, unit="CPUs") for name, value in named.items() if value is not None)
