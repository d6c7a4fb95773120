"""Metrics flow in, the times of all ranks in the same steps flow out; rules that compare ranks share it."""

from __future__ import annotations

from lightning_gpuprof.model.metrics import Metrics, RankTimes
from lightning_gpuprof.rules.base import MIN_STEPS, MissingSignal, is_distributed


def rank_times(metrics: Metrics) -> RankTimes | None:
    """The times of all ranks.

    Returns:
        None if there is one rank only.

    Raises:
        MissingSignal: A rank's journal is not there, or too few steps are steady on all ranks.
    """
    if not is_distributed(metrics):
        return None
    times = metrics.ranks
    if times is None or len(times.ranks) < times.world_size:
        raise MissingSignal("the journals of all ranks are not in the run's folder")
    if times.steps < MIN_STEPS:
        raise MissingSignal(f"{times.steps} steps are steady on all ranks, {MIN_STEPS} are needed")
    return times
