"""How much of a step can be gained elsewhere if the DataLoader workers set the pace."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.input_pipeline import InputLoader, InputPipeline
from lightning_gpuprof.model.numbers import counted, millis
from lightning_gpuprof.rules.base import Metrics, MissingSignal, measured, steady_period_ms, worthwhile


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How often workers that have no time left make a batch beside the step."""

    workers: int
    batch_ms: float
    """Time from one batch to the next."""
    period_ms: float
    """T, of the steps as they are."""

    @property
    def room_ms(self) -> float:
        """The most that a step can get shorter at this pace; 0 if that is not worthwhile."""
        room_ms = max(0.0, self.period_ms - self.batch_ms)
        return room_ms if worthwhile(room_ms, self.period_ms) else 0.0

    @property
    def words(self) -> str:
        """``2 workers deliver a batch every 12.0 ms at best``."""
        verb = "delivers" if self.workers == 1 else "deliver"
        return f"{counted(self.workers, 'worker')} {verb} a batch every {millis(self.batch_ms)} at best"


def workers_pace(metrics: Metrics) -> Pace | None:
    """The pace that is left if workers make batches all the time.

    It is a lower bound of the step time that fixes elsewhere leave, so it is without what such fixes may end as well:
    the time in which workers are ready but have no CPU. And without the longest item of each, which may be its first.

    Returns:
        None without workers, or if the making of batches was not measured in them.
    """
    try:
        state, period_ms = measured(metrics.loading), steady_period_ms(metrics)
    except MissingSignal:
        return None
    if not state.num_workers or state.made is None or metrics.input is None:
        return None
    least_ms = max(0.0, state.batch_ms - state.queued_ms - _longest_ms(metrics.input, state.made))
    return Pace(workers=state.num_workers, batch_ms=least_ms / state.num_workers, period_ms=period_ms)


def _longest_ms(found: InputPipeline, made: InputLoader) -> float:
    """What the longest item and collation of each worker add to the mean time of a batch."""
    own = [worker for worker in found.workers if worker.loader == made.loader]
    longest_ms = sum((worker.item_max_ms or 0.0) + (worker.collate_max_ms or 0.0) for worker in own)
    return longest_ms / max(1, sum(worker.batches or worker.measured for worker in own))
