"""Summarises all steps of a run: counts, step time, intervals, speed levels."""

import itertools

import numpy as np

from lightning_gpuprof.analyze import statistics
from lightning_gpuprof.analyze.comparison.resampling import LEVELS, moves_slowly
from lightning_gpuprof.analyze.journal_columns import Ints, Journal
from lightning_gpuprof.analyze.steady import Selection
from lightning_gpuprof.model.journal import DISTURBED
from lightning_gpuprof.model.phases import words_of
from lightning_gpuprof.model.report import NOISY_RATIO, SpeedLevel, Steps

SHOWN_LEVELS = 4
"""Of more speed levels the caveat gives the range."""
DRIFT_RATIO = 1.2
"""Between the first and the last fifth, as for a change of speed level; the fifths between must lie in order."""
PARTS_OF_GROWTH = (0.08, 0.6)
"""Of the whole change, what lies between two neighbouring fifths of a run that gets slower steadily. Heuristic."""
MIN_DRIFT_STEPS = 100

_WORDS = ("no", "one", "two", "three", "four")


def step_facts(journal: Journal, chosen: Selection, samples_per_step: int | None) -> Steps:
    """Sum the steps up.

    Args:
        journal: One rank's journal.
        chosen: Which steps count.
        samples_per_step: Of all ranks; None if not known.

    Returns:
        Times in ms; None of what there are too few steady steps for.
    """
    steps = journal.steps
    speed_levels = _speed_levels(journal, chosen)
    period = chosen.steady_of(steps.period_ns) / 1e6
    period_ms = statistics.distribution(period)
    mean_interval = statistics.mean_interval(period)
    known = samples_per_step and period_ms is not None and period_ms.mean > 0
    rate = samples_per_step * 1e3 if samples_per_step and known else None
    return Steps(
        count=len(steps),
        optimizer_steps=_optimizer_steps(journal),
        steady_from=None if chosen.first_steady is None else int(steps.batch[chosen.first_steady]),
        steady_count=len(period),
        period_ms=period_ms,
        samples_per_s=rate / period_ms.mean if rate and period_ms else None,
        period_median_interval_ms=statistics.median_interval(period),
        period_mean_interval_ms=mean_interval,
        samples_per_s_interval=(rate / mean_interval[1], rate / mean_interval[0]) if rate and mean_interval else None,
        labels=chosen.counts(),
        speed_levels=speed_levels,
        drift_ms=_drift(period),
    )


def _drift(period: statistics.Floats) -> tuple[float, float] | None:
    if not moves_slowly(period):
        return None
    means = [float(part.mean()) for part in np.array_split(period, LEVELS)]
    first, last = sorted((int(np.argmin(means)), int(np.argmax(means))))
    if abs(means[last] - means[first]) <= 2 * NOISY_RATIO * period.mean():
        return None
    return means[first], means[last]


def caveats(journal: Journal, facts: Steps, chosen: Selection) -> list[str]:
    """What a reader must know before a median is taken for the whole run.

    Args:
        journal: One rank's journal.
        facts: The summary.
        chosen: Which steps count.

    Returns:
        Sentences without their full stop; empty if there is nothing to know.
    """
    return [
        *_level_caveats(facts, chosen.steady_of(journal.steps.period_ns)),
        *_disturbed_caveats(journal.steps.flags[chosen.steady]),
    ]


def _disturbed_caveats(flags: Ints) -> list[str]:
    disturbed = int(np.count_nonzero(flags & DISTURBED))
    if not disturbed:
        return []
    return [f"{disturbed} of {len(flags)} steady steps ran during the analysis of a trace: the run is short"]


def _level_caveats(facts: Steps, period_ns: Ints) -> list[str]:
    speed_levels = facts.speed_levels
    parts = np.array_split(period_ns, 5) if len(period_ns) >= MIN_DRIFT_STEPS else []
    levels = [statistics.median(fifth) / 1e6 for fifth in parts]
    grew, fell = levels == sorted(levels), levels == sorted(levels, reverse=True)
    steadily = bool(levels) and (grew or fell) and max(levels) >= DRIFT_RATIO * min(levels)
    if len(speed_levels) > 1 and not (steadily and len(speed_levels) <= SHOWN_LEVELS and _in_no_jump(levels)):
        return [f"{_level_sentence(speed_levels)}; {_largest_phase_change(speed_levels)}"]
    if not steadily:
        return []
    return [
        f"the step time {'grew' if grew else 'fell'} steadily: {_shown(levels[0])} ms in the first fifth of the "
        f"steady steps, {_shown(levels[-1])} ms in the last"
    ]


def _in_no_jump(levels: list[float]) -> bool:
    """Whether each step from fifth to fifth has a part of the change; of two speed levels one has nearly all of it."""
    least, most = (part * (max(levels) - min(levels)) for part in PARTS_OF_GROWTH)
    return all(least <= abs(after - before) <= most for before, after in itertools.pairwise(levels))


def _shown(value: float) -> str:
    """Three digits, never with an exponent: ``12.3``, ``1,290``."""
    return f"{value:,.0f}" if value >= 999.5 else f"{value:.3g}"


def _level_sentence(speed_levels: tuple[SpeedLevel, ...]) -> str:
    levels = [r.period_ms.median for r in speed_levels]
    if len(speed_levels) > SHOWN_LEVELS:
        return (
            f"{len(speed_levels)} speed levels from {_shown(min(levels))} to {_shown(max(levels))} ms, the first until "
            f"batch {speed_levels[0].to_batch}"
        )
    pieces = [f"{_shown(r.period_ms.median)} ms until batch {r.to_batch}" for r in speed_levels[:-1]]
    return f"{_WORDS[len(speed_levels)]} speed levels: {', '.join(pieces)}, then {_shown(levels[-1])} ms"


def _largest_phase_change(speed_levels: tuple[SpeedLevel, ...]) -> str:
    """The phase that explains most of the largest change."""
    before, after = max(
        itertools.pairwise(speed_levels), key=lambda pair: abs(pair[1].period_ms.median - pair[0].period_ms.median)
    )
    sign = 1 if after.period_ms.median > before.period_ms.median else -1
    names = before.phases_ms.keys() | after.phases_ms.keys()
    change = {name: after.phases_ms.get(name, 0.0) - before.phases_ms.get(name, 0.0) for name in sorted(names)}
    phase = max(change, key=lambda name: sign * change[name])
    return f"{words_of(phase)} changed by {change[phase]:+.3g} ms"


def _speed_levels(journal: Journal, chosen: Selection) -> tuple[SpeedLevel, ...]:
    steps, phases = journal.steps, journal.phases
    found = []
    for start, stop in itertools.pairwise((*chosen.level_starts, len(steps))):
        steady = chosen.steady[start:stop]
        period_ms = statistics.distribution(steps.period_ns[start:stop][steady] / 1e6)
        if period_ms is None:
            continue
        count = int(np.count_nonzero(steady))
        few = start + np.flatnonzero(steady)[statistics.thinned(count)]
        found.append(
            SpeedLevel(
                from_batch=int(steps.batch[start]),
                to_batch=int(steps.batch[stop - 1]),
                count=count,
                period_ms=period_ms,
                phases_ms={phase: statistics.median(phases[phase][few]) / 1e6 for phase in phases.timed},
            )
        )
    return tuple(found)


def _optimizer_steps(journal: Journal) -> int:
    """By the trainer's own count where the run came to its end; else from the steps that are there."""
    if journal.header.stage != "fit":
        return 0
    done = journal.footer.global_step if journal.footer is not None else None
    steps = journal.steps
    if done is not None and len(steps):
        return done - steps.first_global_step
    return int(np.count_nonzero(steps.stepped)) + 1 if len(steps) else 0
