"""Python's garbage collector stops the training for a noticeable part of the time.

## What it means
Objects that refer to each other in cycles are freed by a collector. It starts after a number of new objects, on the
thread that made them, and no other Python code runs then. A collection of the oldest generation visits every
object: with millions of small ones (a dataset of lists and dicts, histories) it takes a good part of a second. A
program that makes many objects per step collects often.

## How it is measured
Two callbacks in `gc.callbacks` time each collection. The share is that of the time during the steps. Its lower bound is
lower by 1.645 / sqrt(n), where n is the number of collections of the most costly generation, as if they came by chance.
The gain is the whole time.

## When it is wrong
- Pauses are wall time. On a crowded machine they include waits for a CPU.
- Objects in cycles must be freed eventually. If collections are rarer, memory grows in between and the time moves to
  `gc.collect()`, although each collection then finds more.
- On a GPU, a host that runs ahead may pause at no cost. Unless the device is known to idle for that long (trace windows
  or NVML), the finding is information only.

## What to do
If the oldest generation is slow, exclude the objects made before training (`gc.freeze()`), keep them in arrays instead
of lists, or collect between epochs only. If it is the youngest, collect less often (`gc.set_threshold`), or make fewer
objects per step that refer to each other.
"""

import math

from lightning_gpuprof.model.host import GcUse, GenerationPauses
from lightning_gpuprof.model.numbers import counted, millis, percent, round_number, seconds
from lightning_gpuprof.rules.base import Advice, BaseRule, Change, Finding, Metrics, MissingSignal, claims, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.steps.host_time import HIDDEN
from lightning_gpuprof.rules.torch_advice import IN_MODULE

ONE_SIDED = 1.645
"""Standard errors of a mean from its 5 % lower bound."""

_MOST_TIMES = 100


_YOUNG = {"ratio": 0.1, "counts": (4000, 400, 4), "oldest": 0.1}


class GcPauses(BaseRule):
    id = "gc-pauses"
    title = "Garbage collection pauses training"
    specialises = ("step-outliers",)

    least_ratio: float = threshold(0.03, source="the least worthwhile gain")
    least_steps: int = threshold(50, source="heuristic")
    wanted_ratio: float = threshold(0.01, source="heuristic: what collecting may cost")

    examples = (
        fires("100 old collections take 30 %", "critical", "gc.freeze()", collecting={"ratio": 0.3}),
        fires("10 young ones a step take 10 %", "info", "10 times less often", collecting=_YOUNG),
        quiet("pauses take 2 %", collecting={"ratio": 0.02}),
        looks_alike("two long ones may be chance", collecting={"ratio": 0.1, "counts": (10, 2, 2)}),
        not_evaluated("pauses were not measured", "were not measured"),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        metrics.require_steady()
        pauses = metrics.host.gc
        if pauses is None:
            raise MissingSignal("the pauses of the garbage collector were not measured")
        if metrics.steps.steady_count < self.least_steps:
            needed = f"{self.least_steps} steady steps needed"
            raise MissingSignal(f"{metrics.steps.steady_count} of the {needed} were measured")
        mean_ms = pauses.pause_ms_per_step
        if mean_ms is None or not pauses.is_possible:
            raise MissingSignal("the pauses of the garbage collector are not valid numbers")
        worst = max(pauses.generations, key=lambda g: g.total_s, default=None)
        if worst is None or worst.count < 1:
            return None
        lower_ratio = pauses.pause_ratio * max(0.0, 1 - ONE_SIDED / math.sqrt(worst.count))
        if lower_ratio < self.least_ratio or not (mean_ms > 0 and lower_ratio > 0):
            return None
        step_ms = mean_ms / pauses.pause_ratio
        certain_ms = min(lower_ratio, metrics.host_limit.stalls_ratio) * step_ms
        cost = metrics.cost(mean_ms, certain_ms, step_ms=step_ms)
        if not cost.is_worth():
            return None
        hidden = cost.lower_ratio < self.least_ratio
        total_s = sum(g.total_s for g in pauses.generations)
        return self.finding(
            severity="info" if hidden else cost.severity,
            subject=f"garbage collector, {_name(worst)}",
            summary=f"Python's garbage collector takes {percent(pauses.pause_ratio)} of the time in steps, "
            f"{seconds(total_s)} in all. {counted(worst.count, 'collection')} of the {_name(worst)} took "
            f"{seconds(worst.total_s)}, the longest {millis(worst.longest_s * 1e3)}.{HIDDEN if hidden else ''}",
            advice=self._advice(metrics, worst, pauses.pause_ratio, step_ms),
            evidence=(
                self.evidence("least_ratio", pauses.pause_ratio, "pauses, share of the steps' time"),
                *(
                    self.fact(f"generation {g.generation}", f"{counted(g.count, 'collection')}, {seconds(g.total_s)}")
                    for g in pauses.generations
                    if g.count
                ),
                self.fact("pauses of 20 ms and more", pauses.long_count),
            ),
            cost=cost,
            leaves="collections of the objects that each step creates",
            confidence=0.5 if hidden else 0.85,
            explains=claims.OUTLIERS if _make_outliers(metrics, pauses) else claims.GARBAGE_COLLECTOR,
        )

    def _advice(self, metrics: Metrics, worst: GenerationPauses, ratio: float, period_ms: float) -> Advice:
        ranks = ", on all ranks in the same step" if metrics.is_distributed else ""
        if worst.generation >= 2:
            each_ms = worst.total_s * 1e3 / worst.count
            every = max(2, round_number(math.ceil(each_ms / (self.wanted_ratio * period_ms))))
            return (
                "Exclude dataset and model from each collection: gc.freeze() in on_train_start. If that is not enough, "
                f"gc.disable() there and gc.collect() every {every:,} steps{ranks}: one takes {millis(each_ms)}.",
                Change(add=("def on_train_start(self):", "    gc.freeze()"), place=IN_MODULE),
            )
        per_step = worst.count / max(1, metrics.steps.count)
        times = min(_MOST_TIMES, max(2, round_number(math.ceil(ratio / self.wanted_ratio))))
        threshold = f"gc.set_threshold({times} * gc.get_threshold()[0])"
        return (
            f"Collect {times} times less often: {threshold} in on_train_start. Why: the {_name(worst)} is collected "
            f"{per_step:.1f} times per step. Or make fewer small objects per step that refer to each other.",
            Change(add=("def on_train_start(self):", f"    {threshold}"), place=IN_MODULE),
        )


def _name(generation: GenerationPauses) -> str:
    return ("youngest generation", "middle generation", "oldest generation")[min(2, max(0, generation.generation))]


def _make_outliers(metrics: Metrics, pauses: GcUse) -> bool:
    """Whether at least half of the longest outlying steps hold a long pause, and they about half of the pauses."""
    outliers = metrics.outliers
    if outliers is None or not outliers.batches:
        return False
    if 2e-3 * outliers.excess_ms < sum(generation.total_s for generation in pauses.generations):
        return False  # ordinary steps pause as well
    paused = {pause.batch for pause in pauses.longest}
    return 2 * len(paused.intersection(outliers.batches)) >= len(outliers.batches)
