"""Compares two reports, with the step times of their journals.

The parts are in :mod:`lightning_gpuprof.analyze.comparison`: what a difference must be to count in ``judging``, how
sure the step times are in ``uncertainty`` and ``resampling``.
"""

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from lightning_gpuprof.analyze import conditions
from lightning_gpuprof.analyze.comparison import changes, judging, notes
from lightning_gpuprof.analyze.comparison.finding_changes import ended_outside_steps, expectation, finding_changes
from lightning_gpuprof.analyze.comparison.judging import Runs
from lightning_gpuprof.analyze.comparison.notes import way_out
from lightning_gpuprof.analyze.comparison.uncertainty import StepTimes, draws_of
from lightning_gpuprof.analyze.comparison.window_changes import window_changes
from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.model.comparison import (
    COMPARISON_VERSION,
    DEFAULT_METRICS,
    DEFAULT_THRESHOLD_RATIO,
    Change,
    CodeChange,
    Comparison,
    Expectation,
    Judgement,
    Outcome,
)
from lightning_gpuprof.model.conditions import FixedGroup
from lightning_gpuprof.model.finding import CombinedGain
from lightning_gpuprof.model.report import Report

MAX_CONDITIONS = 200


def compare(
    before: Report,
    after: Report,
    *,
    before_name: str = "before",
    after_name: str = "after",
    allow: Collection[FixedGroup] = (),
    times: tuple[StepTimes | None, StepTimes | None] = (None, None),
    threshold_ratio: float = DEFAULT_THRESHOLD_RATIO,
    metrics: Sequence[str] = (),
) -> Comparison:
    """Hold a later run against an earlier one.

    Without ``metrics`` the outcome is that of training throughput. A regression of the wall time alone makes it
    ``regressed``, because the run takes longer whatever its steps do; an improvement of the wall time alone makes it
    ``improved``, also with slower steps where a finding on validation, checkpoints or gaps between epochs is gone.
    With other ``metrics`` than these two it is ``regressed`` if one of them is, else ``not comparable`` if one is that,
    else ``improved`` if one is.

    Args:
        before: Report of the earlier run.
        after: Report of the later run.
        before_name: What to call the earlier run.
        after_name: What to call the later run.
        allow: Of hardware, model and batch, what may differ; else runs that differ in it are not comparable.
        times: Steady steps of both, from their journals; None where there is only a report.
        threshold_ratio: Smallest change that counts, 0 to 1.
        metrics: Measures that decide the outcome, as ``throughput``, ``wall``, ``step_time``, ``phase.forward``.

    Returns:
        The comparison; it exists also for runs that cannot be compared, with the reasons.

    Raises:
        ArgumentError: There is no such measure.
    """
    differing = conditions.changes(before.run, after.run)
    runs = Runs(before=before, after=after, threshold_ratio=threshold_ratio)
    unlike = judging.stage_obstacle(runs) or conditions.obstacle(differing, allow) or judging.repeated_data(runs)
    if not unlike:
        runs = _with_draws(runs, times)
    training = judging.not_comparable("training", unlike) if unlike else judging.training(runs)
    wall = judging.not_comparable("wall time of fit", unlike) if unlike else judging.wall(runs)
    unequal = unlike or judging.step_work_obstacle(runs)
    obstacle = judging.steps_obstacle(runs) or unequal
    phases = changes.phases(runs, obstacle)
    mean_phases = changes.mean_phases(runs)
    totals = changes.totals(runs, obstacle, training, wall)
    memory = changes.memory(runs, unequal)
    host = changes.host(runs)
    windows = None if unlike else window_changes(before, after)
    findings = finding_changes(before, after, phases, comparable=not unequal)
    outcome = _outcome(training, wall, ended_outside=ended_outside_steps(before, after, findings))
    asked = () if set(metrics) == set(DEFAULT_METRICS) else tuple(metrics)
    if asked:
        outcome = _outcome_of(asked, training, wall, (*totals, *phases, *memory))
    predicted = max((most for f in before.findings if (most := f.most_speedup) is not None), default=None)
    came = expectation(before, after, findings, training, wall)
    above = _exceeds_promise(before.combined, training, wall, came)
    cause = notes.cause(training, mean_phases or phases)
    noted = notes.notes(before, after, training, wall, host=host, predicted=predicted, above_bound=above)
    return Comparison(
        schema_version=COMPARISON_VERSION,
        before=before_name,
        after=after_name,
        outcome=outcome,
        summary=_summary(outcome, training, wall, cause, asked),
        training=training,
        wall=wall,
        changes=totals,
        phases=phases,
        parts=changes.parts(runs),
        findings=findings,
        predicted_speedup_max=predicted,
        conditions=differing[:MAX_CONDITIONS],
        code=code_changes(before.sources, after.sources),
        notes=(*conditions.warnings(differing, allow), *noted, *(windows.caveats if windows else ())),
        metrics=asked or DEFAULT_METRICS,
        threshold_ratio=threshold_ratio,
        cause=cause,
        sources=None if runs.draws is None else (runs.draws[0].source, runs.draws[1].source),
        mean_phases=mean_phases,
        memory=memory,
        devices=changes.devices(runs),
        host=host,
        windows=windows,
        predicted_step_speedup_max=before.combined.step_speedup_max if before.combined else None,
        predicted_run_speedup_max=before.combined.run_speedup_max if before.combined else None,
        above_bound=above,
        expectation=came,
        next_finding=next(iter(after.findings), None),
        way_out=way_out(runs, differing, allow, training, asked, outcome),
    )


def _with_draws(runs: Runs, times: tuple[StepTimes | None, StepTimes | None]) -> Runs:
    """Without draws if the step times of one of them say nothing."""
    if judging.steps_obstacle(runs):
        return runs
    first, second = draws_of(runs.before, times[0], stream=0), draws_of(runs.after, times[1], stream=1)
    return runs if first is None or second is None else replace(runs, draws=(first, second))


def _exceeds_promise(
    combined: CombinedGain | None, training: Judgement, wall: Judgement, came: Expectation | None
) -> bool:
    """Whether more was gained than all findings together promised, also at the lower end of the interval.

    What was gained within the interval that was expected of the change is no more than was promised.
    """
    if combined is None or (came is not None and came.standing != "more than expected"):
        return False
    bounds = ((training, combined.step_speedup_max), (wall, combined.run_speedup_max))
    return any(j.outcome == "improved" and j.lower is not None and j.lower > bound for j, bound in bounds)


def _outcome(training: Judgement, wall: Judgement, *, ended_outside: bool) -> Outcome:
    if training.outcome == "regressed" and wall.outcome == "improved" and ended_outside:
        return "improved"  # what stood between the steps was there in proportion to them
    if training.outcome in ("not comparable", "regressed"):
        return training.outcome
    if wall.outcome in ("regressed", "improved"):
        return wall.outcome
    return training.outcome


def _outcome_of(metrics: Sequence[str], training: Judgement, wall: Judgement, rows: Iterable[Change]) -> Outcome:
    known: dict[str, Outcome] = {"throughput": training.outcome, "wall": wall.outcome}
    known |= {row.measure: row.outcome for row in rows if row.measure and row.outcome is not None}
    for metric in metrics:
        if metric not in known:
            raise ArgumentError("--metric", metric, f"be one of {', '.join(known)}")
    outcomes = [known[metric] for metric in metrics]
    order: tuple[Outcome, ...] = ("regressed", "not comparable", "improved")
    return next((outcome for outcome in order if outcome in outcomes), "within noise")


def _summary(outcome: Outcome, training: Judgement, wall: Judgement, cause: str, metrics: Sequence[str]) -> str:
    judged = f" by {', '.join(metrics)}" if metrics else ""
    why = f" ({cause})" if cause else ""
    return f"{outcome}{judged}: training {_judgement_words(training)}{why}; wall time {_judgement_words(wall)}"


def _judgement_words(judgement: Judgement) -> str:
    if judgement.speedup is None:
        return f"not comparable ({judgement.why})"
    words = f"{judgement.speedup:.3g}x"
    if judgement.measure in ("samples/s", "median step time"):
        words += f" by {judgement.measure}"
    if judgement.outcome == "within noise" and judgement.noise_ratio is not None:
        return f"{words}, within the noise of {judgement.noise_ratio * 100:.3g} %"
    return f"{words}, {judgement.outcome}"


MAX_LINES = 200
"""Of the diff of a file."""


def code_changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[CodeChange, ...] | None:
    """The files that differ.

    A file that is known of one of them only may be new, or did not fit.

    Args:
        before: Source files of the earlier run by path.
        after: Source files of the later run.

    Returns:
        The largest change first; empty if none differs, None if no file of both runs is known.
    """
    if not before.keys() & after.keys():
        return None
    return tuple(sorted(_changes(before, after), key=lambda one: (-one.added - one.removed, one.path)))


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[CodeChange]:
    for path in before.keys() & after.keys():
        earlier, later = (side[path].splitlines() for side in (before, after))
        lines = list(difflib.unified_diff(earlier, later, n=1, lineterm=""))[2:]  # without the names of the files
        if not lines:
            continue
        yield CodeChange(
            path=path,
            added=sum(line.startswith("+") for line in lines),
            removed=sum(line.startswith("-") for line in lines),
            diff=tuple(" ..." if line.startswith("@@") else line for line in lines[1:])[:MAX_LINES],
            cut=len(lines) > MAX_LINES,
        )
