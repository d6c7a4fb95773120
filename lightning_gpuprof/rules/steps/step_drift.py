"""The longer the run, the longer its steps.

## What it means
Something grows with every step and is processed again: a list of losses that is summed up, metrics whose state is a
list, a graph that is kept (`total += loss` without `.detach()`), hooks registered again, a cache without a limit.

## How it is measured
The steady steps are cut into fifths. Their medians must rise from one to the next, where one may fall by a tenth of the
whole rise. The near ends of the 95 % confidence intervals of the first and the last fifth must be more than 10 % apart.
As jumps are no drift (`phase-change`, or intended), medians of up to 100 blocks of steps are compared only between
sharp changes by 5 % or more. There, the Mann-Kendall test must find a trend (p below 0.001), and the Theil-Sen slope
must explain half of the growth and 10 % of the step.

The gain is at least the excess over the first fifth; it is the excess over the start of the line through the fifths if
they all lie on it and the slope within speed levels agrees, both within a tenth of the growth.

## When it is wrong
- Work that grows by design (longer sequences) and a machine that gets warm make all phases grow: the rule is silent.
- It is also silent if others took more CPUs in the last fifth, or the main thread waited longer for one, unless one
  phase alone computes or waits longer. If neither was measured, the finding is information only.

## What to do
In the named phase, keep numbers instead of tensors (`.detach()`), limit lists, reset metrics each epoch.
"""

from lightning_gpuprof.model.evenness import Growth
from lightning_gpuprof.model.phases import words_of
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, Finding, Metrics, counted, measured, millis, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.steps.uneven import LIMIT_S, UNKNOWN, computing_words, suspect_words

_GROWING = {"phase": "forward", "levels_ms": (0.0, 10.0, 20.0, 30.0, 40.0)}
_JUMP = {"phase": "forward", "levels_ms": (0.0, 0.5, 1.0, 29.0, 30.0), "slope": 0.03}
_UNKNOWN = {**_GROWING, "taken_cpus": None, "run_delay_ratio": None}


class StepDrift(BaseRule):
    id = "step-drift"
    title = "Steps get slower and slower"
    specialises = ("python-overhead",)
    is_clue = True

    least_growth_ratio: float = threshold(0.10, source="heuristic: machines vary less")
    most_chance: float = threshold(0.001, source="heuristic, stricter than the usual 0.01")
    least_gradual_ratio: float = threshold(0.5, source="heuristic: if more comes in jumps, it is phase-change")
    least_cost_s: float = threshold(LIMIT_S, source="heuristic: shorter ones are accidents of the machine")

    examples = (
        fires("a list is summed up in forward", "critical", "from 50.0 ms to 90.0 ms", fifths=_GROWING),
        fires("the load by others is not known", "info", "not measured", fifths=_UNKNOWN),
        quiet("a run that may differ by chance", fifths={**_GROWING, "p_value": 0.002}),
        looks_alike("growth comes in one jump", fifths=_JUMP),
        looks_alike("other programs take the CPUs", fifths={**_GROWING, "taken_cpus": 1.5, "cpu_busy_ratio": 1.0}),
        not_evaluated("60 steps are steady", "100 are needed", steady=60),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        metrics.require_steady()
        growth = measured(metrics.growth)
        if growth is None or growth.change is None or growth.change.by_machine or not self.is_gradual(growth):
            return None
        change, phase, unknown = growth.change, words_of(growth.change.phase), growth.change.crowded is None
        if growth.excess_s < self.least_cost_s or not growth.cost.certain.is_worth():
            return None
        return self.finding(
            subject=phase,
            summary=f"The step time grew gradually from {millis(growth.first_ms)} to {millis(change.slow.period_ms)} "
            f"over {counted(growth.steps, 'step')}, {millis(growth.drift.slope_ms_per_step * 1e3)} per 1,000 steps. "
            f"{percent(change.phase_ratio)} of it is in {phase}.{computing_words(change)}{UNKNOWN if unknown else ''}",
            advice=f"Find what grows with every step in {suspect_words(metrics, change)}: a list, a metric's state or "
            "a retained graph. Keep loss.detach() instead of loss, limit lists (collections.deque(maxlen=...)), reset "
            "metrics in on_train_epoch_end.",
            evidence=(
                self.evidence("least_growth_ratio", change.lower_ms / growth.first_ms, "growth of the step time"),
                self.evidence("most_chance", growth.drift.p_value, "chance of this without a trend"),
                self.fact(f"growth of {phase}", change.phase_ms, "ms"),
                *(self.fact(f"fifth {i}", one.period_ms, "ms") for i, one in enumerate(growth.drift.fifths, 1)),
            ),
            cost=growth.cost.uncertain if unknown else growth.cost,
            confidence=0.5 if unknown else 0.8,
            explains=claims.of_phase(change.phase),
        )

    def is_gradual(self, growth: Growth) -> bool:
        """Whether the steps get longer by enough, not by chance, and gradually: growth in jumps is no drift."""
        least_ms = self.least_growth_ratio * growth.first_ms
        gradually = growth.gradual_ms >= max(least_ms, self.least_gradual_ratio * growth.whole_ms)
        return growth.certain_ms >= least_ms and growth.drift.p_value < self.most_chance and gradually
