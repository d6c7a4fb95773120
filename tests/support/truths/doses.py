"""Dose and response: costs of several sizes at one place, and the gain that the finding promises for each."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from truths.faults_of_data import slow_batch
from truths.faults_of_loops import slow_callback, slow_logger
from truths.faults_of_steps import sleep_in_backward, sleep_in_forward, sleep_in_optimizer
from truths.fits import Fit
from truths.models import Kind
from truths.running import Job, RunOutcome, read_outcome
from truths.setup import Fault, Setup

DOSES_MS = (0, 1, 2, 5, 10, 20)
TOLERANCE = 0.10
STEPS = 150

WHOLE_PHASES: Mapping[str, str] = {"dataset": "data_wait", "callback": "callbacks", "logger": "logging"}
"""Places whose finding promises the whole phase, also what it takes without a dose."""

PLACES: Mapping[str, tuple[Kind, Callable[[float], Fault], tuple[str, ...]]] = {
    "dataset": ("mlp", slow_batch, ("single-process-loading", "input-bound")),
    "callback": ("conv", slow_callback, ("callback-slow",)),
    "forward": ("transformer", sleep_in_forward, ("blocked-in-step",)),
    "backward": ("mlp", sleep_in_backward, ("blocked-in-step",)),
    "optimizer": ("recurrent", sleep_in_optimizer, ("blocked-in-step",)),
    "logger": ("mlp", slow_logger, ("logging-overhead",)),
}
"""Place → model, what plants a cost there, and the rules that are to find it."""


@dataclass(frozen=True, kw_only=True)
class Response:
    """What came of one dose."""

    place: str
    dose_ms: float
    planted_ms: float
    """Median of what the calls really took."""
    phase_ms: float
    """Median of the phase that the promise is about; 0 where it is about the planted wait only."""
    recovered_ms: float | None
    """The gain that the finding promises; None: no finding with a gain."""
    rule: str
    alarms: tuple[str, ...]
    """Warnings and critical findings."""
    period_ms: float | None
    run_delay_ratio: float | None

    def off(self, without: Response) -> float | None:
        """How far the promise is from what could be gained, as a part of that.

        Args:
            without: The same place without a dose: what the phase takes there is promised, too.
        """
        if self.recovered_ms is None or self.planted_ms <= 0:
            return None
        return self.recovered_ms / (self.planted_ms + without.phase_ms) - 1.0


def jobs(repetition: int = 0) -> list[Job]:
    """One run for each place and dose."""
    return [
        Job(name=f"{place} {dose} ms", do=functools.partial(respond, place, dose, 1 + repetition))
        for place in PLACES
        for dose in DOSES_MS
    ]


def respond(place: str, dose_ms: float, seed: int, folder: Path) -> Response:
    """Run one dose; in a process of its own."""
    kind, plant, rules = PLACES[place]
    made: list[Setup] = []
    fit = Fit(kind=kind, faults=(plant(dose_ms),), steps=STEPS)
    told = read_outcome(fit(folder, seed, change=made.append))
    (cost,) = made[0].costs.values()
    promised = [f for f in told.findings if f.rule in rules and f.saved_ms is not None]
    return Response(
        place=place,
        dose_ms=dose_ms,
        planted_ms=cost.median_ms,
        phase_ms=told.phases_ms.get(WHOLE_PHASES.get(place, ""), 0.0),
        recovered_ms=promised[0].saved_ms if promised else None,
        rule=promised[0].rule if promised else "",
        alarms=alarms(told),
        period_ms=told.period_ms,
        run_delay_ratio=told.run_delay_ratio,
    )


def without_dose(responses: Sequence[Response]) -> dict[str, Response]:
    """Place → its run without a dose; where there was none, one that takes nothing."""
    nothing = {
        one.place: dataclasses.replace(one, dose_ms=0.0, planted_ms=0.0, phase_ms=0.0, recovered_ms=None)
        for one in responses
    }
    return nothing | {one.place: one for one in responses if one.dose_ms == 0}


def alarms(told: RunOutcome) -> tuple[str, ...]:
    """Rules with a warning or critical finding."""
    return tuple(f.rule for f in told.findings if f.severity != "info")
