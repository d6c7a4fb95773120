"""What rules on time of the host share: how much of it holds up the step, and parts of a step that take too long."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from lightning_gpuprof.model.finding import Evidence, Finding, Gain, Severity, worthwhile
from lightning_gpuprof.model.signals import is_cpu_only, ordinary_ratio, steady_period_ms, step_share
from lightning_gpuprof.rules.base import BaseRule, Metrics, Phase, Share, gain, measured, severity

HIDDEN = " The device is not known to be idle that long: if the host is ahead, this costs nothing."
"""Said of time of the host that a device may not wait for."""


@dataclass(frozen=True, kw_only=True)
class HostTime:
    """Time of the host in ordinary steps, and how much of it holds them up."""

    period_ms: float
    ratio: float
    """Certain share of the step."""
    taken_ms: float
    """Per step."""
    most_ratio: float | None
    """Share of the step that it can hold up at most; None: not known."""

    @property
    def held_ratio(self) -> float:
        """Certain share of the step that it holds up, if it does."""
        return self.ratio if self.most_ratio is None else min(self.ratio, self.most_ratio)

    @property
    def recoverable_ms(self) -> float:
        """What a step gets shorter at most without it."""
        return self.taken_ms if self.most_ratio is None else min(self.taken_ms, self.most_ratio * self.period_ms)

    @property
    def gain(self) -> Gain:
        """Of a step without it; nothing is certain where it is not known whether it holds the step up."""
        return self.gain_of(1.0)

    def gain_of(self, part: float) -> Gain:
        """Of a step without a part of it.

        Args:
            part: 0 to 1.
        """
        certain_ms = 0.0 if self.most_ratio is None else self.held_ratio * self.period_ms
        return gain(part * self.recoverable_ms, part * certain_ms, self.period_ms)

    def is_worth(self, least_ratio: float, *, fixed_ms: float = 0.0) -> bool:
        """Whether it is worth a finding.

        Args:
            least_ratio: Share of the step that it has to hold up for certain.
            fixed_ms: What it may take without being held against that.
        """
        certain = self.held_ratio - fixed_ms / self.period_ms
        return certain >= least_ratio and worthwhile(self.recoverable_ms, self.period_ms)

    def severity(self, steps: int, *, fixed_ms: float = 0.0) -> Severity:
        """By what it holds up beyond ``fixed_ms``, in this many steps.

        Args:
            steps: Number of steady steps.
            fixed_ms: What it may take per step, in ms, without being held against that.
        """
        return "info" if self.most_ratio is None else severity(self.held_ratio - fixed_ms / self.period_ms, steps)


class PhaseRule(BaseRule, ABC):
    """A rule about a part of the step in which the host does something that should take little of it."""

    phase: ClassVar[Phase]
    """The phase that the part belongs to."""
    needs_window: ClassVar[bool] = False
    """On a device it is judged only where a trace window tells how long that idles; else it is information."""
    least_ratio: float
    """Share of the step from which it speaks; a threshold of each rule."""
    fixed_ms: float = 0.0
    """What the part may take without being held against that; likewise."""

    def part(self, metrics: Metrics) -> Share | None:
        """The part's share of the step; default: the whole phase.

        Returns:
            None if the run has no such part.

        Raises:
            MissingSignal: It was not measured.
        """
        return step_share(metrics, self.phase)

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the part of the step."""
        period_ms, share = steady_period_ms(metrics), self.part(metrics)
        if share is None:
            return None
        ratio = ordinary_ratio(metrics, share, self.phase)
        if ratio - self.fixed_ms / period_ms < self.least_ratio:
            return None
        limit = metrics.host_limit
        time = HostTime(
            period_ms=period_ms,
            ratio=ratio,
            taken_ms=max(ratio * period_ms, share.median_ms),
            most_ratio=measured(limit.ratio) if self.needs_window else limit.by_phase.get(self.phase),
        )
        return self.judge(metrics, time) if time.is_worth(self.least_ratio, fixed_ms=self.fixed_ms) else None

    @abstractmethod
    def judge(self, metrics: Metrics, time: HostTime) -> Finding | None:
        """Put a part that takes too long into words.

        Args:
            metrics: The run.
            time: What it takes.
        """


def idle_evidence(metrics: Metrics, phase: Phase) -> tuple[Evidence, ...]:
    """How long a device idles in a phase, for the findings that rest on it.

    Args:
        metrics: Metrics of the run.
        phase: A phase of the step.
    """
    most_ratio = metrics.host_limit.by_phase.get(phase)
    if most_ratio is None or is_cpu_only(metrics):
        return ()
    return (Evidence(name=f"device idle during {phase}, at most", value=most_ratio, unit="ratio"),)
