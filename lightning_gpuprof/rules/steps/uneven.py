"""Two parts of a run flow in, what moved between them and whether the machine did it flows out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lightning_gpuprof.model.evenness import Stretch
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import millis, possible, seconds
from lightning_gpuprof.model.phases import COMPUTE_PHASES, Phase
from lightning_gpuprof.model.signals import condition
from lightning_gpuprof.rules.callbacks import class_name

BUSY_RATIO = 0.8
"""Use of the CPUs from which others that take more of them make this run slower. Heuristic, as for outlying steps."""

TAKEN_CPUS = 0.2
"""More CPUs taken by others than this, and they may be the cause. Heuristic: a fifth of one CPU."""

DELAY_RATIO = 0.05
"""More waiting for a CPU than this, as a share of the step time, and others may be the cause. Catalogue: "
"cpu-contention."""

ALIKE_RATIO = 0.30
"""If the change is spread over the phases as the step is, but for less than this part of it, all changed alike. "
"Heuristic."""

LIMIT_S = 0.5
"""Least time that an uneven run must cost. Heuristic: shorter ones are accidents of the machine."""

LEAST_PART = 0.1
"""Of the steady steps that the fast part has at least, against which others are held. Heuristic."""

_OTHERS_RATIO = 0.3
"""Growth of the rest of the step over that of the phase that grew most, both relative, below which one phase grew.
Heuristic: what waits or computes longer by itself leaves the rest as it was, a clock does not."""
_MORE_CPU_RATIO = 0.2
_COMPUTING_RATIO = 0.7


@dataclass(frozen=True, kw_only=True)
class Moved:
    """What differs between a slow and a fast part of a run."""

    slow: Stretch
    fast: Stretch
    phase: Phase
    """That of which most of the change is."""
    phase_ms: float
    """By how much it is longer in the slow part."""
    phase_ratio: float
    """Its part of the change, 0 to 1."""
    alike: bool
    """All phases grew alike, each by about the same factor."""
    crowded: bool | None
    """Others took CPUs of this run in the slow part only, and no phase computes or waits longer by itself; None: not
    measured."""
    computed_ms: float | None
    """By how much the main thread computes longer in the phase; None: not measured."""
    of_phase: bool
    """The phase needs more CPU time, and the others not alike: that is the program, whoever else is there."""

    @property
    def by_machine(self) -> bool:
        """Whether others on the machine, its clock, or the work per step made the change: no cause in the program."""
        return self.alike or self.crowded is True

    @property
    def lower_ms(self) -> float:
        """Lower bound of the change of the step time: between the near ends of both intervals.

        Where it is known how long the main thread had to wait for a CPU, that is taken off, but not what the phase
        computes longer by itself.
        """
        if self.slow.interval_ms is None or self.fast.interval_ms is None:
            return 0.0
        change_ms = max(0.0, self.slow.interval_ms[0] - self.fast.interval_ms[1])
        computed_ms = self.computed_ms if self.of_phase and self.computed_ms is not None else 0.0
        return max(change_ms - max(0.0, self.delayed_ms), min(change_ms, computed_ms))

    @property
    def delayed_ms(self) -> float:
        """By how much longer the main thread waits for a CPU in a step, as far as it was measured."""
        if self.slow.run_delay_ratio is None or self.fast.run_delay_ratio is None:
            return 0.0
        return self.slow.run_delay_ratio * self.slow.period_ms - self.fast.run_delay_ratio * self.fast.period_ms

    @property
    def computes_longer(self) -> bool:
        """Whether most of the change is CPU time of the main thread."""
        return self.computed_ms is not None and self.computed_ms >= _COMPUTING_RATIO * self.phase_ms

    @property
    def waits_longer(self) -> bool:
        """Whether most of the change is time in which the main thread neither computed nor wanted for a CPU."""
        if self.computed_ms is None:
            return False
        here_ms = max(0.0, self.delayed_ms - self._waited_elsewhere_ms)
        return self.phase_ms - self.computed_ms - here_ms >= _COMPUTING_RATIO * self.phase_ms

    @property
    def _waited_elsewhere_ms(self) -> float:
        """By how much the other phases grew without computing: waiting for a CPU in them is none in this phase."""
        waited_ms = 0.0
        for name, slow_ms in self.slow.phases_ms.items():
            computed_ms = _computed_ms(self.slow, self.fast, name)
            if name != self.phase and computed_ms is not None:
                waited_ms += max(0.0, slow_ms - self.fast.phases_ms.get(name, 0.0) - max(0.0, computed_ms))
        return waited_ms


def usable_stretch(stretch: Stretch) -> bool:
    """Whether all its numbers are possible ones."""
    numbers = [*stretch.phases_ms.values(), *stretch.cpu_ms.values(), *(stretch.interval_ms or ()), stretch.period_ms]
    numbers += [x for x in (stretch.run_delay_ratio, stretch.taken_cpus, stretch.cpu_busy_ratio) if x is not None]
    return all(map(possible, numbers)) and stretch.period_ms > 0 and stretch.count > 0


def moved(slow: Stretch, fast: Stretch) -> Moved | None:
    """Hold two parts of a run against each other.

    Returns:
        None if no phase is longer in the slow part.
    """
    names: list[Phase] = sorted({*slow.phases_ms, *fast.phases_ms})
    change_ms = {name: slow.phases_ms.get(name, 0.0) - fast.phases_ms.get(name, 0.0) for name in names}
    phase = max(names, key=lambda name: change_ms[name], default=None)
    if phase is None or change_ms[phase] <= 0:
        return None
    whole_ms = sum(ms for ms in change_ms.values() if ms > 0)
    change = Moved(
        slow=slow,
        fast=fast,
        phase=phase,
        phase_ms=change_ms[phase],
        phase_ratio=change_ms[phase] / whole_ms,
        alike=_grew_alike(slow, fast, phase),
        crowded=_crowded(slow, fast),
        computed_ms=_computed_ms(slow, fast, phase),
        of_phase=_more_cpu_time(slow, fast, phase),
    )
    return replace(change, crowded=False) if change.of_phase or change.waits_longer else change


def how_it_moved(change: Moved) -> str:
    """A clause on whether the main thread computes or waits longer; empty if that was not measured."""
    if change.waits_longer:
        return " The main thread waits longer there and computes no longer."
    if change.computes_longer and change.computed_ms is not None:
        return f" The main thread computes {millis(change.computed_ms)} longer there."
    return ""


UNKNOWN = " Whether other processes took the CPUs was not measured."
"""Said of a change that may be the machine's for want of a measurement."""


def into_the_run(part: Stretch) -> str:
    """When a part begins: `` (12.3 s into the run)``, empty if that is not known."""
    return f" ({seconds(part.from_s)} into the run)" if part.from_s is not None and possible(part.from_s) else ""


def where_to_look(metrics: Metrics, change: Moved) -> str:
    """The callback, the line or the data that the change points at, as the object of "find what changed in"."""
    if change.phase == "callbacks" and metrics.callback_shares:
        costly = max(metrics.callback_shares, key=lambda c: c.share.total_ratio)
        return f"{class_name(costly)}.{costly.hook}"
    if change.phase == "data_wait":
        dataset = metrics.loader.dataset if metrics.loader is not None else ""
        return f"{dataset or 'the dataset'} (its files, its cache, the size of its samples)"
    site = next((b.sites[0][0] for b in metrics.blocked or () if b.phase == change.phase and b.sites), "")
    return f"{change.phase} at {site}" if site and change.phase in COMPUTE_PHASES else change.phase


def window_at(metrics: Metrics, batch: int) -> tuple[int, int]:
    """Optimizer steps of a trace window at a batch."""
    accumulated = condition(metrics, "trainer.accumulate_grad_batches")
    every = accumulated if isinstance(accumulated, int) and accumulated > 1 else 1
    start = max(1, batch // every)
    return start, start + 2


def concentration(growth: Mapping[Phase, float], step: Mapping[Phase, float]) -> float:
    """Total variation between how a growth and how the ordinary step is spread over the phases: 0 alike, to 1."""
    whole, usual = sum(growth.values()), sum(step.values())
    if whole <= 0 or usual <= 0:
        return 0.0
    return 0.5 * sum(abs(growth.get(name, 0.0) / whole - step.get(name, 0.0) / usual) for name in {*growth, *step})


def largest_change(speed_levels: Sequence[Stretch]) -> Moved | None:
    """What the slow level that costs most is slower in than the fastest that lasts; None if the run has one level."""
    if len(speed_levels) < 2 or not all(map(usable_stretch, speed_levels)):
        return None
    steps = sum(level.count for level in speed_levels)
    lasting = [level for level in speed_levels if level.count >= LEAST_PART * steps]
    if not lasting:
        return None
    fast = min(lasting, key=lambda level: level.period_ms)
    slow = max(speed_levels, key=lambda level: (level.period_ms - fast.period_ms) * level.count)
    return None if slow is fast else moved(slow, fast)


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


def _computed_ms(slow: Stretch, fast: Stretch, phase: Phase) -> float | None:
    before, after = fast.cpu_ms.get(phase), slow.cpu_ms.get(phase)
    return None if before is None or after is None else after - before


def _more_cpu_time(slow: Stretch, fast: Stretch, phase: Phase) -> bool:
    computed_ms = _computed_ms(slow, fast, phase)
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
    if slow.run_delay_ratio is not None and fast.run_delay_ratio is not None:
        known = True
        if slow.run_delay_ratio - fast.run_delay_ratio >= DELAY_RATIO:
            return True
    return False if known else None
