"""Metrics flow in, the most that a finding can gain flows out: the time of what it explains, by the ledger."""

from __future__ import annotations

import math
from collections.abc import Mapping

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.phases import PHASES, Part, Phase
from lightning_gpuprof.rules.base import possible, usable

_PARTS: Mapping[str, Part] = {
    "validation": "validation",
    "checkpoint": "checkpoint",
    "epoch_gap": "epoch_gap",
    "sanity check": "sanity",
}
"""What a finding can explain -> the part of the wall time that it is, whole."""

_UNEVEN = frozenset({"outliers", "recompiles", "warm-up"})
"""What makes some steps longer than others: no more than what the mean of all steps has above the quickest ones."""

PHASE_OF: Mapping[str, Phase] = {
    **{phase: phase for phase in PHASES},
    "lr_scheduler_step": "optimizer",
    "sampler": "data_wait",
}
"""What a finding can explain -> the phase that it is, or is a part of."""


def most_ms(explains: str, whole_ms: float, metrics: Metrics) -> float:
    """The most that can be saved per step, averaged over the run, by ending what a finding explains.

    Of a phase, its time in the mean step, and of the whole that the gain refers to no larger share than the phase has:
    all other phases are the floor. A median alone would promise a wait that began in the middle of the run for all of
    it.

    Args:
        explains: What the gain is taken from (``Finding.explains``).
        whole_ms: T of the gain.
        metrics: The run.

    Returns:
        Infinite where the ledger does not tell.
    """
    part = _PARTS.get(explains)
    if part is not None:
        return _per_step_ms(metrics, part)
    if explains == "epoch_start":
        first_s = sum(start.first_wait_s for start in metrics.epoch_starts)
        return _per_step_ms(metrics, "epoch_gap") + first_s * 1e3 / max(1, metrics.steps.count)
    if explains in _UNEVEN:
        period = metrics.steps.period_ms
        return math.inf if period is None else max(0.0, _per_step_ms(metrics, "train") - period.p05)
    phase = PHASE_OF.get(explains)
    return math.inf if phase is None else _of_phase_ms(phase, whole_ms, metrics)


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
