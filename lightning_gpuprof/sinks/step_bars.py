"""A step, or the run's time per step, as a bar of segments: today, and after a fix."""

import math
from collections.abc import Collection, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.phases import PHASES, STEP_PARTS, WORKING_PHASES, Part
from lightning_gpuprof.model.report import PhaseRow, Report
from lightning_gpuprof.sinks import wording

OTHER = "other"
SLOW_STEPS = "slow_steps"
GIL = "waiting for the GIL"
"""Name of the claim of a thread that holds it."""

PHASE_WORDS: Mapping[str, str] = {
    "data_wait": "waiting for data",
    "h2d": "moving the batch",
    "zero_grad": "zero_grad",
    "clip": "gradient clipping",
    "sync": "waiting for ranks",
    "epoch_gap": "between epochs",
    "sanity": "sanity check",
    SLOW_STEPS: "extra time in slow steps",
}
"""What people call a phase or a part of the wall time, where its own name does not say it."""

CAUSE_WORDS: Mapping[str, str] = {
    "no CPU to run on": "waiting for a CPU",
    "late launches": "GPU waits for launches",
    "host at other work": "GPU waits for the host",
    "waits for tensors of the host": "copies of host tensors",
    "waits of the code": "GPU idle after host syncs",
    "waits of the gradient scaler": "gradient scaler waits for the GPU",
    "waits of the progress bar": "progress bar waits for the GPU",
    "communication": "waiting in collectives",
    "clocks": "throttled clocks",
    "memory kernels": "memory-bound kernels",
}
"""What people call the part of a step that a finding claims, where its own name does not say it."""

MISSING_RATIO = 0.05
"""Of the median step: where the medians of the phases miss more of it, times vary."""
_MIN_SHOWN_RATIO = 0.02
"""Phases with less of the step are one segment."""
_SLOW_RATIO = 0.8
"""Of the time beyond the median step: a phase with more of it is what slow steps are slow in. As in step-outliers."""
_OUTSIDE: tuple[Part, ...] = ("validation", "checkpoint", "epoch_gap", "sanity")


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a bar."""

    key: str
    """A phase, a part of the wall time, :data:`SLOW_STEPS` or :data:`OTHER`: its colour."""
    label: str
    ms: float
    """Not below 0."""
    is_outside: bool = False
    """Whether it is no time of a step, but what the run does outside of them, spread over all steps."""


class StepBar(msgspec.Struct, frozen=True, kw_only=True):
    """The time of a step in segments that sum to ``ms``, those outside of it last."""

    ms: float
    segments: tuple[Segment, ...]


def step_bar(report: Report, claim: Claim | None) -> StepBar | None:
    """The median step by its phases; None if no step was steady.

    Args:
        report: The report.
        claim: What the first finding explains: its phase has a segment, however short.
    """
    period = report.steps.period_ms
    if period is None or not period.median > 0:
        return None
    always = None if claim is None else claim.phase
    return _bar(period.median, _step_times(report, period.median, always), always)


def _step_times(report: Report, period_ms: float, always: str | None) -> dict[str, float]:
    """The medians of the phases; where they miss the median step, longer as they are in an ordinary step.

    Always of the median is the phase whose median a finding says.
    """
    medians: dict[str, float] = {
        row.phase: row.median_ms for row in report.phases if row.median_ms is not None and row.median_ms > 0
    }
    longer = {
        row.phase: row.ordinary_ms - medians.get(row.phase, 0.0)
        for row in report.phases
        if row.ordinary_ms is not None and row.phase != always and row.ordinary_ms > medians.get(row.phase, 0.0)
    }
    missing_ms, known_ms = period_ms - sum(medians.values()), sum(longer.values())
    if missing_ms <= MISSING_RATIO * period_ms or known_ms <= 0:
        return medians
    return medians | {key: medians.get(key, 0.0) + missing_ms * ms / known_ms for key, ms in longer.items()}


def run_bar(report: Report, claim: Claim | None) -> StepBar | None:
    """The time of the run over its steps: the ordinary step, what slow steps take beyond it, and what is outside.

    None if no step was counted.

    Args:
        report: The report.
        claim: As for :func:`step_bar`.
    """
    period, count, parts = report.steps.period_ms, report.steps.count, report.wall.parts
    whole_ms = (report.wall.total_s - parts.get("setup", 0.0) - parts.get("teardown", 0.0)) * 1e3
    if not count or whole_ms <= 0:
        return None
    times: dict[str, float] = {}
    if period is not None and period.median > 0:
        bar = step_bar(report, None)
        times |= {} if bar is None else {s.key: s.ms for s in bar.segments if s.key != OTHER}
        steps_ms = parts.get(STEP_PARTS[wording.stage(report)], 0.0) * 1e3 / count
        times[SLOW_STEPS] = max(0.0, steps_ms - period.median)
    for part in _OUTSIDE:
        times[part] = times.get(part, 0.0) + max(0.0, parts.get(part, 0.0)) * 1e3 / count
    always = _touched(claim)[0] if claim is not None and _touched(claim) else None
    bar = _bar(whole_ms / count, times, always, _OUTSIDE)
    phase = _slow_in(report)
    if phase is None:
        return bar
    label = f"{_label(phase)} in slow steps"
    return replace(bar, segments=tuple(replace(s, label=label) if s.key == SLOW_STEPS else s for s in bar.segments))


def _slow_in(report: Report) -> str | None:
    """The phase that has most of what all steps take beyond the median one; None: no single one."""
    beyond = {
        row.phase: max(0.0, row.total_s * 1e3 / report.steps.count - row.median_ms)
        for row in report.phases
        if row.median_ms is not None and row.phase not in _OUTSIDE
    }
    most = max(beyond, key=beyond.__getitem__, default=None)
    return most if most is not None and beyond[most] > _SLOW_RATIO * sum(beyond.values()) else None


def _bar(
    whole_ms: float, times: Mapping[str, float], always: str | None, outside: Collection[str] = frozenset()
) -> StepBar:
    """Segments that sum to the whole: small ones and what no time explains are one, medians that exceed it shrink."""
    total_ms = sum(times.values())
    factor = min(1.0, whole_ms / total_ms) if total_ms > 0 else 1.0
    order: dict[str, int] = {phase: n for n, phase in enumerate(PHASES)}
    shown = [
        Segment(key=key, label=_segment_label(key, outside), ms=ms * factor, is_outside=key in outside)
        for key, ms in sorted(times.items(), key=lambda item: order.get(item[0], len(order)))
        if ms > 0 and (key == always or ms * factor >= _MIN_SHOWN_RATIO * whole_ms)
    ]
    rest_ms = whole_ms - sum(segment.ms for segment in shown)
    if rest_ms > 1e-9 * whole_ms:
        shown.append(Segment(key=OTHER, label="other", ms=rest_ms))
    return StepBar(ms=whole_ms, segments=tuple(sorted(shown, key=lambda segment: segment.is_outside)))


def _segment_label(key: str, outside: Collection[str]) -> str:
    return f"{_label(key)} outside steps" if key in outside and key not in PHASE_WORDS else _label(key)


def _label(key: str) -> str:
    return PHASE_WORDS.get(key, key.replace("_", " "))


def _touched(claim: Claim) -> tuple[str, ...]:
    """The segments that a fix makes shorter, the first ones most of all."""
    if claim.phase is not None:
        return tuple(dict.fromkeys((claim.phase, claim.part or claim.phase)))
    if claim.part is not None:
        return (claim.part,)
    if claim.resource == "uneven steps":
        return (SLOW_STEPS,)
    return () if claim.resource == "CPUs" else WORKING_PHASES  # in which of them a GPU waits is not known


def cause_of(today: StepBar, claim: Claim) -> str:
    """The name of what a finding claims; empty if a segment of the bar has it.

    Args:
        today: The bar.
        claim: What the finding explains.
    """
    keys = {segment.key for segment in today.segments}
    if claim.resource == "uneven steps" or not keys.isdisjoint((claim.phase, claim.part)):
        return ""
    return CAUSE_WORDS.get(claim.name, _label(claim.name))


def _beyond_cpu_ms(times: Mapping[str, float], phases: Sequence[PhaseRow]) -> dict[str, float]:
    """In phases but the fetch, what is beyond the main thread's CPU time; empty where that was not measured."""
    cpu_ms = {row.phase: row.cpu_ms for row in phases if row.cpu_ms is not None and row.phase != "data_wait"}
    return {phase: max(0.0, times[phase] - ms) for phase, ms in cpu_ms.items() if phase in times}


def after_fix(today: StepBar, claim: Claim | None, saved_ms: float, phases: Sequence[PhaseRow] = ()) -> StepBar:
    """The bar without what is saved: in the segments that the claim names, what is more in slow steps, then in all.

    Args:
        today: The bar.
        claim: What the finding explains; None: it does not say.
        saved_ms: Not more than the bar.
        phases: Of the report: a thread waits for the GIL in each phase beyond its CPU time.
    """
    left = {segment.key: segment.ms for segment in today.segments}
    rest_ms = saved_ms
    touched = () if claim is None else _touched(claim)
    first = dict.fromkeys(touched, math.inf)
    if claim is not None and claim.name == GIL:
        first = _beyond_cpu_ms(left, phases) or first
    for most in (first, {SLOW_STEPS: math.inf}, dict.fromkeys(left, math.inf)):
        have = {key: min(ms, left[key]) for key, ms in most.items() if key in left}
        have_ms = sum(have.values())
        take_ms = min(rest_ms, have_ms)
        if take_ms > 0:
            left |= {key: max(0.0, left[key] - take_ms * ms / have_ms) for key, ms in have.items()}
        rest_ms -= take_ms
        if rest_ms <= 0:
            break
    segments = tuple(replace(segment, ms=left[segment.key]) for segment in today.segments)
    return StepBar(ms=max(0.0, today.ms - saved_ms), segments=segments)
