"""A step, or the run over its steps, as a bar of segments: now, and after a fix."""

from collections.abc import Collection, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.phases import PHASES, WORKING_PHASES, Part, words_of
from lightning_gpuprof.model.report import PhaseRow, Report

OTHER = "other"
GIL = "waiting for the GIL"
"""Name of the claim of a thread that holds it."""

CAUSE_WORDS: Mapping[str, str] = {
    "outliers": "extra time in slow steps",
    "no CPU to run on": "waiting for a CPU",
    "late launches": "GPU waits for launches",
    "host at other work": "GPU waits for the host",
    "waits for tensors of the host": "copies of host tensors",
    "waits of the code": "GPU idle after host syncs",
    "waits of the gradient scaler": "gradient scaler waits for the GPU",
    "waits of the progress bar": "progress bar waits for the GPU",
    "communication": "waiting in collectives",
    "late rank": "waiting for a rank",
    "clocks": "throttled clocks",
    "memory kernels": "memory-bound kernels",
}
"""What people call the part of a step that a finding claims, where its own name does not say it."""
_SHOWN_IN: Mapping[str, Collection[str]] = {
    "communication": ("backward", "sync"),
    "late rank": ("backward", "sync", "epoch_gap"),
}
"""Phases that a claim which may lie in any is drawn in first, as most of it lies there."""

MISSING_RATIO = 0.05
"""Of the median step: where the medians of the phases miss more of it, times vary."""
_MIN_SHOWN_RATIO = 0.02
"""Phases with less of the step are one segment."""
_OUTSIDE: tuple[Part, ...] = ("validation", "checkpoint", "epoch_gap", "sanity", "setup", "teardown")


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a bar."""

    key: str
    """A phase, a part of the wall time or :data:`OTHER`: its colour."""
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
    """The median step by its phases, or the mean one if it is about slow steps.

    Args:
        report: The report.
        claim: What the first finding explains: its phase has a segment, however short.

    Returns:
        Times in ms, phases in the order of a step, small ones as one segment behind them; None if no step was steady.
    """
    period = report.steps.period_ms
    if period is None or not period.median > 0:
        return None
    always = None if claim is None else claim.phase
    if claim is not None and claim.resource == "uneven steps":
        means: dict[str, float] = {row.phase: row.mean_ms or 0.0 for row in report.phases}
        return _bar(period.mean, means, always)
    return _bar(period.median, phase_times(report), always)


def phase_times(report: Report) -> dict[str, float]:
    """The phases of the median step in ms, as bars and tables say them; empty if no step was steady.

    They are the medians of the phases. Where those miss the median step, phases are longer as they are in an ordinary
    step, but for one that a finding is about: it says the median. Where they exceed it by little, they shrink to it.
    """
    period = report.steps.period_ms
    if period is None or not period.median > 0:
        return {}
    said = {finding.explains.phase for finding in report.findings if finding.explains is not None}
    medians: dict[str, float] = {row.phase: row.median_ms for row in report.phases if row.median_ms is not None}
    longer = {
        row.phase: row.ordinary_ms - medians.get(row.phase, 0.0)
        for row in report.phases
        if row.ordinary_ms is not None and row.phase not in said and row.ordinary_ms > medians.get(row.phase, 0.0)
    }
    missing_ms, known_ms = period.median - sum(medians.values()), sum(longer.values())
    if -MISSING_RATIO * period.median <= missing_ms < 0:
        others_ms = sum(ms for phase, ms in medians.items() if phase not in said)
        factor = max(0.0, 1 + missing_ms / others_ms) if others_ms > 0 else 1.0
        return {phase: ms if phase in said else ms * factor for phase, ms in medians.items()}
    if missing_ms <= MISSING_RATIO * period.median or known_ms <= 0:
        return medians
    return medians | {key: medians.get(key, 0.0) + missing_ms * ms / known_ms for key, ms in longer.items()}


def run_bar(report: Report, claim: Claim | None) -> StepBar | None:
    """The time of the run over its steps: the phases of all steps, and what is between them.

    Args:
        report: The report.
        claim: As for :func:`step_bar`.

    Returns:
        Times in ms per step, what is outside of steps last; None without steps.
    """
    count, parts = report.steps.count, report.wall.parts
    if not count or report.wall.total_s <= 0:
        return None
    times_s: dict[str, float] = {row.phase: row.total_s for row in report.phases if row.phase not in _OUTSIDE}
    times_s |= {part: max(0.0, parts.get(part, 0.0)) for part in _OUTSIDE}
    always = None if claim is None else claim.part or claim.phase
    times_ms = {key: seconds * 1e3 / count for key, seconds in times_s.items()}
    return _bar(report.wall.total_s * 1e3 / count, times_ms, always, _OUTSIDE)


def _bar(
    whole_ms: float, times: Mapping[str, float], always: str | None, outside: Collection[str] = frozenset()
) -> StepBar:
    """Segments that sum to the whole: small ones and what no time explains are one.

    Medians that exceed it shrink, but for the one whose median a finding says.
    """
    own_ms = min(whole_ms, times.get(always or "", 0.0))
    others_ms = sum(ms for key, ms in times.items() if key != always)
    factor = min(1.0, (whole_ms - own_ms) / others_ms) if others_ms > 0 else 1.0
    times = {key: own_ms if key == always else ms * factor for key, ms in times.items()}
    order: dict[str, int] = {phase: n for n, phase in enumerate(PHASES)}
    shown = [
        Segment(key=key, label=words_of(key), ms=ms, is_outside=key in outside)
        for key, ms in sorted(times.items(), key=lambda item: order.get(item[0], len(order)))
        if ms > 0 and (key == always or ms >= _MIN_SHOWN_RATIO * whole_ms)
    ]
    rest_ms = whole_ms - sum(segment.ms for segment in shown)
    if rest_ms > 1e-9 * whole_ms:
        shown.append(Segment(key=OTHER, label="other", ms=rest_ms))
    return StepBar(ms=whole_ms, segments=tuple(sorted(shown, key=lambda segment: segment.is_outside)))


def _taken_from(today: StepBar, finding: Finding, phases: Sequence[PhaseRow]) -> Mapping[str, float]:
    """The segments that hold what a finding explains, and at most how much of it, in ms."""
    claim, left = finding.explains, {segment.key: segment.ms for segment in today.segments}
    if claim is None or claim.resource == "CPUs":
        return left
    named = [key for key in (claim.phase, claim.part, finding.phase) if key in left]
    if named:
        return {key: left[key] for key in named}
    if claim.resource == "uneven steps":
        beyond: dict[str, float] = {row.phase: (row.mean_ms or 0.0) - (row.median_ms or 0.0) for row in phases}
        return {key: min(ms, beyond[key]) for key, ms in left.items() if beyond.get(key, 0.0) > 0}
    if claim.name == GIL and (beyond_cpu := _beyond_cpu_ms(left, phases)):
        return beyond_cpu
    phases_of = claim.within or _SHOWN_IN.get(claim.name, WORKING_PHASES)
    return {key: ms for key, ms in left.items() if key in phases_of}


def cause_of(today: StepBar, finding: Finding) -> str:
    """The name of what a finding explains.

    Args:
        today: The bar.
        finding: The one whose gain the bar is about.

    Returns:
        In words for people; empty if a segment of the bar has it, or if it does not say.
    """
    claim, keys = finding.explains, {segment.key for segment in today.segments}
    if claim is None or not keys.isdisjoint((claim.phase, claim.part, finding.phase)):
        return ""
    return CAUSE_WORDS.get(claim.name) or words_of(claim.name).replace("_", " ")


def _beyond_cpu_ms(times: Mapping[str, float], phases: Sequence[PhaseRow]) -> dict[str, float]:
    """In phases but the fetch, what is beyond the main thread's CPU time; empty where that was not measured."""
    cpu_ms = {row.phase: row.cpu_ms for row in phases if row.cpu_ms is not None and row.phase != "data_wait"}
    return {phase: max(0.0, times[phase] - ms) for phase, ms in cpu_ms.items() if phase in times}


def after_fix(
    today: StepBar, finding: Finding, *, claimed_ms: float, saved_ms: float, phases: Sequence[PhaseRow] = ()
) -> StepBar:
    """The bar without what is saved: what the fix ends, where that is; what is saved beyond it, in all that is left.

    Args:
        today: The bar.
        finding: The one whose fix it is.
        claimed_ms: What the fix ends at most.
        saved_ms: Not more than the bar; beyond ``claimed_ms``, other parts get faster.
        phases: Of the report: a thread waits for the GIL in each phase beyond its CPU time.

    Returns:
        The same segments in the same order, some of which may be 0; they sum to what is left, in ms.
    """
    left = {segment.key: segment.ms for segment in today.segments}
    own = _taken_from(today, finding, phases)
    left = _without(left, own, min(saved_ms, claimed_ms))
    others = {key: ms for key, ms in left.items() if key not in own or claimed_ms >= saved_ms}
    left = _without(left, others, sum(left.values()) - (today.ms - saved_ms))
    left = _without(left, left, sum(left.values()) - (today.ms - saved_ms))
    segments = tuple(replace(segment, ms=left[segment.key]) for segment in today.segments)
    return StepBar(ms=max(0.0, today.ms - saved_ms), segments=segments)


def _without(left: Mapping[str, float], of: Mapping[str, float], less_ms: float) -> dict[str, float]:
    """Times from which so much is taken, in proportion to some of them; no more than those have."""
    have_ms = sum(of.values())
    part = min(1.0, max(0.0, less_ms) / have_ms) if have_ms > 0 else 0.0
    return {key: max(0.0, ms - part * of.get(key, 0.0)) for key, ms in left.items()}
