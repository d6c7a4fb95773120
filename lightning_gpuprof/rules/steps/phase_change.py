"""Finds that a run has parts of different speed, where they change, and the phase that moved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lightning_gpuprof.model.evenness import Stretch
from lightning_gpuprof.model.finding import Evidence, Finding, Severity, worthwhile
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import MissingSignal
from lightning_gpuprof.model.numbers import counted, listed, millis, percent
from lightning_gpuprof.model.phases import COMPUTE_PHASES
from lightning_gpuprof.model.signals import condition, device_step, is_cpu_only, steady_period_ms
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, gain, severity, threshold, worthwhile_evidence
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.steps.step_drift import drifts
from lightning_gpuprof.rules.steps.uneven import (
    LIMIT_S,
    UNKNOWN,
    Moved,
    how_it_moved,
    into_the_run,
    largest_change,
    usable_stretch,
    where_to_look,
    window_at,
)

_MOST_SHOWN = 4
_EPOCH_STEPS = 5
_RESTS_RATIO = 0.1
"""Idle time above which a device does not set the pace. Heuristic."""


_EARLY = {"changes_ms": {"data_wait": 50.0}}
_LATE = {**_EARLY, "start": 100}


@dataclass(frozen=True, kw_only=True)
class PhaseChange(BaseRule):
    """One part of the run is slower than the rest: steps have several speed levels.

    ## What it means
    At some batch the step time changes and stays changed: from there on data are larger or lie elsewhere, a cache is
    full (or has filled), a callback or a schedule starts, another job starts. A mean over the whole run describes
    neither part.

    ## How it is measured
    A change-point search over the steady steps finds sharp shifts of the median by more than a fifth that last at least
    20 steps (`steps.speed_levels` in the report). The slow part that costs most is compared with the fastest part that
    has at least a tenth of the steps. The phase with most of the difference is named, and whether the main thread
    computes or waits longer in it. The gain is the excess of all slower parts over the fastest; its lower bound is from
    the near ends of the 95 % intervals of the medians.

    ## When it is wrong
    - Another job on the machine: silent if others took more CPUs of this run in the slow part, or the main thread
      waited longer for a CPU, unless one phase computes or waits longer by itself. Information only if neither was
      measured.
    - All phases changed alike (a lower clock, more work per step): silent, unless nearly all of the step is the one
      phase that grew.
    - Work that changes by design at the start of an epoch (unfrozen layers, longer sequences): information only if one
      of the model's phases changed there without waiting.
    - A first epoch that waits longer for its data fills a cache, and that is over: information only.
    - On a GPU the host is ahead at first: its steps are short until the queue of 1,024 launches is full. Silent if the
      launches of a trace window explain the fast part and the device is hardly idle; information only without a window.
    - More than four speed levels: nothing lasts, information only. A gradual slow-down is `step-drift`.

    ## What to do
    Look at what starts at that batch in the named phase. Two trace windows, one on either side, show the difference.
    """

    id = "phase-change"
    title = "One part of the run is slower than the rest"
    specialises = ("step-outliers",)

    least_cost_s: float = threshold(LIMIT_S, source="heuristic: shorter ones are accidents of the machine")
    most_levels: int = threshold(4, source="heuristic: more mean an unsteady machine")
    most_queued: int = threshold(1280, source="HTA: a queue of 1,024; a quarter more, as launches are a mean")

    examples = (
        fires(
            "from batch 100 on a batch takes 50 ms more",
            "critical",
            "100 ms instead of 50.0 ms",
            speed_levels=({}, _LATE),
        ),
        fires("only the first part is slow", "critical", "Until batch 100", speed_levels=(_EARLY, {"start": 100})),
        quiet("all steps are alike", speed_levels=({"count": 400},)),
        looks_alike(
            "another job takes the CPUs", speed_levels=({}, {**_LATE, "taken_cpus": 1.6, "cpu_busy_ratio": 1.0})
        ),
        not_evaluated("it never became steady", "never became steady", speed_levels=()),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the speed levels."""
        steady_period_ms(metrics)
        speed_levels = metrics.evenness.speed_levels
        if not speed_levels:
            raise MissingSignal("the run never became steady")
        if not all(map(usable_stretch, speed_levels)):
            raise MissingSignal("the times of the parts of the run are impossible numbers")
        lasting = self.lasting(metrics)
        if lasting is None:
            return None
        change, slow = lasting.change, lasting.change.slow
        planned = _by_design(speed_levels, change)
        unknown = change.crowded is None
        cold = _fills_a_cache(metrics, speed_levels, change)
        ahead = lasting.ahead
        weak = unknown or planned or cold or ahead or lasting.unsteady
        level: Severity = "info" if weak else severity(lasting.lower_ms / lasting.mean_ms, lasting.steps)
        return self.finding(
            severity=level,
            subject=change.phase,
            summary="".join(
                (
                    _told(speed_levels, change),
                    how_it_moved(change),
                    _PLANNED if planned else "",
                    _COLD if cold else "",
                    _AHEAD if ahead else "",
                    UNKNOWN if unknown else "",
                )
            ),
            advice=_advice(metrics, change),
            evidence=(
                worthwhile_evidence("excess of the slow part, per step", lasting.recoverable_ms, lasting.mean_ms),
                self.evidence(
                    "least_cost_s", lasting.recoverable_ms * lasting.steps / 1e3, "excess of the slow part, in all", "s"
                ),
                Evidence(name=f"change in {change.phase}", value=change.phase_ms, unit="ms"),
                *(
                    Evidence(name=f"batches {r.from_batch} to {r.to_batch}", value=r.period_ms, unit="ms")
                    for r in speed_levels[:_MOST_SHOWN]
                ),
            ),
            gain=gain(lasting.recoverable_ms, 0.0 if weak else lasting.lower_ms, lasting.mean_ms),
            confidence=0.5 if weak else 0.85,
            explains=claims.OUTLIERS if _are_outliers(metrics, slow) else claims.of_phase(change.phase),
        )

    def lasting(self, metrics: Metrics) -> LastingChange | None:
        """The change of speed that costs most, unless it is little, the machine's, or that of a host that is ahead."""
        speed_levels, drift = metrics.evenness.speed_levels, metrics.evenness.drift
        change = largest_change(speed_levels)
        if change is None or change.by_machine or (drift is not None and drifts(drift)):
            return None
        slow, fast = change.slow, change.fast
        steps = sum(level.count for level in speed_levels)
        mean_ms = sum(level.period_ms * level.count for level in speed_levels) / steps
        recoverable_ms = sum(max(0.0, r.period_ms - fast.period_ms) * r.count for r in speed_levels) / steps
        lower_ms = min(recoverable_ms, change.lower_ms * slow.count / steps)
        if recoverable_ms * steps < self.least_cost_s * 1e3 or not worthwhile(lower_ms, mean_ms):
            return None
        queued = _queued_meanwhile(metrics, change, speed_levels)
        if queued is not None and queued <= self.most_queued:
            return None
        return LastingChange(
            change=change,
            steps=steps,
            mean_ms=mean_ms,
            recoverable_ms=recoverable_ms,
            lower_ms=lower_ms,
            ahead=queued is None,
            unsteady=len(speed_levels) > self.most_levels,
        )


@dataclass(frozen=True, kw_only=True)
class LastingChange:
    """A change of speed that is worth telling; times are means over the steps of all speed levels."""

    change: Moved
    steps: int
    mean_ms: float
    recoverable_ms: float
    lower_ms: float
    ahead: bool
    """It may only be the host of a GPU that was ahead: no window tells."""
    unsteady: bool
    """There are so many speed levels that nothing lasts."""


_PLANNED = " It changes at the start of an epoch, where layers, data or batches may change by design."


_COLD = " The first epoch read the data, later ones find them in a cache: this cost is past."


_AHEAD = " On a GPU the host may only have been ahead until the launch queue was full; no trace window shows it."


def _queued_meanwhile(metrics: Metrics, change: Moved, speed_levels: Sequence[Stretch]) -> float | None:
    """Launches by which the host was ahead at the end of the fast part, if the slow one is the device's own pace.

    Returns:
        inf where that is no explanation: without a device, where the slow part comes first, and where the device has no
        work in a part of the step. None if no window tells how much is launched in a step.
    """
    fast = change.fast
    if is_cpu_only(metrics) is not False or change.slow.from_batch < fast.from_batch:
        return math.inf
    step = device_step(metrics)
    if step is None or step.window is None:
        return None
    if step.busy_ms < (1.0 - _RESTS_RATIO) * change.slow.period_ms:
        return math.inf
    launches = step.window.device_work / step.steps
    warmup = (metrics.evenness.warmup_steps or 0) if fast is speed_levels[0] else 0  # it is ahead in these already
    return (warmup + fast.count) * (1.0 - fast.period_ms / change.slow.period_ms) * launches


def _fills_a_cache(metrics: Metrics, speed_levels: Sequence[Stretch], change: Moved) -> bool:
    """Whether only the first epoch waits for its data, as where it reads them from a disk and later ones do not."""
    first, following = speed_levels[:2]
    if change.phase != "data_wait" or change.slow is not first or first.into_epoch is not None:
        return False
    if following.into_epoch is None or following.into_epoch > _EPOCH_STEPS:
        return False
    batches = condition(metrics, "trainer.num_training_batches")
    return not isinstance(batches, int) or following.from_batch - following.into_epoch - first.from_batch <= batches


def _by_design(speed_levels: Sequence[Stretch], change: Moved) -> bool:
    """Whether the model's own work changes with an epoch."""
    later = max(change.slow, change.fast, key=lambda stretch: stretch.from_batch)
    begun = later.into_epoch is not None and later.into_epoch <= _EPOCH_STEPS
    return begun and change.phase in COMPUTE_PHASES and later is not speed_levels[0] and not change.waits_longer


def _are_outliers(metrics: Metrics, slow: Stretch) -> bool:
    """Whether the slow part is so small that its steps count as outlying ones."""
    outliers = metrics.outliers
    return outliers is not None and slow.period_ms > outliers.limit_ms and 2 * outliers.count >= slow.count


def _told(speed_levels: Sequence[Stretch], change: Moved) -> str:
    slow, fast = change.slow, change.fast
    at = speed_levels.index(slow)
    where = (
        f"From batch {slow.from_batch} on{into_the_run(slow)}"
        if slow is speed_levels[-1]
        else f"Until batch {speed_levels[at + 1].from_batch}{into_the_run(speed_levels[at + 1])}"
        if slow is speed_levels[0]
        else f"From batch {slow.from_batch} until {speed_levels[at + 1].from_batch}"
    )
    others = len(speed_levels) - 2
    more = (
        f" {counted(others, 'other part')} of the run differ{'s' if others == 1 else ''} from both." if others else ""
    )
    return (
        f"{where}, steps take {millis(slow.period_ms)} instead of {millis(fast.period_ms)} "
        f"(batches {fast.from_batch} to {fast.to_batch}). {percent(change.phase_ratio)} of the difference is in "
        f"{change.phase}.{more}"
    )


def _advice(metrics: Metrics, change: Moved) -> str:
    what = where_to_look(metrics, change)
    slow, fast = change.slow, change.fast
    later = max(slow, fast, key=lambda stretch: stretch.from_batch)
    windows = sorted([window_at(metrics, _middle(slow)), window_at(metrics, _middle(fast))])
    shown = listed([f"({start}, {stop})" for start, stop in windows]).replace(" and ", ", ")
    look = f"Find what changed at batch {later.from_batch} in {what}."
    return f"{look} Two trace windows show the difference: GpuProfiler(windows=[{shown}])."


def _middle(stretch: Stretch) -> int:
    return (stretch.from_batch + stretch.to_batch) // 2
