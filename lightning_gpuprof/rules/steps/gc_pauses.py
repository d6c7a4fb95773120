"""Finds that Python's garbage collector stops the training for a noticeable part of the time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding, Severity
from lightning_gpuprof.model.host import GcUse, GenerationPauses
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    gain,
    is_distributed,
    possible,
    severity,
    steady_period_ms,
    threshold,
    worthwhile,
)
from lightning_gpuprof.rules.steps.host_time import HIDDEN, stalled_ratio
from lightning_gpuprof.rules.wording import counted, millis, percent, seconds

_NORMAL_QUANTILE = 1.645
_MOST_TIMES = 100


@dataclass(frozen=True, kw_only=True)
class GcPauses(BaseRule):
    """Python's garbage collector stops the training for a noticeable part of the time.

    ## What it means

    Objects that refer to each other in circles are freed by a collector, which runs after so many new objects, on
    whichever thread made them, while no other Python code runs. A collection of the oldest generation looks at all
    objects that there are: with millions of small ones (a dataset of lists and dicts, histories) each takes a good part
    of a second. A program that makes many new objects per step collects often.

    ## How it is measured

    Two callbacks in `gc.callbacks` take the time of each collection (see the host's page). The share is that of the
    time during the steps; its lower bound takes off 1.645 / sqrt(n) of it, with n the collections of the generation
    that costs most, as if they came by chance. The gain is the whole time.

    ## When it is wrong

    - The pauses are wall time: on a crowded machine they hold waiting for a CPU, as the steps do.
    - Objects that are freed by the collector must be freed: with a rarer collection memory grows in between, and the
      time moves to where `gc.collect()` is called. It is less, because each collection finds more.
    - On a GPU, a host that is ahead can stop for a while and cost nothing: only as much as the device is idle, by trace
      windows or NVML, counts. If that is below the threshold or not known, it is information only.
    - In runs with fewer than 50 steady steps it is not evaluated.

    ## What to do

    If the oldest generation costs most: take the objects that were made before the training out of it
    (`gc.freeze()`), hold them in arrays instead of lists, or collect between epochs only. If the youngest does: let it
    collect less often (`gc.set_threshold`), or make fewer objects that refer to each other in each step.

    ## Example

    "gc.freeze() in on_train_start: 12 collections of the oldest generation took 3.1 s of 22 s."
    """

    id = "gc-pauses"
    specialises = ("step-outliers",)

    least_ratio: float = threshold(0.03, source="the least worthwhile gain (catalogue: 2 %)")
    least_steps: int = threshold(50, source="catalogue")
    wanted_ratio: float = threshold(0.01, source="heuristic: what collecting may cost")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge all pauses during the steps."""
        steady_period_ms(metrics)
        pauses = metrics.host.gc
        if pauses is None:
            raise MissingSignal("the pauses of the garbage collector were not measured")
        if metrics.steps.steady_count < self.least_steps:
            raise MissingSignal(
                f"{metrics.steps.steady_count} steady steps were measured, {self.least_steps} are needed"
            )
        mean_ms = pauses.pause_ms_per_step
        if mean_ms is None or not _usable(pauses):
            raise MissingSignal("the pauses of the garbage collector are no possible numbers")
        worst = max(pauses.generations, key=lambda g: g.total_s, default=None)
        if worst is None or worst.count < 1:
            return None
        lower_ratio = pauses.pause_ratio * max(0.0, 1 - _NORMAL_QUANTILE / math.sqrt(worst.count))
        period_ms = mean_ms / pauses.pause_ratio if pauses.pause_ratio > 0 else 0.0
        if lower_ratio < self.least_ratio or not worthwhile(mean_ms, period_ms):
            return None
        certain_ratio = stalled_ratio(metrics, lower_ratio)
        hidden = certain_ratio < self.least_ratio
        level: Severity = "info" if hidden else severity(certain_ratio, metrics.steps.steady_count)
        total_s = sum(g.total_s for g in pauses.generations)
        return self.finding(
            severity=level,
            subject=f"garbage collector, {_name(worst)}",
            summary=(
                f"Python's garbage collector stops the training for {percent(pauses.pause_ratio)} of the steps' time: "
                f"{seconds(total_s)} in all, {millis(mean_ms)} per step, of that {seconds(worst.total_s)} in "
                f"{counted(worst.count, 'collection')} of the {_name(worst)}, the longest "
                f"{millis(worst.longest_s * 1e3)}.{HIDDEN if hidden else ''}"
            ),
            advice=self._advice(metrics, worst, pauses.pause_ratio, period_ms),
            evidence=(
                self.evidence("least_ratio", pauses.pause_ratio, "pauses of the steps' time"),
                *(
                    Evidence(
                        name=f"generation {g.generation}",
                        value=f"{counted(g.count, 'collection')}, {seconds(g.total_s)}",
                    )
                    for g in pauses.generations
                    if g.count
                ),
                Evidence(name="pauses of 20 ms and more", value=pauses.long_count),
            ),
            gain=gain(mean_ms, certain_ratio * period_ms, period_ms),
            confidence=0.5 if hidden else 0.85,
            explains=claims.OUTLIERS if _make_outliers(metrics, pauses) else claims.GARBAGE_COLLECTOR,
        )

    def _advice(self, metrics: Metrics, worst: GenerationPauses, ratio: float, period_ms: float) -> str:
        ranks = ", on all ranks in the same step" if is_distributed(metrics) else ""
        if worst.generation >= 2:
            each_ms = worst.total_s * 1e3 / worst.count
            every = max(2, math.ceil(each_ms / (self.wanted_ratio * period_ms)))
            return (
                "In on_train_start call gc.freeze(): it takes the objects that are there by then (dataset, model) "
                f"out of each collection. If objects that the training itself keeps are many, gc.disable() there and "
                f"gc.collect() every {every:,} steps{ranks} (or in on_train_epoch_end): one takes {millis(each_ms)}."
            )
        per_step = worst.count / max(1, metrics.steps.count)
        times = min(_MOST_TIMES, max(2, math.ceil(ratio / self.wanted_ratio)))
        return (
            f"{per_step:.1f} collections of the {_name(worst)} per step: let it collect {times} times less often, "
            f"gc.set_threshold({times} * gc.get_threshold()[0]) in on_train_start, "
            "or make fewer small objects per step that refer to each other."
        )


def _name(generation: GenerationPauses) -> str:
    return ("youngest generation", "middle generation", "oldest generation")[min(2, max(0, generation.generation))]


def _usable(pauses: GcUse) -> bool:
    times = [pauses.pause_ratio, pauses.pause_ms_per_step or 0.0]
    times += [t for g in pauses.generations for t in (g.total_s, g.longest_s)]
    return all(map(possible, times)) and pauses.pause_ratio <= 1 and all(g.count >= 0 for g in pauses.generations)


def _make_outliers(metrics: Metrics, pauses: GcUse) -> bool:
    """Whether at least half of the longest outlying steps hold a long pause."""
    outliers = metrics.outliers
    if outliers is None or not outliers.batches:
        return False
    paused = {pause.batch for pause in pauses.longest}
    return 2 * len(paused.intersection(outliers.batches)) >= len(outliers.batches)
