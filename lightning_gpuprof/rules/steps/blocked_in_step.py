"""Finds that the training thread sleeps or waits where it should work, and where that is."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lightning_gpuprof.model.finding import Evidence, Finding, Severity
from lightning_gpuprof.model.metrics import Blocked, Metrics
from lightning_gpuprof.model.phases import PHASE_TERMS, Phase
from lightning_gpuprof.model.waiting import LEAST_SAMPLES, Waiting
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    gain,
    measured,
    severity,
    steady_period_ms,
    threshold,
    usable,
    worthwhile,
)
from lightning_gpuprof.rules.wording import counted, listed, millis, percent


@dataclass(frozen=True, kw_only=True)
class BlockedInStep(BaseRule):
    """Inside forward, backward, the optimizer or the move of the batch, the training thread sleeps or waits.

    ## What it means

    Reading a file, waiting for a lock, a network answer or a subprocess, or a plain `sleep` inside `training_step` or
    the optimizer, or in the hooks that move the batch, stops the training without using a CPU. Operator tables do not
    show it, because no operator runs.

    ## How it is measured

    In sampled steps, the CPU time of the training thread is read at every phase edge. Blocked time is the phase's wall
    time minus that, in `forward`, `backward`, `optimizer`, `zero_grad`, `clip` and `h2d`, and minus the time in which
    the thread was ready to run but had no CPU, where the kernel tells it (`schedstat`). If torch computes on several
    threads, the training thread also waits for those, which is no fault. What that can be at most is taken off before
    the lower bound is held against the threshold: with N threads, N - 1 times the training thread's own CPU time in the
    phase, and not more than the CPU time that the process used beside the training thread. The phase with most of the
    rest is named, with the place in the user's code at which the thread was most often seen. The gain is the blocked
    time. What stepping the learning rate schedulers takes is no part of it: see `lr-scheduler-cost`. Where
    `interpreter-lock` finds what is waited for, the gain is counted there.

    ## When it is wrong

    - On a GPU, blocked time includes waiting for the device, which may be useful work: not evaluated there.
    - With several ranks, waiting in `backward` is waiting for slower ranks: that phase is left out.
    - Where the kernel does not tell the waiting for a CPU: if the CPUs are used to nine tenths, by this run or by
      others, the finding is information only, with half the confidence.
    - With several torch threads, a real wait beside well-parallel computation is underestimated.

    ## What to do

    Move what waits out of the step: read before training or in the Dataset, write in a thread, do it every N steps.

    ## Example

    "Move what waits at train.py:41 training_step out of forward" for a sleep of 10 ms in a step of 18 ms.
    """

    id = "blocked-in-step"

    least_ratio: float = threshold(0.10, source="heuristic: a tenth of the step")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the phases in which the training thread works."""
        period_ms = steady_period_ms(metrics)
        found = _without_scheduler(metrics, measured(metrics.waiting))
        worst = found.worst
        certain = found.certain_ratio(worst)
        recoverable_ms = min(worst.blocked.median_ms, period_ms)
        if not worthwhile(recoverable_ms, period_ms):
            return None
        if certain < self.least_ratio:
            self._require_told_apart(found)
            return None
        site = worst.sites[0][0] if worst.sites else ""
        steps = min(metrics.steps.steady_count, worst.samples)
        level: Severity = "info" if found.crowded else severity(certain, steps)
        return self.finding(
            severity=level,
            subject=site or worst.phase,
            summary=(
                f"The training thread waits {millis(recoverable_ms)} of {millis(period_ms)} "
                f"({percent(worst.blocked.median_ratio)}) inside {worst.phase} without computing"
                f"{f', mostly at {site}' if site else ''}.{self._remarks(found)}"
            ),
            advice=_advice(worst.phase, site),
            evidence=(
                self.evidence("least_ratio", worst.blocked.median_ratio, f"blocked share of the step in {worst.phase}"),
                Evidence(name=f"{worst.phase} wall time", value=worst.wall_ms, unit="ms"),
                Evidence(name="blocked", value=worst.blocked.median_ms, unit="ms"),
                Evidence(
                    name="waiting for companion threads, at most", value=found.companions_ratio(worst), unit="ratio"
                ),
                Evidence(name="steps with CPU times", value=worst.samples, limit=LEAST_SAMPLES),
                *(
                    Evidence(name="call site", value=f"{name} ({counted(looks, 'look')})")
                    for name, looks in worst.sites[:3]
                ),
            ),
            gain=gain(recoverable_ms, certain * period_ms, period_ms),
            confidence=0.5 if found.crowded else 0.9 if site else 0.8,
            explains=claims.INTERPRETER if metrics.interpreter_is_held else claims.of_phase(worst.phase),
        )

    def _require_told_apart(self, found: Waiting) -> None:
        """Raise if much is blocked, and only for want of a signal it is not known on what."""
        if found.process_companions_ratio is not None or found.worst.blocked.lower_ratio < self.least_ratio:
            return
        if found.companions_ratio(found.worst) > 0:
            raise MissingSignal(
                "the CPU time of the process was not measured, so waiting for torch's threads cannot be told apart"
            )

    def _remarks(self, found: Waiting) -> str:
        also = [
            str(b.phase) for b in found.phases if b is not found.worst and found.certain_ratio(b) >= self.least_ratio
        ]
        text = f" Also in {listed(also)}." if also else ""
        if found.crowded:
            text += " The CPUs are fully used: part of it may be waiting for a CPU."
        return text


def _without_scheduler(metrics: Metrics, found: Waiting) -> Waiting:
    """Leave out of ``optimizer`` what stepping the learning rate schedulers takes, in which it may wait as well."""
    own = metrics.lr_scheduler
    if own is None or not usable(own):
        return found

    def rest(phase: Blocked) -> Blocked:
        if phase.phase != "optimizer":
            return phase
        less = replace(
            phase.blocked,
            median_ms=max(0.0, phase.blocked.median_ms - own.median_ms),
            median_ratio=max(0.0, phase.blocked.median_ratio - own.median_ratio),
            lower_ratio=max(0.0, phase.blocked.lower_ratio - own.median_ratio),
        )
        return replace(phase, wall_ms=max(0.0, phase.wall_ms - own.median_ms), blocked=less)

    return replace(found, phases=tuple(map(rest, found.phases)))


def _advice(phase: Phase, site: str) -> str:
    elsewhere = "read files before training or in the Dataset, write in a thread, wait for nothing every step"
    if site:
        return f"Move what waits at {site} out of {phase}: {elsewhere}."
    return (
        f"Look for what waits in {phase} ({PHASE_TERMS[phase]}) and move it out of the step: {elsewhere}. No line of "
        "your code was seen there."
    )
