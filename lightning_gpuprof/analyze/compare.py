"""Two reports flow in, a Comparison flows out: differences, noise band, outcome, predicted against achieved gain.

Noise of a median. The standard error of the median of n independent values is ``1.2533 * std / sqrt(n)`` (the
asymptotic ``sqrt(pi / 2)`` of a normal sample; Kenney & Keeping, Mathematics of Statistics). The speed-up is a ratio of
two medians, so its logarithm has the variance ``(se_before / median_before)^2 + (se_after / median_after)^2`` (delta
method) and 1.96 of its standard deviations are the 95 % interval. samples/s rests on the mean period, whose standard
error is smaller (``std / sqrt(n)``), so the same interval is on the safe side for it. Steps that follow each other are
not independent and a second run is never quite the first, so a difference below 3 % is noise in any case.
"""

from __future__ import annotations

import math

from lightning_gpuprof.model.comparison import (
    COMPARISON_VERSION,
    Change,
    Comparison,
    ConditionChange,
    FindingChange,
    FindingState,
    Judgement,
    Outcome,
)
from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.phases import PARTS, PHASES
from lightning_gpuprof.model.report import Distribution, Report

MIN_STEADY_STEPS = 10
"""Fewer steady steps than this say nothing about a median (the rules' own minimum for a warning)."""

NOISE_FLOOR_RATIO = 0.03
"""Smaller differences between two runs are noise (ours; the rules hold back gains below 3 % as well)."""

WALL_NOISE_FLOOR_S = 0.2
"""Start and end of a ``fit`` vary by about so much (ours, to be calibrated); it matters in runs of a few seconds."""

MEDIAN_ERROR = 1.2533
"""sqrt(pi / 2)."""

NORMAL_95 = 1.96

MAX_HALF_WIDTH = math.log(2)
"""A speed-up that is known only to within a factor of two in each direction says nothing (ours)."""

MAX_CONDITIONS = 200

_ALWAYS_DIFFERENT = frozenset({"run_id", "started"})
"""Conditions that name the run instead of describing it."""


def compare(before: Report, after: Report, *, before_name: str = "before", after_name: str = "after") -> Comparison:
    """Hold a later run against an earlier one.

    The outcome is that of training throughput. A regression of the wall time alone makes it ``regressed``, because the
    run takes longer whatever its steps do; an improvement of the wall time alone makes it ``improved``.

    Args:
        before: Report of the earlier run.
        after: Report of the later run.
        before_name: What to call the earlier run.
        after_name: What to call the later run.

    Returns:
        The comparison; it exists also for runs that cannot be compared, with the reasons.
    """
    training = _training(before, after)
    wall = _wall(before, after)
    predicted = max((f.gain.speedup_max for f in before.findings if f.gain is not None), default=None)
    outcome = _outcome(training, wall)
    return Comparison(
        schema_version=COMPARISON_VERSION,
        before=before_name,
        after=after_name,
        outcome=outcome,
        summary=_summary(outcome, training, wall),
        training=training,
        wall=wall,
        changes=_changes(before, after),
        phases=_phase_changes(before, after),
        parts=_part_changes(before, after),
        findings=_finding_changes(before, after),
        predicted_speedup_max=predicted,
        conditions=_condition_changes(before, after),
        notes=_notes(before, after, training, wall, predicted),
    )


def median_relative_error(values: Distribution, count: int) -> float:
    """Standard error of a median as a share of the median, ``1.2533 * std / (sqrt(count) * median)``.

    Args:
        values: Statistics of the sample; the unit does not matter.
        count: Size of the sample, at least 1.
    """
    return MEDIAN_ERROR * values.std / (math.sqrt(count) * values.median)


def _training(before: Report, after: Report) -> Judgement:
    reason = _training_obstacle(before, after)
    period_before, period_after = before.steps.period_ms, after.steps.period_ms
    rate_before, rate_after = before.steps.samples_per_s, after.steps.samples_per_s
    rates_known = bool(rate_before and rate_after)
    measure = "samples/s" if rates_known else "median period"
    if reason or period_before is None or period_after is None:
        return Judgement(measure=measure, outcome="not comparable", why=reason)
    speedup = rate_after / rate_before if rate_before and rate_after else period_before.median / period_after.median
    half_width = NORMAL_95 * math.hypot(
        median_relative_error(period_before, before.steps.steady_count),
        median_relative_error(period_after, after.steps.steady_count),
    )
    if half_width > MAX_HALF_WIDTH:
        why = (
            f"too noisy: the 95 % interval spans a factor of {math.exp(2 * half_width):.3g}; measure more steady steps"
        )
        return Judgement(measure=measure, outcome="not comparable", why=why)
    return _judge(measure, speedup, half_width, floor=math.log1p(NOISE_FLOOR_RATIO))


def _training_obstacle(before: Report, after: Report) -> str:
    """Why the two throughputs cannot be held against each other; empty if they can."""
    for name, report in (("earlier", before), ("later", after)):
        if not report.validity.ok:
            caveats = "; ".join(report.validity.caveats) or "no reason given"
            return f"the measurement of the {name} run is not valid: {caveats}"
        if report.steps.period_ms is None or report.steps.steady_count < MIN_STEADY_STEPS:
            return (
                f"the {name} run has {report.steps.steady_count} steady unprofiled steps, at least "
                f"{MIN_STEADY_STEPS} are needed: train longer"
            )
        if report.steps.period_ms.median <= 0:
            return f"the {name} run has a median period of 0"
    if not (before.steps.samples_per_s and after.steps.samples_per_s):
        ranks = _ranks(before), _ranks(after)
        if ranks[0] != ranks[1]:
            return f"the runs have {ranks[0]} and {ranks[1]} ranks and samples/s are not known for both"
        sizes = _batch_size(before), _batch_size(after)
        if None not in sizes and sizes[0] != sizes[1]:
            return f"the batch sizes differ ({sizes[0]:g} and {sizes[1]:g}) and samples/s are not known for both"
    return ""


def _wall(before: Report, after: Report) -> Judgement:
    measure = "wall time of fit"
    reason = _wall_obstacle(before, after)
    if reason:
        return Judgement(measure=measure, outcome="not comparable", why=reason)
    own_s = _own_s(before, after)
    net_s = before.wall.total_s - own_s[0], after.wall.total_s - own_s[1]
    half_width = NORMAL_95 * math.hypot(_wall_relative_error(before), _wall_relative_error(after))
    floor = max(math.log1p(NOISE_FLOOR_RATIO), math.log1p(WALL_NOISE_FLOOR_S / min(net_s)))
    why = "one measurement per run: repeat both to be sure of a small difference"
    if any(own_s):
        why = f"without the profiler's own {own_s[0]:.3g} s and {own_s[1]:.3g} s at start and end; {why}"
    return _judge(measure, net_s[0] / net_s[1], half_width, floor=floor, why=why)


def _own_s(before: Report, after: Report) -> tuple[float, float]:
    """What the profiler itself took outside the steps; 0 for both if it is not known of one, or impossible."""
    first, second = (report.overhead.get("hooks_s") for report in (before, after))
    if first is None or second is None:
        return 0.0, 0.0
    possible = 0 <= first < before.wall.total_s and 0 <= second < after.wall.total_s
    return (first, second) if possible else (0.0, 0.0)


def _wall_relative_error(report: Report) -> float:
    """Standard error of the wall time that its steps' scatter makes: ``std * sqrt(steps) / wall``."""
    if report.steps.period_ms is None:
        return 0.0
    return report.steps.period_ms.std / 1e3 * math.sqrt(report.steps.count) / report.wall.total_s


def _wall_obstacle(before: Report, after: Report) -> str:
    """Why the two wall times cannot be held against each other; empty if they can."""
    for name, report in (("earlier", before), ("later", after)):
        if report.wall.total_s <= 0:
            return f"the {name} run has no wall time"
        status = report.run.get("status")
        if status is not None and status != "finished":
            return f"the {name} run did not come to its end ({status})"
    sizes = _batch_size(before), _batch_size(after)
    work = (float(before.steps.count * _ranks(before)), float(after.steps.count * _ranks(after)))
    if sizes[0] is not None and sizes[1] is not None:
        work = (work[0] * sizes[0], work[1] * sizes[1])
    # The last batch of an epoch may be smaller than batch_size: within one batch per hundred the work is the same.
    if not math.isclose(work[0], work[1], rel_tol=0.01):
        return f"the runs did a different amount of work ({before.steps.count} and {after.steps.count} steps)"
    return ""


def _judge(measure: str, speedup: float, half_width: float, *, floor: float, why: str = "") -> Judgement:
    """Judge a speed-up; ``half_width`` and ``floor`` are differences of its logarithm."""
    band = max(half_width, floor)
    change = math.log(speedup)
    outcome: Outcome = "within noise"
    if change > band:
        outcome = "improved"
    elif change < -band:
        outcome = "regressed"
    return Judgement(
        measure=measure,
        outcome=outcome,
        why=why,
        speedup=speedup,
        lower=math.exp(change - half_width),
        upper=math.exp(change + half_width),
        noise_ratio=math.expm1(band),
    )


def _outcome(training: Judgement, wall: Judgement) -> Outcome:
    if training.outcome in ("not comparable", "regressed"):
        return training.outcome
    if wall.outcome in ("regressed", "improved"):
        return wall.outcome
    return training.outcome


def _summary(outcome: Outcome, training: Judgement, wall: Judgement) -> str:
    return f"{outcome}: training {_judgement_words(training)}; wall time {_judgement_words(wall)}"


def _judgement_words(judgement: Judgement) -> str:
    if judgement.speedup is None:
        return f"not comparable ({judgement.why})"
    words = f"{judgement.speedup:.3g}x by {judgement.measure}"
    if judgement.outcome == "within noise" and judgement.noise_ratio is not None:
        return f"{words}, within the noise of {judgement.noise_ratio * 100:.3g} %"
    return f"{words}, {judgement.outcome}"


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _change(name: str, unit: str, before: float | None, after: float | None) -> Change:
    return Change(name=name, unit=unit, before=before, after=after, difference=_difference(before, after))


def _changes(before: Report, after: Report) -> tuple[Change, ...]:
    medians = [r.steps.period_ms.median if r.steps.period_ms else None for r in (before, after)]
    tails = [r.steps.period_ms.p95 if r.steps.period_ms else None for r in (before, after)]
    return (
        _change("median period", "ms", *medians),
        _change("p95 period", "ms", *tails),
        _change("samples/s", "samples/s", before.steps.samples_per_s, after.steps.samples_per_s),
        _change("wall time", "s", before.wall.total_s, after.wall.total_s),
    )


def _phase_changes(before: Report, after: Report) -> tuple[Change, ...]:
    sides = [{row.phase: row.median_ms for row in report.phases} for report in (before, after)]
    return tuple(
        _change(phase, "ms", sides[0].get(phase), sides[1].get(phase))
        for phase in PHASES
        if phase in sides[0] or phase in sides[1]
    )


def _part_changes(before: Report, after: Report) -> tuple[Change, ...]:
    sides = before.wall.parts, after.wall.parts
    return tuple(
        _change(part, "s", sides[0].get(part), sides[1].get(part))
        for part in PARTS
        if part in sides[0] or part in sides[1]
    )


def _finding_changes(before: Report, after: Report) -> tuple[FindingChange, ...]:
    then = {(f.rule, f.subject): f for f in before.findings}
    now = {(f.rule, f.subject): f for f in after.findings}
    unjudged_then = {n.rule for n in before.not_evaluated}
    unjudged_now = {n.rule for n in after.not_evaluated}
    gone, kept = [], []
    for key, finding in then.items():
        bound = finding.gain.speedup_max if finding.gain else None
        if key in now:
            kept.append(_finding_change(now[key], "kept", bound))
        else:
            gone.append(_finding_change(finding, "not judged" if finding.rule in unjudged_now else "gone", bound))
    new = [
        _finding_change(finding, "not judged" if finding.rule in unjudged_then else "new", None)
        for key, finding in now.items()
        if key not in then
    ]
    return (*gone, *new, *kept)


def _finding_change(finding: Finding, state: FindingState, speedup_max: float | None) -> FindingChange:
    return FindingChange(
        rule=finding.rule,
        subject=finding.subject,
        severity=finding.severity,
        state=state,
        summary=finding.summary,
        speedup_max=speedup_max,
    )


def _condition_changes(before: Report, after: Report) -> tuple[ConditionChange, ...]:
    names = list(dict.fromkeys((*before.run, *after.run)))
    differing = [
        ConditionChange(name=name, before=before.run.get(name), after=after.run.get(name))
        for name in names
        if name not in _ALWAYS_DIFFERENT and before.run.get(name) != after.run.get(name)
    ]
    return tuple(differing[:MAX_CONDITIONS])


def _notes(
    before: Report, after: Report, training: Judgement, wall: Judgement, predicted: float | None
) -> tuple[str, ...]:
    notes = []
    sizes = _batch_size(before), _batch_size(after)
    if training.measure == "median period" and training.speedup is not None and None in sizes:
        notes.append("the batch size is not known for both runs: the periods are taken to be of equal batches")
    if None not in sizes and sizes[0] != sizes[1]:
        notes.append(f"the batch size changed from {sizes[0]:g} to {sizes[1]:g}: so did the optimization itself")
    best = max((j.lower for j in (training, wall) if j.lower is not None), default=None)
    if predicted is not None and best is not None and best > predicted:
        notes.append(
            f"more was gained than the bound of {predicted:.3g}x of a single finding: several were mended, or "
            "something else changed as well (see the conditions)"
        )
    caveats = [
        f"{name} run: {caveat}" for name, r in (("earlier", before), ("later", after)) for caveat in r.validity.caveats
    ]
    return (*notes, *caveats)


def _batch_size(report: Report) -> float | None:
    value = report.run.get("loader.batch_size")
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _ranks(report: Report) -> int:
    """Ranks of the run; a report that does not say is of a run with one."""
    value = report.run.get("world_size")
    return value if isinstance(value, int) else 1
