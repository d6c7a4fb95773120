"""What became of each finding between two runs, with the predicted and the achieved gain."""

from collections.abc import Mapping

from lightning_gpuprof.model.comparison import Change, Expectation, FindingChange, FindingState, Judgement, Standing
from lightning_gpuprof.model.conditions import condition_of
from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.phases import PARTS, Part, Phase
from lightning_gpuprof.model.report import Report

_RECURRING: tuple[Part, ...] = ("validation", "checkpoint", "epoch_gap")
_MOSTLY = 0.5
"""Of what a run got shorter by. Heuristic."""

SURELY_ABOVE_RATIO = 1.1
"""Where no interval is known, so much of a bound must be passed before it is called passed (heuristic)."""


def finding_changes(
    before: Report, after: Report, phases: tuple[Change, ...], *, comparable: bool
) -> tuple[FindingChange, ...]:
    """Findings that are gone, new or kept.

    What a gone finding gained is the time that its phase or part lost, which is what its bound was taken from.

    Args:
        before: Report of the earlier run.
        after: Report of the later run.
        phases: Medians before and after, with intervals where they are known.
        comparable: The runs may be compared with each other; else no bound is called passed.

    Returns:
        Those of the earlier run that are gone or no longer judged, the new ones, the kept ones; within each in the
        order of their report.
    """
    then = {(f.rule, f.subject): f for f in before.findings}
    now = {(f.rule, f.subject): f for f in after.findings}
    unjudged_then = {n.rule for n in before.not_evaluated}
    unjudged_now = {n.rule for n in after.not_evaluated}
    medians = {row.name: row for row in phases}
    gone, kept = [], []
    for key, finding in then.items():
        if key in now:
            kept.append(_finding_change(now[key], "kept", bound_of=finding))
        elif finding.rule in unjudged_now:
            gone.append(_finding_change(finding, "not judged", bound_of=finding))
        else:
            gone.append(_vanished(finding, before, after, medians, comparable=comparable))
    new = [
        _finding_change(finding, "not judged" if finding.rule in unjudged_then else "new")
        for key, finding in now.items()
        if key not in then
    ]
    return (*gone, *new, *kept)


def ended_outside_steps(before: Report, after: Report, findings: tuple[FindingChange, ...]) -> bool:
    """Whether what recurs between the steps is no longer found and is most of what the run got shorter by.

    What comes once, as a sanity check, does not count: a longer run would gain as little by it.

    Args:
        before: Report of the earlier run.
        after: Report of the later run.
        findings: What became of each finding.
    """
    gone = {(one.rule, one.subject) for one in findings if one.state == "gone"}
    left = {one.rule for one in after.findings}
    ended = [one for one in before.findings if (one.rule, one.subject) in gone and one.rule not in left]
    if not any(one.explains is not None and one.explains.part in _RECURRING for one in ended):
        return False
    ends_s = sum(before.wall.parts.get(part, 0.0) - after.wall.parts.get(part, 0.0) for part in _RECURRING)
    return ends_s >= _MOSTLY * (before.wall.total_s - after.wall.total_s)


def expectation(
    before: Report, after: Report, findings: tuple[FindingChange, ...], training: Judgement, wall: Judgement
) -> Expectation | None:
    """What was expected of the change that was made, and what came.

    Args:
        before: Report of the earlier run.
        after: Report of the later run.
        findings: What became of each finding.
        training: Judgement of the throughput.
        wall: Judgement of the wall time.

    Returns:
        None if no finding with an expectation was followed, or several were: what they bring does not add up. Also None
        if another finding that was to save more is gone.
    """
    gone = {(one.rule, one.subject) for one in findings if one.state == "gone"}
    made = [one for one in before.findings if one.expected is not None and _is_made(one, before, after, gone)]
    in_run = [one for one in made if one.explains is not None and one.explains.resource == "outside steps"]
    in_step = [one for one in made if one not in in_run]
    followed, judged = (in_step, training) if in_step else (in_run, wall)
    if len({one.expected for one in followed}) != 1 or judged.speedup is None:
        return None
    (first, *_), expected = followed, followed[0].expected
    assert expected is not None
    saved_ms = expected.whole_ms - expected.step_ms
    others = (one for one in before.findings if one.expected is None and (one.rule, one.subject) in gone)
    if any(one.gain is not None and one.gain.saved_ms_per_step > saved_ms for one in others if one.severity != "info"):
        return None
    least, most = expected.speedup_range
    standing: Standing = "in the expected range" if least <= judged.speedup <= most else "less than expected"
    return Expectation(
        rule=first.rule,
        expected=expected,
        speedup=judged.speedup,
        of="step" if in_step else "run",
        standing="more than expected" if judged.speedup > most else standing,
    )


def _is_made(finding: Finding, before: Report, after: Report, gone: set[tuple[str, str]]) -> bool:
    """Whether its settings are those of the later run, or others than before, or not known, and it is gone."""
    change = finding.change
    prefix = {"DataLoader": "loader", "Trainer": "trainer"}.get(change.call) if change is not None else None
    slowest = None if before.input is None else before.input.slowest
    key = f"loader.{slowest}.key"
    if before.run.get(key) != after.run.get(key):  # another loader, or a report of a version that knew one only
        slowest = None
    known: list[tuple[Value, Value, Value]] = []
    for name, value in {} if change is None or prefix is None else change.arguments.items():
        then, now = (condition_of(report.run, f"{prefix}.{name}", slowest) for report in (before, after))
        if then is not None and now is not None:
            known.append((then, now, value))
    if (finding.rule, finding.subject) in gone:
        return not known or any(then != now for then, now, _ in known)
    return bool(known) and all(now == value for _, now, value in known)


def _vanished(
    finding: Finding, before: Report, after: Report, medians: Mapping[str, Change], *, comparable: bool
) -> FindingChange:
    achieved, at_least = _achieved(_place_of(finding), before, after, medians)
    saved = finding.gain.saved_ms_per_step if finding.gain else None
    if saved is not None and finding.expected is not None:
        saved = max(saved, finding.expected.whole_ms - finding.expected.lower_ms)
    return _finding_change(
        finding,
        "gone",
        bound_of=finding,
        achieved_ms=achieved,
        above=comparable and saved is not None and at_least is not None and at_least > saved,
    )


def _place_of(finding: Finding) -> Part | Phase | None:
    """The part of the wall time or the phase that a finding explains; None: neither."""
    claim = finding.explains
    return None if claim is None else claim.part or claim.phase


def _achieved(
    place: Part | Phase | None, before: Report, after: Report, medians: Mapping[str, Change]
) -> tuple[float | None, float | None]:
    """What the phase or part lost per step, and what it lost at least, milliseconds; None for what is not known."""
    row = medians.get(place or "")
    if row is not None and row.before and row.difference is not None:
        if row.outcome == "not comparable":
            return -row.difference, None
        certain = -row.upper if row.upper is not None else -row.difference / SURELY_ABOVE_RATIO
        return -row.difference, certain
    sides = [_total_per_step(report, place) for report in (before, after)]
    if sides[0] is None or sides[1] is None:
        return None, None
    return sides[0] - sides[1], (sides[0] - sides[1]) / SURELY_ABOVE_RATIO


def _total_per_step(report: Report, place: Part | Phase | None) -> float | None:
    """What lies beside the ordinary steps, spread over all of them as in a gain."""
    if not report.steps.count:
        return None
    if place in PARTS:
        seconds = report.wall.parts.get(place)
    else:
        seconds = next((row.total_s for row in report.phases if row.phase == place), None)
    return None if seconds is None else seconds * 1e3 / report.steps.count


def _finding_change(
    finding: Finding,
    state: FindingState,
    *,
    bound_of: Finding | None = None,
    achieved_ms: float | None = None,
    above: bool = False,
) -> FindingChange:
    gain = bound_of.gain if bound_of is not None else None
    return FindingChange(
        rule=finding.rule,
        subject=finding.subject,
        severity=finding.severity,
        state=state,
        summary=finding.summary,
        speedup_max=bound_of.most_speedup if bound_of is not None else None,
        saved_ms_per_step=gain.saved_ms_per_step if gain else None,
        expected=bound_of.expected if bound_of is not None else None,
        achieved_ms_per_step=achieved_ms,
        achieved_in=(_place_of(finding) or "") if achieved_ms is not None else "",
        above_bound=above,
    )
