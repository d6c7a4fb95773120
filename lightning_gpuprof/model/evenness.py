"""How even the steps of a run are: stretches that keep a level, and a drift from the first to the last."""

from __future__ import annotations

import msgspec

from lightning_gpuprof.model.cost import Cost
from lightning_gpuprof.model.phases import Phase

_LINEAR_RATIO = 0.1
"""Of the whole growth, how far each fifth may lie from the line through the first and the last. Heuristic."""

_COMPUTING_RATIO = 0.7
"""Of a change, from which the main thread is said to compute, or to wait, longer. Heuristic."""


class Stretch(msgspec.Struct, kw_only=True, frozen=True):
    """Steady steps of a part of the run, and what else the machine did meanwhile."""

    from_batch: int
    to_batch: int
    count: int
    """Steady steps."""
    period_ms: float
    """Median."""
    interval_ms: tuple[float, float] | None
    """95 % confidence interval of the median; None below 20 steps."""
    phases_ms: dict[Phase, float]
    """Median time of each phase that took any."""
    cpu_ms: dict[Phase, float] = {}
    """Median CPU time of the main thread by phase; empty if fewer than ten steps were sampled."""
    run_delay_ratio: float | None = None
    """Median share of the step time in which the main thread had no CPU although it was ready."""
    taken_cpus: float | None = None
    """CPUs of this run that others used: other processes, and other virtual machines (steal)."""
    cpu_busy_ratio: float | None = None
    """Use of the run's CPUs by whomever, 0 to 1."""
    from_s: float | None = None
    """When its first step began, since the start of the run."""
    into_epoch: int | None = None
    """Steps between the start of its first epoch and its own; None in the run's first epoch."""

    @property
    def in_no_phase_ms(self) -> float:
        """What the median step takes beyond the medians of its phases."""
        return self.period_ms - sum(self.phases_ms.values())

    def computed_longer_ms(self, than: Stretch, phase: Phase) -> float | None:
        """By how much the main thread computes longer in a phase than in another part.

        Args:
            than: The other part of the run.
            phase: Of the step.

        Returns:
            Difference of the medians of a step's CPU time, below 0 if it computes shorter; None: not measured.
        """
        before, after = than.cpu_ms.get(phase), self.cpu_ms.get(phase)
        return None if before is None or after is None else after - before


class Drift(msgspec.Struct, kw_only=True, frozen=True):
    """The step time over the whole run, in fifths of the steady steps."""

    fifths: tuple[Stretch, ...]
    slope_ms_per_step: float
    """Theil and Sen's, of medians of blocks of steps, each compared with those of its own level: jumps are none."""
    p_value: float
    """Mann and Kendall's, two-sided, of the same medians."""


class Evenness(msgspec.Struct, kw_only=True, frozen=True):
    """Both views of the steady steps."""

    speed_levels: tuple[Stretch, ...] = ()
    """One for each of ``steps.speed_levels``, in order."""
    undelayed_levels: tuple[Stretch, ...] = ()
    """Levels of the step time without waits of the main thread for a CPU; times of phases are without them, too,
    of the steps in which they were read. Empty where it hardly waited."""
    drift: Drift | None = None
    """None: too few steady steps (100)."""
    warmup_steps: int | None = None
    """Steps before the run was steady; None if it never became so."""
    warmup_excess_s: float | None = None
    """What they took more than as many steady ones, without waiting for data and without traced steps."""
    warmup_taken_cpus: float | None = None
    """CPUs of this run that others used meanwhile; None: not sampled."""


class SpeedChange(msgspec.Struct, frozen=True, kw_only=True):
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
    undelayed: bool = False
    """Times are without the time in which the main thread waited for a CPU."""

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
        if self.undelayed or self.slow.run_delay_ratio is None or self.fast.run_delay_ratio is None:
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
        """By how much the other phases grew without computing: waiting for a CPU in them is none in this phase.

        Nor is what hits now this phase, now that: it makes the step longer, but no phase's median.
        """
        waited_ms = max(0.0, self.slow.in_no_phase_ms - self.fast.in_no_phase_ms)
        for name, slow_ms in self.slow.phases_ms.items():
            computed_ms = self.slow.computed_longer_ms(self.fast, name)
            if name != self.phase and computed_ms is not None:
                waited_ms += max(0.0, slow_ms - self.fast.phases_ms.get(name, 0.0) - max(0.0, computed_ms))
        return waited_ms


class LevelChange(msgspec.Struct, frozen=True, kw_only=True):
    """The slow speed level that costs most, beside the fastest that lasts; times are means over all steady steps."""

    change: SpeedChange
    levels: tuple[Stretch, ...]
    cost: Cost
    """Excess of all slower levels over the fastest."""
    queued: float | None
    """Launches by which the host was ahead at the end of the fast part, if the slow one is the device's own pace; inf
    where that is no explanation. None: no window shows how much is launched in a step."""
    by_design: bool
    """The model's own work changes with an epoch."""
    fills_a_cache: bool
    """Only the first epoch waits for its data, as where it reads them from a disk and later ones do not."""
    are_outliers: bool
    """The slow part is so small that its steps count as outlying ones."""


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that get longer from fifth to fifth of the run."""

    drift: Drift
    change: SpeedChange | None
    """From the first to the last fifth; None: no phase got longer."""
    steps: int
    first_ms: float
    whole_ms: float
    """From the first to the last fifth."""
    certain_ms: float
    """Between the near ends of their intervals."""
    gradual_ms: float
    """By the trend within speed levels: what it grows by in jumps is none."""
    mean_ms: float

    @property
    def start_ms(self) -> float:
        """The step that the run began with.

        Where the fifths lie on a line that the trend within speed levels confirms (Theil-Sen), that line at the first
        batch, at most without the phase that grew; else the first fifth, as no one knows how it began.
        """
        fifths = self.drift.fifths
        middles = [(fifth.from_batch + fifth.to_batch) / 2 for fifth in fifths]
        slope = self.whole_ms / max(1.0, middles[-1] - middles[0])
        line_ms = [self.first_ms + slope * (middle - middles[0]) for middle in middles]
        off_ms = [abs(fifth.period_ms - on_line) for fifth, on_line in zip(fifths, line_ms, strict=True)]
        off_ms.append(abs(self.drift.slope_ms_per_step * 0.8 * self.steps - self.whole_ms))
        if self.change is None or max(off_ms) > _LINEAR_RATIO * self.whole_ms:
            return self.first_ms
        return self.first_ms - min(slope * middles[0], fifths[0].phases_ms.get(self.change.phase, 0.0))

    @property
    def excess_s(self) -> float:
        """Of all steps over as many as those of the first fifth."""
        return (self.mean_ms - self.first_ms) * self.steps / 1e3

    @property
    def cost(self) -> Cost:
        """The excess of the mean step over the first; certain is that over the first fifth, as far as the change is."""
        certain_ms = self.mean_ms - self.first_ms
        lower_ms = 0.0 if self.change is None else certain_ms * self.change.lower_ms / self.whole_ms
        return Cost(ms=self.mean_ms - self.start_ms, lower_ms=lower_ms, step_ms=self.mean_ms, steps=self.steps)
