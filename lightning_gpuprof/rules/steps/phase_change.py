"""One part of the run is slower than the rest: the steps have several speed levels.

## What it means
At some batch the step time changes and stays changed. Data get larger or come from elsewhere, a cache fills up, or a
callback, a schedule or another job starts. The mean of the whole run describes neither part.

## How it is measured
A change-point search over the steady steps looks for sharp shifts of the median by more than a fifth that last at least
20 steps (`steps.speed_levels` in the report). The slow part that costs most is compared with the fastest part that has
at least a tenth of the steps.

Beside other programs, steps scatter. If the main thread waits for a CPU in 5 % of the step, step times without these
waits are searched as well, and the finding says so.

The finding names the phase with most of the difference, and whether the main thread computes or waits longer in it. The
gain is the excess of all slower parts over the fastest one. Its lower bound comes from the near ends of the medians' 95
% intervals.

## When it is wrong
- Another job on the machine: the rule is silent if, in the slow part, others took more CPUs from this run or the main
  thread waited longer for a CPU, unless one phase alone computes or waits longer. If neither was measured, the finding
  is information only.
- All phases changed alike (a lower clock, more work per step): the rule is silent, unless nearly all of the step is the
  phase that grew.
- Work that changes by design at the start of an epoch (unfrozen layers, longer sequences): information only, if one of
  the model's phases changed there without longer waits.
- A first epoch that waits longer for its data: it fills a cache, and that is over. Information only.
- On a GPU, the first steps are short because the host runs ahead until the queue of 1,024 launches is full. The rule is
  silent if the launches in a trace window explain the fast part and the device hardly idles. Without a window, the
  finding is information only.
- Many speed levels: nothing lasts, so the finding is information only. A gradual slow-down is `step-drift`.

## What to do
Look at what starts at that batch in the named phase. Two trace windows, one before and one after it, show the
difference.
"""

from lightning_gpuprof.model.evenness import Growth, LevelChange, Stretch
from lightning_gpuprof.model.numbers import counted, millis, percent
from lightning_gpuprof.model.phases import words_of
from lightning_gpuprof.rules.base import BaseRule, Finding, Metrics, claims, measured, threshold, worthwhile_evidence
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.steps.step_drift import StepDrift
from lightning_gpuprof.rules.steps.uneven import (
    LIMIT_S,
    UNKNOWN,
    WITHOUT_WAITS,
    computing_words,
    elapsed_words,
    suspect_words,
    window_at,
)

_PLANNED = " It changes at the start of an epoch, where layers, data or batches may change by design."
_COLD = " The first epoch read the data, later ones find them in a cache: this cost is past."
_AHEAD = " On a GPU the host may only have been ahead until the launch queue was full; no trace window shows it."

_EARLY = {"changes_ms": {"data_wait": 50.0}}
_LATE = {**_EARLY, "start": 100}
_TAKEN = {**_LATE, "taken_cpus": 1.6, "cpu_busy_ratio": 1.0}


class PhaseChange(BaseRule):
    id = "phase-change"
    title = "Part of the run is slower than the rest"
    specialises = ("step-outliers",)
    is_clue = True

    least_cost_s: float = threshold(LIMIT_S, source="heuristic: shorter ones are accidents of the machine")
    most_levels: int = threshold(4, source="heuristic: more mean an unsteady machine")
    most_queued: int = threshold(1280, source="HTA: a queue of 1,024; a quarter more, as launches are a mean")

    examples = (
        fires("the second part is slow", "critical", "100 ms instead of 50.0 ms", speed_levels=({}, _LATE)),
        fires("only the first part is slow", "critical", "Until batch 100", speed_levels=(_EARLY, {"start": 100})),
        quiet("all steps are alike", speed_levels=({"count": 400},)),
        looks_alike("another job takes the CPUs", speed_levels=({}, _TAKEN)),
        not_evaluated("it never became steady", "never became steady", speed_levels=()),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        metrics.require_steady()
        measured(metrics.level_change)
        found = self.lasting(metrics)
        if found is None:
            return None
        change, levels, cost, unknown = found.change, found.levels, found.cost, found.change.crowded is None
        known = ((found.by_design, _PLANNED), (found.fills_a_cache, _COLD), (found.queued is None, _AHEAD))
        caveats = [words for holds, words in (*known, (unknown, UNKNOWN)) if holds]
        weak = bool(caveats) or len(levels) > self.most_levels
        later = max(change.slow, change.fast, key=lambda stretch: stretch.from_batch)
        windows = sorted(window_at(metrics, (one.from_batch + one.to_batch) // 2) for one in (change.slow, change.fast))
        return self.finding(
            severity="info" if weak else None,
            subject=words_of(change.phase),
            summary=f"{_words(found)}{computing_words(change)}{''.join(caveats)}",
            advice=f"Find what changed at batch {later.from_batch} in {suspect_words(metrics, change)}. Two trace "
            f"windows show the difference: GpuProfiler(windows={windows}).",
            evidence=(
                worthwhile_evidence("excess of the slow part, per step", cost),
                self.evidence("least_cost_s", cost.ms * cost.steps / 1e3, "excess of the slow part, in all", "s"),
                self.fact(f"change in {words_of(change.phase)}", change.phase_ms, "ms"),
                *(self.fact(f"batches {one.from_batch} to {one.to_batch}", one.period_ms, "ms") for one in levels[:4]),
            ),
            cost=cost.uncertain if weak else cost,
            confidence=0.5 if weak else 0.85,
            explains=claims.OUTLIERS if found.are_outliers else claims.of_phase(change.phase),
        )

    def lasting(self, metrics: Metrics) -> LevelChange | None:
        """The change of speed, unless it is little, the machine's, a drift, or that of a host that is ahead."""
        found, growth = metrics.level_change, metrics.growth
        if not isinstance(found, LevelChange) or found.change.by_machine:
            return None
        if isinstance(growth, Growth) and StepDrift().is_gradual(growth):
            return None
        little = found.cost.ms * found.cost.steps < self.least_cost_s * 1e3
        ahead = found.queued is not None and found.queued <= self.most_queued
        return None if little or ahead or not found.cost.certain.is_worth() else found

    def is_certain(self, found: LevelChange) -> bool:
        """Whether it lasts, and is not only that of a host that was ahead."""
        return found.queued is not None and len(found.levels) <= self.most_levels


def _words(found: LevelChange) -> str:
    slow, fast, others = found.change.slow, found.change.fast, len(found.levels) - 2
    differ = f" {counted(others, 'other part')} of the run differ{'s' if others == 1 else ''} from both."
    without = WITHOUT_WAITS if found.change.undelayed else ""
    return (
        f"{_where(slow, found.levels)}, steps take {millis(slow.period_ms)} instead of {millis(fast.period_ms)} "
        f"(batches {fast.from_batch} to {fast.to_batch}){without}. "
        f"{percent(found.change.phase_ratio)} of the difference is in {words_of(found.change.phase)}."
        f"{differ if others else ''}"
    )


def _where(slow: Stretch, levels: tuple[Stretch, ...]) -> str:
    if slow is levels[-1]:
        return f"From batch {slow.from_batch} on{elapsed_words(slow)}"
    following = levels[levels.index(slow) + 1]
    if slow is levels[0]:
        return f"Until batch {following.from_batch}{elapsed_words(following)}"
    return f"From batch {slow.from_batch} until {following.from_batch}"
