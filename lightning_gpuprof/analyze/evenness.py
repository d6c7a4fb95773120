"""Speed levels and fifths of a run, with what was sampled in each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from lightning_gpuprof.analyze import during_steps, statistics
from lightning_gpuprof.analyze.blocked import undelayed_ns
from lightning_gpuprof.analyze.cpu_time import SampledSteps
from lightning_gpuprof.analyze.journal_columns import Ints, Journal, narrow
from lightning_gpuprof.analyze.signals import values_of
from lightning_gpuprof.analyze.speed_levels import change_points
from lightning_gpuprof.analyze.steady import Selection
from lightning_gpuprof.analyze.trend import trend
from lightning_gpuprof.model.evenness import Drift, Evenness, Stretch
from lightning_gpuprof.model.journal import PROFILED, Sample
from lightning_gpuprof.model.phases import Phase

MIN_DRIFT_STEPS = 100
"""Catalogue: a trend needs so many steps."""
FIFTHS = 5
MAX_BLOCKS = 100
"""The trend is that of the medians of so many blocks of steps: single long steps do not move them."""
MIN_BLOCK_STEPS = 5
MIN_JUMP = math.log(1.05)
"""A sharp change of level by more than this is none of the trend, but by design or a change of its own."""
NEAR_STEPS = 3
"""A change so shortly before the start of an epoch is one at its start."""


def evenness(journal: Journal, chosen: Selection, sampled: SampledSteps) -> Evenness:
    """Describe the speed levels and the fifths of the steady steps.

    Args:
        journal: One rank's journal.
        chosen: Which steps count.
        sampled: The steady ones with CPU times.

    Returns:
        Times of phases in ms; without steady steps its parts are empty or None.
    """
    view = _StretchBuilder(journal)
    steady = narrow(np.flatnonzero(chosen.steady))
    edges = np.searchsorted(steady, [*chosen.level_starts, len(chosen.steady)])
    speed_levels = view.stretches([steady[a:b] for a, b in itertools.pairwise(edges) if b > a])
    return Evenness(
        speed_levels=speed_levels,
        undelayed_levels=_undelayed_levels(sampled, steady, view),
        drift=_drift(journal, steady, view),
        warmup_steps=chosen.first_steady,
        warmup_excess_s=_warmup_excess_s(journal, chosen.first_steady, steady),
        warmup_taken_cpus=view.taken_cpus(0, chosen.first_steady - 1) if chosen.first_steady else None,
    )


def _undelayed_levels(sampled: SampledSteps, steady: Ints, view: _StretchBuilder) -> tuple[Stretch, ...]:
    """Other programs move the step time more than a change of this one does, but not what it is without the waits."""
    phases_ns = undelayed_ns(sampled)
    if phases_ns is None or sampled.delay_ns is None:
        return ()
    period_ms = np.maximum(sampled.period_ns - sampled.delay_ns, 0) / 1e6
    starts = change_points(period_ms)
    edges = [0, *np.searchsorted(steady, sampled.indices[starts]), len(steady)]
    found = []
    for (a, b), (first, stop) in zip(
        itertools.pairwise([0, *starts, len(period_ms)]), itertools.pairwise(edges), strict=True
    ):
        phases_ms = {phase: statistics.median(ns[a:b]) / 1e6 for phase, ns in phases_ns.items()}
        found.append(
            replace(
                view.stretch(steady[first:stop], phases_ms),
                period_ms=statistics.median(period_ms[a:b]),
                interval_ms=statistics.median_interval(period_ms[a:b]),
            )
        )
    return tuple(found)


def _warmup_excess_s(journal: Journal, first_steady: int | None, steady: Ints) -> float | None:
    if first_steady is None:
        return None
    early_steps = np.flatnonzero((journal.steps.flags[:first_steady] & PROFILED) == 0)
    rows = np.concatenate((early_steps, steady[statistics.thinned(len(steady))]))
    own = journal.steps.period_ns[rows].astype(np.int64)
    for phase in ("data_wait", "validation", "checkpoint"):
        own -= journal.phases[phase][rows]
    early, usual = own[: len(early_steps)], statistics.median(own[len(early_steps) :])
    return float(early.sum() - len(early) * usual) / 1e9


def _drift(journal: Journal, steady: Ints, view: _StretchBuilder) -> Drift | None:
    if len(steady) < MIN_DRIFT_STEPS:
        return None
    period_ns = journal.steps.period_ns[steady]
    blocks = min(MAX_BLOCKS, len(steady) // MIN_BLOCK_STEPS)
    of_blocks = np.array_split(period_ns, blocks)
    levels = np.array([statistics.median(block) / 1e6 for block in of_blocks])
    sizes = np.array([len(block) for block in of_blocks])
    places = np.cumsum(sizes) - (sizes + 1) / 2
    of_level = np.searchsorted(change_points(period_ns, MIN_JUMP), places, "right")
    del period_ns, of_blocks  # of a long run they would be in the way of what comes next
    found = trend(places, levels, of_level)
    if found is None:
        return None
    fifths = view.stretches(np.array_split(steady, FIFTHS))
    return Drift(fifths=fifths, slope_ms_per_step=found.slope, p_value=found.p_value)


class _StretchBuilder:
    """Looks at parts of the run."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._phases = journal.phases
        self._machine = during_steps.host_samples(journal).get("host", [])

    def stretches(self, parts: Sequence[Ints]) -> tuple[Stretch, ...]:
        """Each of the steady steps with some indices, ascending, at least one."""
        few = [chosen[statistics.thinned(len(chosen))] for chosen in parts]
        medians: dict[Phase, list[float]] = {}
        for phase in self._phases.timed:
            column = self._phases[phase]  # once for all parts: a long run's is unpacked
            medians[phase] = [statistics.median(column[chosen]) / 1e6 for chosen in few]
            del column  # for the next one
        phases_ms = [{phase: of_parts[part] for phase, of_parts in medians.items()} for part in range(len(parts))]
        return tuple(itertools.starmap(self.stretch, zip(parts, phases_ms, strict=True)))

    def taken_cpus(self, first: int, last: int) -> float | None:
        """CPUs of this run that others used from one step to another; None: no sample lies whole between them."""
        return self._machine_load(first, last)[0]

    def stretch(self, chosen: Ints, phases_ms: dict[Phase, float]) -> Stretch:
        """Steady steps with some indices, ascending, at least one.

        Args:
            chosen: The indices.
            phases_ms: Median time of each phase.
        """
        steps = self._journal.steps
        period_ms = steps.period_ns[chosen[statistics.thinned(len(chosen))]] / 1e6
        taken, busy = self._machine_load(int(chosen[0]), int(chosen[-1]))
        cpu_ms, delay = self._thread_times(chosen)
        return Stretch(
            from_batch=int(steps.batch[chosen[0]]),
            to_batch=int(steps.batch[chosen[-1]]),
            count=len(chosen),
            period_ms=statistics.median(period_ms),
            interval_ms=statistics.median_interval(period_ms),
            phases_ms=phases_ms,
            cpu_ms=cpu_ms,
            run_delay_ratio=delay,
            taken_cpus=taken,
            cpu_busy_ratio=busy,
            from_s=(int(steps.start_ns[chosen[0]]) - self._journal.header.start_ns) / 1e9,
            into_epoch=self._steps_into_epoch(int(chosen[0])),
        )

    def _thread_times(self, chosen: Ints) -> tuple[dict[Phase, float], float | None]:
        mask = np.zeros(len(self._journal.steps), np.bool_)
        mask[chosen] = True
        sampled = SampledSteps(self._journal, mask)
        return sampled.cpu_ms(self._phases.timed), sampled.delay_ratio()

    def _machine_load(self, first: int, last: int) -> tuple[float | None, float | None]:
        """CPUs that others took, and the use of all: of the samples that lie whole in the stretch."""
        steps = self._journal.steps
        begin, end = int(steps.start_ns[first]), int(steps.start_ns[last] + steps.period_ns[last])
        inside = [s for s, seconds in self._machine if begin <= s.t_ns - seconds * 1e9 and seconds and s.t_ns <= end]
        others = _mean(inside, "cpu_others_cpus")
        steal = _mean(inside, "cpu_steal_cpus")
        return None if others is None else others + (steal or 0.0), _mean(inside, "cpu_busy_ratio")

    def _steps_into_epoch(self, index: int) -> int | None:
        epoch = self._journal.steps.epoch
        near = min(index + NEAR_STEPS, len(epoch) - 1)
        if epoch[near] == epoch[0]:
            return None
        return max(0, index - int(np.flatnonzero(epoch == epoch[near])[0]))


def _mean(samples: Sequence[Sample], name: str) -> float | None:
    values = values_of(samples, name)
    return sum(values) / len(values) if values else None
