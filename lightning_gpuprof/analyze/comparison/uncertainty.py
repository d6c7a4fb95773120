"""The uncertainty of a run's mean and median step time and of its phases.

Where there is no journal, the draws are made from what the report says. Its 95 % intervals come from such a bootstrap.
Reports without them give the standard error of the median of n independent values, ``1.2533 * std / sqrt(n)`` (the
asymptotic ``sqrt(pi / 2)`` of a normal sample; Kenney & Keeping, Mathematics of Statistics), which is on the safe side
for the mean.
"""

import math
from collections.abc import Mapping

import msgspec
import numpy as np

from lightning_gpuprof.analyze import compilation, steady
from lightning_gpuprof.analyze.comparison.resampling import Drawn, Resampling, draws_from_interval
from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.analyze.statistics import Floats
from lightning_gpuprof.model.comparison import Source
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.report import Distribution, Report, Steps

MEDIAN_ERROR = 1.2533
"""sqrt(pi / 2)."""

NORMAL_95 = 1.96


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Steady steps of a run in order of time; arrays of shape (n,), milliseconds."""

    period_ms: Floats
    phases_ms: Mapping[Phase, Floats]
    """Every phase that took any time in the run; with those that took none they sum to the step time."""


class Draws(msgspec.Struct, frozen=True, kw_only=True):
    """A run's statistics as drawn again and again, milliseconds."""

    source: Source
    mean_ms: Drawn
    median_ms: Drawn
    p95_ms: Drawn | None = None
    """None without a journal: reports have no interval of it."""
    phases_ms: Mapping[Phase, Drawn] = msgspec.field(default_factory=dict)
    """Of medians; empty without a journal."""
    mean_phases_ms: Mapping[Phase, float] = msgspec.field(default_factory=dict)
    """Not drawn: the means themselves; empty without a journal."""


def draws_of(report: Report, times: StepTimes | None, *, stream: int) -> Draws | None:
    """Draw the statistics of a run.

    Args:
        report: Of the run.
        times: Its steady steps; None if its journal is not there.
        stream: Number of the stream of random numbers; two runs must not share one.

    Returns:
        None if the run has no steady step.
    """
    steps = report.steps
    if steps.period_ms is None or not steps.steady_count:
        return None
    if times is not None:
        return _resampled(times, stream)
    return _draws_from_report(steps, steps.period_ms, stream)


def _resampled(times: StepTimes, stream: int) -> Draws:
    period = times.period_ms
    resampling = Resampling(period, stream=stream)
    return Draws(
        source="journal",
        mean_ms=resampling.means(period),
        median_ms=resampling.quantiles(period, 0.5),
        p95_ms=resampling.quantiles(period, 0.95),
        phases_ms={phase: resampling.quantiles(column, 0.5) for phase, column in times.phases_ms.items()},
        mean_phases_ms={phase: float(np.mean(column)) for phase, column in times.phases_ms.items()},
    )


def _draws_from_report(steps: Steps, period: Distribution, stream: int) -> Draws:
    mean, median = steps.period_mean_interval_ms, steps.period_median_interval_ms
    if mean is not None and median is not None:
        return Draws(
            source="interval",
            mean_ms=draws_from_interval(period.mean, mean, stream=stream),
            median_ms=draws_from_interval(period.median, median, stream=stream),
        )
    half_ms = NORMAL_95 * MEDIAN_ERROR * period.std / math.sqrt(steps.steady_count)

    def around(value: float) -> Drawn:
        return draws_from_interval(value, (value - half_ms, value + half_ms), stream=stream)

    return Draws(source="spread", mean_ms=around(period.mean), median_ms=around(period.median))


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
