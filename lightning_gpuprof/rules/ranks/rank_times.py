"""The times of all ranks in the same steps, for the rules that compare ranks."""

import math

from msgspec.structs import replace

from lightning_gpuprof.model.rank_times import RankTimes
from lightning_gpuprof.model.signals import MIN_STEPS, rank_wait_ratio
from lightning_gpuprof.rules.base import Cost, Evidence, FamilyRule, Metrics, MissingSignal, Share, measured


class RankRule(FamilyRule[RankTimes]):
    """A rule that compares the ranks."""

    needs = "ranks"

    def look(self, metrics: Metrics) -> RankTimes | None:
        """The times of all ranks, None if there is one; raises MissingSignal if too few ranks or steps are known."""
        metrics.require_steady()
        if not metrics.is_distributed:
            return None
        if metrics.ranks is None:
            raise MissingSignal("the ranks were not compared")
        times = measured(metrics.ranks)
        if times.steps < MIN_STEPS:
            raise MissingSignal(f"{times.steps} steps are steady on all ranks, {MIN_STEPS} are needed")
        return times


def lost_by_waiting(metrics: Metrics, share: Share, steps: int) -> Cost:
    """Time of one rank beyond others, as far as the device of this rank can wait for it.

    Args:
        metrics: The run.
        share: How much longer the rank takes than the others, of a step.
        steps: That all ranks were compared in.

    Returns:
        In ms per step; without a limit on a CPU, or if no trace window shows what the device waits for.
    """
    most = rank_wait_ratio(metrics)
    return replace(metrics.cost_of(share), steps=steps, most_ratio=math.inf if most is None else most)


def waiting_evidence(metrics: Metrics) -> Evidence | None:
    """How long the device can wait for another rank, if that is known. Otherwise None."""
    most, name = rank_wait_ratio(metrics), "device idle or only communicating, share of the step"
    return None if most is None else Evidence(name=name, value=most, unit="ratio")
