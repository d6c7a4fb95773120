"""What rules share that say why batches are made too slowly, where steps wait for them."""

from __future__ import annotations

import math
from abc import ABC
from typing import TYPE_CHECKING, ClassVar

from lightning_gpuprof.model.finding import Evidence, Finding, Severity
from lightning_gpuprof.model.loading import Starving
from lightning_gpuprof.model.numbers import capital
from lightning_gpuprof.rules.base import Cost, FamilyRule, Metrics, Words, claims, measured, millis
from lightning_gpuprof.rules.input.loading import wait_severity, wait_words

if TYPE_CHECKING:
    from typing_extensions import Unpack


class StarvingRule(FamilyRule[Starving], ABC):
    """A rule that says why batches are made too slowly, where steps wait for them."""

    needs_workers: ClassVar[bool] = True
    """It judges what workers do, not the loading on the main thread."""
    least_ratio: float
    """Certain share of the wait from which it speaks; a threshold of each rule."""

    def look(self, metrics: Metrics) -> Starving | None:
        """How steps wait for the making of batches, if they do. Otherwise None."""
        found = measured(metrics.starving)
        if found is None or found.state.certain_ratio < self.least_ratio:
            return None
        return None if self.needs_workers and not found.state.num_workers else found

    def of_starving(
        self, metrics: Metrics, found: Starving, cost: Cost, *, level: Severity | None = None, **words: Unpack[Words]
    ) -> Finding:
        """A finding whose summary ends with the wait.

        Args:
            metrics: The run.
            found: How the steps wait.
            cost: As of :func:`cost_of_part`.
            level: Default: by the certain share of the wait and what the device idles.
            **words: Without the wait.

        Returns:
            It explains the wait for batches, or outlying steps if batches come in bursts.
        """
        state = found.state
        words["explains"] = claims.OUTLIERS if found.bursts else claims.WAIT_FOR_BATCHES
        words["phase"] = "data_wait"
        words["summary"] += f" {_wait_words(found)}"
        return self.finding(
            severity=level or wait_severity(state.idle_ratio, state.certain_ratio, metrics.steps.steady_count),
            cost=cost,
            **words,
        )

    def waiting(self, found: Starving) -> Evidence:
        """The share of the wait."""
        name = f"waiting for data, share of {'all steps' if found.bursts else 'the step'}"
        return self.evidence("least_ratio", found.state.wait.median_ratio, name)


def cost_of_part(metrics: Metrics, found: Starving, part: float, most_ms: float = math.inf) -> Cost:
    """What a part of the making of batches costs; its lower bound is that of the wait's own.

    Args:
        metrics: The run.
        found: How the steps wait.
        part: 0 to 1.
        most_ms: No more is gained per step.

    Returns:
        In ms per step, a mean one if batches come in bursts.
    """
    step_ms, wait = found.state.period_ms, found.state.wait
    return metrics.cost(min(most_ms, found.saved_ms(part)), part * wait.lower_ratio * step_ms, step_ms=step_ms)


def _wait_words(found: Starving) -> str:
    said = wait_words(found.state, in_bursts=found.bursts)
    return f"Batches arrive in bursts: {said}." if found.bursts else f"{capital(said)}."


def without_words(found: Starving, name: str, part: float) -> str:
    """How often batches would come without a part of their loading, beside the time of a step without the wait.

    Args:
        found: How the steps wait.
        name: Of the part.
        part: 0 to 1.

    Returns:
        One sentence with its full stop.
    """
    state = found.state
    left_ms = found.make_ms * (1 - part) / max(1, state.num_workers)
    rest = f"the {millis(state.compute_ms)} that the rest of the step needs"
    if not state.num_workers:
        return f"Without {name}, loading a batch would take {millis(left_ms)}, on top of {rest}."
    who = "the worker" if state.num_workers == 1 else f"the {state.num_workers} workers"
    pace = "faster than" if left_ms < state.compute_ms else "slower than"
    if millis(left_ms) == millis(state.compute_ms):
        pace = "as fast as"
    return f"Without {name}, {who} would deliver a batch every {millis(left_ms)}, {pace} {rest}."
