"""The times of all ranks in the same steps, for the rules that compare ranks."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.metrics import RankTimes
from lightning_gpuprof.model.signals import MIN_STEPS, device_step, is_distributed
from lightning_gpuprof.rules.base import Evidence, Gain, Metrics, MissingSignal, Share, gain, measured, worthwhile


def rank_times(metrics: Metrics) -> RankTimes | None:
    """The times of all ranks.

    Returns:
        None if there is one rank only.

    Raises:
        MissingSignal: Fewer than two ranks can be compared, or in too few steps.
    """
    if not is_distributed(metrics):
        return None
    if metrics.ranks is None:
        raise MissingSignal("the ranks were not compared")
    times = measured(metrics.ranks)
    if times.steps < MIN_STEPS:
        raise MissingSignal(f"{times.steps} steps are steady on all ranks, {MIN_STEPS} are needed")
    return times


@dataclass(frozen=True, kw_only=True)
class Lost:
    """What steps lose while ranks wait for another one."""

    period_ms: float
    lower_ratio: float
    """Certain share of the step."""
    lost_ms: float
    """Per step."""
    waiting_ratio: float | None
    """Share of the step in which the device of this rank can wait; None on a CPU, or where no trace window tells."""

    def is_worth(self, least_ratio: float) -> bool:
        """Whether it is worth a finding from this certain share of the step on."""
        return self.lower_ratio >= least_ratio and worthwhile(self.lost_ms, self.period_ms)

    @property
    def gain(self) -> Gain:
        """Of a step without it."""
        return gain(self.lost_ms, self.lower_ratio * self.period_ms, self.period_ms)

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """How long the device can wait, if that is known."""
        if self.waiting_ratio is None:
            return ()
        name = "device idle or only communicating, share of the step"
        return (Evidence(name=name, value=self.waiting_ratio, unit="ratio"),)


def lost_by_waiting(metrics: Metrics, share: Share, period_ms: float) -> Lost:
    """Time of one rank beyond others, as far as the device of this rank can wait for it.

    Args:
        metrics: The run.
        share: How much longer the rank takes than the others, of a step.
        period_ms: Median period.
    """
    most = most_waiting_ratio(metrics)
    return Lost(
        period_ms=period_ms,
        lower_ratio=share.lower_ratio if most is None else min(share.lower_ratio, most),
        lost_ms=share.median_ms if most is None else min(share.median_ms, most * period_ms),
        waiting_ratio=most,
    )


def most_waiting_ratio(metrics: Metrics) -> float | None:
    """Share of a step in which the device of this rank can wait for another one: it is idle, or only communicates.

    Returns:
        None on a CPU, or if no trace window tells.
    """
    step = device_step(metrics)
    analysis = None if step is None or step.window is None else step.window.analysis
    if step is None or analysis is None or analysis.communication is None:
        return None
    return min(1.0, step.idle_ratio + step.exposed_communication_ratio)
