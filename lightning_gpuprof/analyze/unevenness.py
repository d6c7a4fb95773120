"""How much the steps of a run differ: between its speed levels, and from its start to its end."""

import itertools
import math
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from lightning_gpuprof.model.cost import Cost
from lightning_gpuprof.model.evenness import Drift, Growth, LevelChange, SpeedChange, Stretch
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import Unmeasured
from lightning_gpuprof.model.numbers import possible
from lightning_gpuprof.model.phases import COMPUTE_PHASES, Phase
from lightning_gpuprof.model.signals import device_step

BUSY_RATIO = 0.8
"""Use of the CPUs from which others that take more of them make this run slower. Heuristic, as for outlying steps."""

TAKEN_CPUS = 0.2
"""More CPUs taken by others than this, and they may be the cause. Heuristic: a fifth of one CPU."""

DELAY_RATIO = 0.05
"""More waiting for a CPU than this, as a share of the step time, and others may be the cause, as in
``cpu-contention``."""

ALIKE_RATIO = 0.30
"""If the change is spread over the phases as the step is, but for less than this part of it, all changed alike.
Heuristic."""

LEAST_PART = 0.1
"""Of the steady steps that the fast part has at least, against which others are held. Heuristic."""

_OTHERS_RATIO = 0.3
"""Growth of the rest of the step over that of the phase that grew most, both relative, below which one phase grew.
Heuristic: what waits or computes longer by itself leaves the rest as it was, a clock does not."""
_MORE_CPU_RATIO = 0.2

_EPOCH_STEPS = 5
"""Steps after the start of an epoch in which a change is one that comes with the epoch. Heuristic."""

_RESTS_RATIO = 0.1
"""Idle time above which a device does not set the pace. Heuristic."""

_MOST_FALL_RATIO = 0.1
"""Of the whole growth, what a fifth may be below the one before. Heuristic."""

_IMPOSSIBLE = Unmeasured(why="the times of the parts of the run are not valid numbers")


def level_change(metrics: Metrics) -> LevelChange | Unmeasured | None:
    """Hold the slow speed level that costs most against the fastest that lasts; the run's ``device_step`` is read.

    Where speed levels show no change, or only what the machine did, those without waits for a CPU are asked: beside
    other programs, steps scatter by more than the program changes.

    Returns:
        None if the run has one level only, or no phase is longer in the slow one.
    """
    levels = metrics.evenness.speed_levels
    if not levels:
        return Unmeasured(why="the run never became steady")
    found = _change_of(metrics, levels)
    if isinstance(found, LevelChange) and not found.change.by_machine:
        return found
    own = _change_of(metrics, metrics.evenness.undelayed_levels, undelayed=True)
    return own if isinstance(own, LevelChange) else found


def _change_of(
    metrics: Metrics, levels: tuple[Stretch, ...], *, undelayed: bool = False
) -> LevelChange | Unmeasured | None:
    if not all(map(_usable, levels)):
        return _IMPOSSIBLE
    steps = sum(level.count for level in levels)
    lasting = [level for level in levels if level.count >= LEAST_PART * steps]
    if len(levels) < 2 or not lasting:
        return None
    fast = min(lasting, key=lambda level: level.period_ms)
    slow = max(levels, key=lambda level: (level.period_ms - fast.period_ms) * level.count)
    change = None if slow is fast else _speed_change(slow, fast, undelayed=undelayed)
    if change is None or (undelayed and change.phase == "data_wait" and not change.computes_longer):
        return None  # a fetch may wait for processes that others keep from their CPUs
    excess_ms = sum(max(0.0, level.period_ms - fast.period_ms) * level.count for level in levels) / steps
    return LevelChange(
        change=change,
        levels=levels,
        cost=Cost(
            ms=excess_ms,
            lower_ms=min(excess_ms, change.lower_ms * slow.count / steps),
            step_ms=sum(level.period_ms * level.count for level in levels) / steps,
            steps=steps,
        ),
        queued=_queued_meanwhile(metrics, change, levels),
        by_design=_by_design(levels, change),
        fills_a_cache=_fills_a_cache(metrics, levels, change),
        are_outliers=_are_outliers(metrics, slow),
    )


def growth(drift: Drift | None) -> Growth | Unmeasured | None:
    """How the steps get longer from fifth to fifth; None if they do not, or get shorter in between."""
    if drift is None:
        return Unmeasured(why="too few steady steps to find a drift (100 are needed)")
    fifths = drift.fifths
    numbers = drift.p_value, abs(drift.slope_ms_per_step)
    if len(fifths) < 3 or not all(map(_usable, fifths)) or not all(map(possible, numbers)):
        return _IMPOSSIBLE
    first, last = fifths[0], fifths[-1]
    whole_ms = last.period_ms - first.period_ms
    falls_ms = max(before.period_ms - after.period_ms for before, after in itertools.pairwise(fifths))
    if whole_ms <= 0 or falls_ms > _MOST_FALL_RATIO * whole_ms or not first.interval_ms or not last.interval_ms:
        return None
    steps = sum(fifth.count for fifth in fifths)
    return Growth(
        drift=drift,
        change=_speed_change(last, first),
        steps=steps,
        first_ms=first.period_ms,
        whole_ms=whole_ms,
        certain_ms=last.interval_ms[0] - first.interval_ms[1],
        gradual_ms=drift.slope_ms_per_step * steps,
        mean_ms=sum(fifth.period_ms * fifth.count for fifth in fifths) / steps,
    )


def _speed_change(slow: Stretch, fast: Stretch, *, undelayed: bool = False) -> SpeedChange | None:
    """Hold two parts of a run against each other; None if no phase is longer in the slow one."""
    names: list[Phase] = sorted({*slow.phases_ms, *fast.phases_ms})
    change_ms = {name: slow.phases_ms.get(name, 0.0) - fast.phases_ms.get(name, 0.0) for name in names}
    phase = max(names, key=lambda name: change_ms[name], default=None)
    if phase is None or change_ms[phase] <= 0:
        return None
    whole_ms = sum(ms for ms in change_ms.values() if ms > 0)
    change = SpeedChange(
        slow=slow,
        fast=fast,
        phase=phase,
        phase_ms=change_ms[phase],
        phase_ratio=change_ms[phase] / whole_ms,
        alike=_grew_alike(slow, fast, phase),
        crowded=_crowded(slow, fast),
        computed_ms=slow.computed_longer_ms(fast, phase),
        of_phase=_more_cpu_time(slow, fast, phase),
        undelayed=undelayed,
    )
    if undelayed and change.waits_longer:  # which no clock does; others may keep threads that it waits for from CPUs
        return replace(change, alike=False)
    return replace(change, crowded=False) if change.of_phase or change.waits_longer else change


def concentration(growth: Mapping[Phase, float], step: Mapping[Phase, float]) -> float:
    """Total variation between how a growth and how the ordinary step is spread over the phases.

    Args:
        growth: Growth of each phase in ms.
        step: Time of each phase in an ordinary step in ms.

    Returns:
        0: spread alike, or one of them has no time; 1: over different phases.
    """
    whole, usual = sum(growth.values()), sum(step.values())
    if whole <= 0 or usual <= 0:
        return 0.0
    return 0.5 * sum(abs(growth.get(name, 0.0) / whole - step.get(name, 0.0) / usual) for name in {*growth, *step})


def _usable(stretch: Stretch) -> bool:
    """Whether all its numbers are possible ones."""
    numbers = [*stretch.phases_ms.values(), *stretch.cpu_ms.values(), *(stretch.interval_ms or ()), stretch.period_ms]
    numbers += [x for x in (stretch.run_delay_ratio, stretch.taken_cpus, stretch.cpu_busy_ratio) if x is not None]
    return all(map(possible, numbers)) and stretch.period_ms > 0 and stretch.count > 0


def _grew_alike(slow: Stretch, fast: Stretch, phase: Phase) -> bool:
    """Whether the growth is spread as the step is, and not because nearly all of the step is the phase that grew."""
    growth = _grown(slow.phases_ms, fast.phases_ms)
    if concentration(growth, fast.phases_ms) >= ALIKE_RATIO:
        return False
    own_ms, whole_ms = fast.phases_ms.get(phase, 0.0), sum(fast.phases_ms.values())
    rest_ms = whole_ms - own_ms
    if own_ms <= 0 or rest_ms <= 0:
        return own_ms > 0
    others_ms = sum(growth.values()) - growth[phase]
    return others_ms / rest_ms >= _OTHERS_RATIO * growth[phase] / own_ms


def _grown(slow: Mapping[Phase, float], fast: Mapping[Phase, float]) -> dict[Phase, float]:
    return {name: max(0.0, slow.get(name, 0.0) - fast.get(name, 0.0)) for name in {*slow, *fast}}


def _more_cpu_time(slow: Stretch, fast: Stretch, phase: Phase) -> bool:
    computed_ms = slow.computed_longer_ms(fast, phase)
    return (
        computed_ms is not None
        and computed_ms >= _MORE_CPU_RATIO * sum(fast.cpu_ms.values())
        and concentration(_grown(slow.cpu_ms, fast.cpu_ms), fast.cpu_ms) >= ALIKE_RATIO
    )


def _crowded(slow: Stretch, fast: Stretch) -> bool | None:
    known = False
    if slow.taken_cpus is not None and slow.cpu_busy_ratio is not None:
        known = True
        if slow.taken_cpus - (fast.taken_cpus or 0.0) >= TAKEN_CPUS and slow.cpu_busy_ratio >= BUSY_RATIO:
            return True
    if slow.run_delay_ratio is not None:
        if slow.run_delay_ratio < DELAY_RATIO:  # whatever it was in the fast part, which may be too short to say
            known = True
        elif fast.run_delay_ratio is not None:
            known = True
            if slow.run_delay_ratio - fast.run_delay_ratio >= DELAY_RATIO:
                return True
    return False if known else None


def _queued_meanwhile(metrics: Metrics, change: SpeedChange, levels: Sequence[Stretch]) -> float | None:
    """Launches by which the host was ahead at the end of the fast part, if the slow one is the device's own pace.

    inf where that is no explanation: without a device, where the slow part comes first, and where the device has no
    work in a part of the step. None if no window shows how much is launched in a step.
    """
    fast = change.fast
    if metrics.is_cpu_only is not False or change.slow.from_batch < fast.from_batch:
        return math.inf
    step = device_step(metrics)
    if step is None or step.window is None:
        return None
    if step.busy_ms < (1.0 - _RESTS_RATIO) * change.slow.period_ms:
        return math.inf
    launches = step.window.device_work / step.steps
    warmup = (metrics.evenness.warmup_steps or 0) if fast is levels[0] else 0  # it is ahead in these already
    return (warmup + fast.count) * (1.0 - fast.period_ms / change.slow.period_ms) * launches


def _fills_a_cache(metrics: Metrics, levels: Sequence[Stretch], change: SpeedChange) -> bool:
    """Whether only the first epoch waits for its data, as where it reads them from a disk and later ones do not."""
    first, following = levels[:2]
    if change.phase != "data_wait" or change.slow is not first or first.into_epoch is not None:
        return False
    if following.into_epoch is None or following.into_epoch > _EPOCH_STEPS:
        return False
    batches = metrics.number("trainer.num_training_batches")
    return batches is None or following.from_batch - following.into_epoch - first.from_batch <= batches


def _by_design(levels: Sequence[Stretch], change: SpeedChange) -> bool:
    """Whether the model's own work changes with an epoch."""
    later = max(change.slow, change.fast, key=lambda stretch: stretch.from_batch)
    begun = later.into_epoch is not None and later.into_epoch <= _EPOCH_STEPS
    return begun and change.phase in COMPUTE_PHASES and later is not levels[0] and not change.waits_longer


def _are_outliers(metrics: Metrics, slow: Stretch) -> bool:
    """Whether the slow part is so small that its steps count as outlying ones."""
    outliers = metrics.outliers
    return outliers is not None and slow.period_ms > outliers.limit_ms and 2 * outliers.count >= slow.count
