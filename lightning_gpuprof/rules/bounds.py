"""The most that a finding can gain: the time of what it explains, by the ledger."""

import math
from collections.abc import Collection

from lightning_gpuprof.model.numbers import possible
from lightning_gpuprof.model.phases import Part, Phase
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import Claim, Metrics, usable


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
