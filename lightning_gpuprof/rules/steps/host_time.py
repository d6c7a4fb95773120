"""What rules on time of the host share: how much of it holds up the step, and parts of a step that take too long."""

from typing import ClassVar

from lightning_gpuprof.rules.base import Cost, Evidence, FamilyRule, Metrics, Phase, Share, measured, ordinary_ratio

HIDDEN = " The device is not known to be idle that long: if the host is ahead, this costs nothing."
"""Said of time of the host that a device may not wait for."""


class PhaseRule(FamilyRule[Cost]):
    """A rule about a part of the step in which the host does something that should take little of it."""

    phase: ClassVar[Phase]
    """The phase that the part belongs to."""
    needs_window: ClassVar[bool] = False
    """On a device it is judged only where a trace window shows how long that idles; else it is information."""
    least_ratio: float
    """Share of the step from which it speaks; a threshold of each rule."""
    fixed_ms: float = 0.0
    """What the part may take, which does not count; likewise."""

    def part(self, metrics: Metrics) -> Share | None:
        """The part's share of the step; default: the whole phase. None: the run has no such part."""
        return metrics.share_of(self.phase)

    def look(self, metrics: Metrics) -> Cost | None:
        """The part, if it costs enough. Otherwise None."""
        step_ms, share = metrics.step_ms, self.part(metrics)
        if share is None:
            return None
        ratio = ordinary_ratio(metrics, share, self.phase)
        if ratio - self.fixed_ms / step_ms < self.least_ratio:
            return None
        limit = metrics.host_limit
        most_ratio = measured(limit.ratio) if self.needs_window else limit.by_phase.get(self.phase)
        cost = metrics.cost(max(ratio * step_ms, share.median_ms), ratio * step_ms, most_ratio=most_ratio)
        if not cost.is_worth(self.least_ratio, fixed_ms=self.fixed_ms):
            return None
        return cost.held if self.needs_window else cost


def idle_evidence(metrics: Metrics, phase: Phase) -> Evidence | None:
    """How long a device idles in a phase, for the findings that rest on it.

    Args:
        metrics: Metrics of the run.
        phase: A phase of the step.

    Returns:
        A ratio of the step, compared with no limit; None on a CPU or without a window.
    """
    most_ratio = metrics.host_limit.by_phase.get(phase)
    if most_ratio is None or metrics.is_cpu_only:
        return None
    return Evidence(name=f"device idle during {phase}, at most", value=most_ratio, unit="ratio")
