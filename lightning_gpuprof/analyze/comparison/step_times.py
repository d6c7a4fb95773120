"""The step times of a journal's steady steps, which a comparison resamples."""

from collections.abc import Mapping

import msgspec

from lightning_gpuprof.analyze import compilation, steady
from lightning_gpuprof.analyze.journal import Journal
from lightning_gpuprof.analyze.statistics import Floats
from lightning_gpuprof.model.phases import Phase


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Steady steps of a run in order of time; arrays of shape (n,), milliseconds."""

    period_ms: Floats
    phases_ms: Mapping[Phase, Floats]
    """Every phase that took any time in the run; with those that took none they sum to the step time."""


def step_times(journal: Journal) -> StepTimes | None:
    """The steps that the report's statistics rest on; None if there is none."""
    phases = journal.phases
    chosen = steady.select(journal.steps, phases, compilation.compiled_steps(journal)).steady
    if not chosen.any():
        return None
    return StepTimes(
        period_ms=journal.steps.period_ns[chosen] / 1e6,
        phases_ms={phase: column[chosen] / 1e6 for phase, column in phases.items() if column.any()},
    )
