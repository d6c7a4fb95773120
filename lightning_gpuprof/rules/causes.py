"""The slices of the run's time that may bound it, each compared with its threshold."""

from collections.abc import Iterable

from lightning_gpuprof.model.device_step import DeviceStep
from lightning_gpuprof.model.numbers import counted, listed, seconds
from lightning_gpuprof.model.outliers import UNLIKELY, Stalls, dominant_phases
from lightning_gpuprof.model.phases import Part, words_of
from lightning_gpuprof.model.rank_times import RankTimes
from lightning_gpuprof.rules.base import Metrics, MissingSignal, millis, percent
from lightning_gpuprof.rules.cause import KIND_OF_PHASE, MIN_NAMED_RATIO, Cause
from lightning_gpuprof.rules.device_causes import device_causes
from lightning_gpuprof.rules.host_causes import host_causes
from lightning_gpuprof.rules.steps.uneven import LIMIT_S

OUTSIDE_RATIO = 0.25
"""Validation, checkpoints and gaps between epochs, of the wall time. The method's decision tree."""

OUTLIERS_RATIO = 0.25
"""Excess of outlying steps, of the time of the checked steps. Heuristic."""

_PLURALS: dict[Part, str] = {"checkpoint": "checkpoints", "epoch_gap": "gaps between epochs"}


def causes_of(metrics: Metrics, step: DeviceStep | None) -> Iterable[Cause]:
    """All causes in the order of the decision tree, the model's own work last.

    Args:
        metrics: The run, whose step time is known.
        step: What a device's time is made of; None on a CPU, and where no device was seen.

    Yields:
        Also those below their thresholds; each ratio is of the run without setup and teardown.
    """
    outside = outside_steps(metrics)
    yield outside
    in_steps = max(0.0, 1.0 - outside.ratio)
    outliers = _outlying_steps(metrics)
    if outliers is not None:
        yield outliers.of_run(in_steps)
        in_steps = max(0.0, in_steps - outliers.ratio * in_steps)
    for cause in host_causes(metrics) if step is None else device_causes(metrics, step):
        yield cause.of_run(in_steps)


def outside_steps(metrics: Metrics) -> Cause:
    """Validation, checkpoints and gaps between epochs, whatever the number of steps if most of the run is there."""
    try:
        total_s = metrics.run_s
    except MissingSignal:
        return Cause(kind="outside-steps", ratio=0.0, passes=False, words="")
    parts_s = sorted(((part_s, _PLURALS.get(part, part)) for part, part_s in metrics.outside_s.items()), reverse=True)
    ratio = min(1.0, max(0.0, sum(part_s for part_s, _ in parts_s) / total_s))
    shown = [f"{name} {seconds(part_s)}" for part_s, name in parts_s if part_s >= MIN_NAMED_RATIO * total_s]
    return Cause(
        kind="outside-steps",
        ratio=ratio,
        passes=ratio > OUTSIDE_RATIO,
        words=f"{percent(ratio)} of the run is spent outside the steps: {listed(shown or ['little'])} of "
        f"the {seconds(total_s)} after setup",
    )


def _outlying_steps(metrics: Metrics) -> Cause | None:
    stalls = metrics.stalls
    if not isinstance(stalls, Stalls) or stalls.alike:  # work of larger batches
        return None
    outliers, attributed_ms = stalls.outliers, stalls.attributed_ms
    if outliers.count == 0 or outliers.excess_ms == 0:
        return None
    holders = dominant_phases(attributed_ms, named_ratio=0.8)
    if outliers.excess_ms < LIMIT_S * 1e3 and stalls.may_be_pauses((phase for phase, _ in holders), UNLIKELY):
        return None
    ratio = min(1.0, sum(attributed_ms.values()) / outliers.total_ms, outliers.excess_ms / outliers.total_ms)
    phase, part = holders[0]
    return Cause(
        kind=KIND_OF_PHASE.get(phase, "host-bound"),
        ratio=ratio,
        passes=ratio >= OUTLIERS_RATIO,
        words=f"{outliers.count:,} of {counted(outliers.checked, 'step')} "
        + (
            "are a slow part of the run"
            if stalls.in_slow_levels
            else f"stalled and took up to {millis(outliers.worst_ms)}"
        )
        + f": {percent(ratio)} of the steps' time, {percent(part)} of that in {words_of(phase)}"
        + _for_rare_ranks(metrics, ratio),
    )


def _for_rare_ranks(metrics: Metrics, ratio: float) -> str:
    """Ranks that are late now and then for at least half of what stalls cost; empty if there are none."""
    times = metrics.ranks
    rare = times.rare if isinstance(times, RankTimes) else None
    if not isinstance(times, RankTimes) or rare is None or rare.lower_ratio <= 0.5 * ratio:
        return ""
    ranks = times.named(*rare.ranks)
    take = "takes" if len(rare.ranks) == 1 else "take"
    return f", because of {ranks}, which {take} longer then ({words_of(rare.phase)})"
