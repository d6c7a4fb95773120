"""Finds that steps get slower and slower, and the phase that grows."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from lightning_gpuprof.model.evenness import Drift
from lightning_gpuprof.model.finding import Evidence, Finding, Severity
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    gain,
    possible,
    severity,
    steady_period_ms,
    threshold,
    worthwhile,
)
from lightning_gpuprof.rules.steps.uneven import (
    LIMIT_S,
    UNKNOWN,
    Moved,
    how_it_moved,
    moved,
    usable_stretch,
    where_to_look,
)
from lightning_gpuprof.rules.wording import counted, millis, percent

_LEAST_GROWTH_RATIO = 0.10
_MOST_CHANCE = 0.001
_LEAST_GRADUAL_RATIO = 0.5
_MOST_FALL_RATIO = 0.1


@dataclass(frozen=True, kw_only=True)
class StepDrift(BaseRule):
    """The longer the run goes on, the longer its steps become.

    ## What it means

    Something grows with every step and is walked through again: a list of losses or outputs that is summed up, metrics
    whose state is a list, a graph that is kept (`total += loss` without `.detach()`), hooks that are registered anew in
    each step, a cache without a bound. What costs little in the beginning costs most at the end of a long run.

    ## How it is measured

    The steady steps are cut into five parts of equal number. The medians must rise from part to part (one may fall by
    a tenth of the whole), and the last must lie above the first by more than 10 % with the near ends of both 95 %
    intervals. Jumps are no drift (they are `phase-change`, or by design, as where layers are unfrozen): the medians of
    up to 100 blocks of steps are compared only between sharp changes of level by 5 % or more. Of them Mann and
    Kendall's test must find a chance below 0.1 % for such an order without a trend, and Theil and Sen's slope must
    explain half of the growth, and 10 % of the step. The phase that holds most of the growth is named. The gain is what
    the steps took above the level of the first fifth; for a run that goes on, it grows.

    ## When it is wrong

    - Work that grows by design (sequences or resolutions that get longer) and a machine that gets warm make all phases
      grow alike: then it is silent.
    - So it is if others took more CPUs of this run in the last fifth, or the training thread waited longer for a CPU,
      unless one phase computes or waits longer by itself. If neither was measured, it is information only.
    - Fewer than 100 steady steps: not evaluated.

    ## What to do

    Find what grows in the named phase: keep numbers instead of tensors (`.item()` or `.detach()` every N steps), bound
    lists, reset metrics each epoch.

    ## Example

    "Steps grew little by little from 50.0 ms to 90.0 ms over 380 steps, 130 ms per 1,000 steps; 100 % of it in
    forward."
    """

    id = "step-drift"

    least_growth_ratio: float = threshold(
        _LEAST_GROWTH_RATIO, source="heuristic: above what a machine does by itself (catalogue: 5 % per 1,000 steps)"
    )
    most_chance: float = threshold(_MOST_CHANCE, source="heuristic, stricter than the catalogue's 0.01")
    least_gradual_ratio: float = threshold(
        _LEAST_GRADUAL_RATIO, source="heuristic: if more comes in jumps, these are what is to be told"
    )
    least_cost_s: float = threshold(LIMIT_S, source="heuristic: shorter ones are accidents of the machine")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the first and the last fifth of the steady steps."""
        steady_period_ms(metrics)
        drift = metrics.evenness.drift
        if drift is None:
            raise MissingSignal("too few steady steps to tell a drift (100 are needed)")
        if not _usable(drift):
            raise MissingSignal("the times of the parts of the run are no possible numbers")
        if not drifts(drift, self.least_growth_ratio, self.most_chance, self.least_gradual_ratio):
            return None
        change = moved(drift.fifths[-1], drift.fifths[0])
        if change is None or change.by_machine:
            return None
        unknown = change.crowded is None
        steps = sum(fifth.count for fifth in drift.fifths)
        first_ms, last_ms = change.fast.period_ms, change.slow.period_ms
        mean_ms = sum(fifth.period_ms * fifth.count for fifth in drift.fifths) / steps
        excess_ms = mean_ms - first_ms
        lower_ms = excess_ms * change.lower_ms / (last_ms - first_ms)
        if excess_ms * steps < self.least_cost_s * 1e3 or not worthwhile(lower_ms, mean_ms):
            return None
        level: Severity = "info" if unknown else severity(lower_ms / mean_ms, steps)
        return self.finding(
            severity=level,
            subject=change.phase,
            summary=(
                f"Steps grew little by little from {millis(first_ms)} to {millis(last_ms)} over "
                f"{counted(steps, 'step')}, {millis(drift.slope_ms_per_step * 1e3)} per 1,000 steps; "
                f"{percent(change.phase_ratio)} of it in "
                f"{change.phase}.{how_it_moved(change)}{UNKNOWN if unknown else ''}"
            ),
            advice=_advice(metrics, change),
            evidence=(
                self.evidence("least_growth_ratio", change.lower_ms / first_ms, "growth of the period"),
                self.evidence("most_chance", drift.p_value, "chance of such a trend without one"),
                Evidence(name=f"{change.phase} grew by", value=change.phase_ms, unit="ms"),
                *(
                    Evidence(name=f"fifth {number}", value=fifth.period_ms, unit="ms")
                    for number, fifth in enumerate(drift.fifths, 1)
                ),
            ),
            gain=gain(excess_ms, 0.0 if unknown else lower_ms, mean_ms),
            confidence=0.5 if unknown else 0.8,
            explains=claims.of_phase(change.phase),
        )


def drifts(
    drift: Drift,
    least_growth_ratio: float = _LEAST_GROWTH_RATIO,
    most_chance: float = _MOST_CHANCE,
    least_gradual_ratio: float = _LEAST_GRADUAL_RATIO,
) -> bool:
    """Whether the period grows from fifth to fifth, by enough and gradually: what it grows by in jumps is no drift."""
    levels = [fifth.period_ms for fifth in drift.fifths]
    rises = [after - before for before, after in itertools.pairwise(levels)]
    whole_ms = levels[-1] - levels[0]
    first, last = drift.fifths[0].interval_ms, drift.fifths[-1].interval_ms
    if whole_ms <= 0 or min(rises) < -_MOST_FALL_RATIO * whole_ms or first is None or last is None:
        return False
    gradual_ms = drift.slope_ms_per_step * sum(fifth.count for fifth in drift.fifths)
    return (
        last[0] - first[1] >= least_growth_ratio * levels[0]
        and drift.p_value < most_chance
        and gradual_ms >= max(least_growth_ratio * levels[0], least_gradual_ratio * whole_ms)
    )


def _usable(drift: Drift) -> bool:
    return (
        len(drift.fifths) >= 3
        and all(map(usable_stretch, drift.fifths))
        and possible(drift.p_value)
        and possible(abs(drift.slope_ms_per_step))
    )


def _advice(metrics: Metrics, change: Moved) -> str:
    what = where_to_look(metrics, change)
    return (
        f"Find what grows with every step in {what}: a list, a metric's state or a graph that is kept and walked "
        "through "
        "again. Keep loss.detach() instead of loss, bound lists (collections.deque(maxlen=...)), reset metrics in "
        "on_train_epoch_end."
    )
