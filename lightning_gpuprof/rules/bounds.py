"""The most that a finding can gain: the time of what it explains, by the ledger."""

import math
from collections.abc import Collection
from dataclasses import dataclass

from lightning_gpuprof.model.input_pipeline import InputLoader, InputPipeline
from lightning_gpuprof.model.numbers import counted, millis, possible
from lightning_gpuprof.model.phases import Part, Phase
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import Claim, Metrics, MissingSignal, measured, usable, worthwhile


def most_ms(claim: Claim, whole_ms: float, metrics: Metrics) -> float:
    """The most that can be saved per step, averaged over the run, by ending what a finding explains.

    Of a phase, its time in the mean step, and of the whole that the gain refers to no larger share than the phase has:
    all other phases are the floor. A median alone would promise a wait that began in the middle of the run for all of
    it.

    Args:
        claim: What the gain is taken from (``Finding.explains``).
        whole_ms: T of the gain.
        metrics: The run.

    Returns:
        Infinite where the ledger does not say.
    """
    if claim.part is not None:
        first_s = sum(start.first_wait_s for start in metrics.epoch_starts) if claim == claims.EPOCH_START else 0.0
        return _per_step_ms(metrics, claim.part) + first_s * 1e3 / max(1, metrics.steps.count)
    if claim.resource == "uneven steps":
        period = metrics.steps.period_ms
        return math.inf if period is None else max(0.0, _per_step_ms(metrics, "train") - period.p05)
    return phases_ms(claim.phases, whole_ms, metrics)


def phases_ms(phases: Collection[Phase], whole_ms: float, metrics: Metrics) -> float:
    """Time of some phases in the mean step, and of ``whole_ms`` no larger share than they have; infinite if unknown.

    Args:
        phases: Their names; none: the time is not known.
        whole_ms: Time of which the phases are a part.
        metrics: The run.
    """
    return sum(_of_phase_ms(phase, whole_ms, metrics) for phase in phases) if phases else math.inf


def _of_phase_ms(phase: Phase, whole_ms: float, metrics: Metrics) -> float:
    share, period = metrics.share(phase), metrics.steps.period_ms
    if share is None or not usable(share) or period is None or not possible(period.mean):
        return math.inf
    return min(share.total_ratio * period.mean, max(share.median_ratio, share.total_ratio) * whole_ms)


def _per_step_ms(metrics: Metrics, part: Part) -> float:
    part_s = metrics.wall.parts.get(part)
    if part_s is None or not possible(part_s) or metrics.steps.count < 1:
        return math.inf
    return part_s * 1e3 / metrics.steps.count


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
        state, period_ms = measured(metrics.loading), metrics.step_ms
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
