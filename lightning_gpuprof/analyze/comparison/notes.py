"""What a comparison says beside its numbers, as sentences: the cause, the caveats, what to do next."""

from collections.abc import Collection, Iterator, Sequence

from lightning_gpuprof.analyze import conditions
from lightning_gpuprof.analyze.comparison import judging
from lightning_gpuprof.analyze.comparison.changes import OTHERS_CPU
from lightning_gpuprof.analyze.comparison.judging import OTHERS_CPUS, Runs, batch_size
from lightning_gpuprof.model.comparison import Change, ConditionChange, Judgement, Outcome
from lightning_gpuprof.model.conditions import FixedGroup
from lightning_gpuprof.model.phases import words_of
from lightning_gpuprof.model.report import MIN_STEADY_STEPS, Report

CAUSE_RATIO = 0.1
"""A phase with less of the step's change is not named."""
MAX_CAUSES = 3


def cause(training: Judgement, phases: Sequence[Change]) -> str:
    """The phases that moved the step most, if it moved.

    Args:
        training: Judgement of the throughput.
        phases: Time per step before and after; their changes sum to that of the step.

    Returns:
        One phrase, in ms, with up to three phases; empty if the step did not move, or no phase with it.
    """
    if training.outcome not in ("improved", "regressed"):
        return ""
    sign = 1 if training.outcome == "regressed" else -1
    moved = [(row.name, row.difference) for row in phases if row.difference is not None]
    whole = sum(difference for _, difference in moved)
    named = [
        (name, difference)
        for name, difference in sorted(moved, key=lambda pair: -sign * pair[1])
        if sign * difference >= CAUSE_RATIO * abs(whole) > 0
    ]
    if not named:
        return ""
    shown = [f"{words_of(name)} {difference:+.3g}" for name, difference in named[:MAX_CAUSES]]
    rest = whole - sum(difference for _, difference in named[:MAX_CAUSES])
    if abs(rest) >= CAUSE_RATIO * abs(whole):
        shown.append(f"all else {rest:+.3g}")
    return f"step {abs(whole):.3g} ms {'longer' if whole > 0 else 'shorter'}: {', '.join(shown)}"


def notes(
    before: Report,
    after: Report,
    training: Judgement,
    wall: Judgement,
    *,
    host: Sequence[Change],
    predicted: float | None,
    above_bound: bool,
) -> Iterator[str]:
    """What a reader must know beside the conditions.

    Args:
        before: Report of the earlier run.
        after: Report of the later run.
        training: Judgement of the throughput.
        wall: Judgement of the wall time.
        host: What was sampled of the host in both.
        predicted: Largest bound of one finding.
        above_bound: Whether more was gained than all findings together promised.

    Yields:
        Sentences without their full stop; the caveats of both runs come last.
    """
    sizes = batch_size(before), batch_size(after)
    if training.measure == "median step time" and training.speedup is not None and None in sizes:
        yield "the batch size is not known for both runs: assumed equal"
    if None not in sizes and sizes[0] != sizes[1]:
        yield f"the batch size changed from {sizes[0]:g} to {sizes[1]:g}: the optimization differs"
    best = max((j.lower for j in (training, wall) if j.lower is not None), default=None)
    if above_bound:
        yield (
            "more was gained than all findings of the earlier run promised together: something else changed, too (see "
            "the conditions), or the machine was less busy"
        )
    elif before.combined is None and predicted is not None and best is not None and best > predicted:
        yield (
            f"more was gained than the {predicted:.3g}x that one finding promised: several were fixed, or something "
            "else changed, too (see the conditions)"
        )
    others = next((row for row in host if row.name == OTHERS_CPU), None)
    if others is not None and others.difference is not None and abs(others.difference) >= OTHERS_CPUS:
        yield (
            f"other programs used {others.before:.2g} CPUs during the earlier run and {others.after:.2g} during the "
            "later one: they may explain the difference"
        )
    for name, report in (("earlier", before), ("later", after)):
        for caveat in report.validity.caveats:
            yield f"{name} run: {caveat}"


def way_out(
    runs: Runs,
    differing: Collection[ConditionChange],
    allow: Collection[FixedGroup],
    training: Judgement,
    metrics: Collection[str],
    outcome: Outcome,
) -> str:
    """What makes two runs comparable, or shows a change that the noise hides.

    Args:
        runs: Both.
        differing: Their conditions that differ.
        allow: Groups of these that may.
        training: Judgement of the throughput.
        metrics: Measures that were asked for.
        outcome: Of the comparison.

    Returns:
        A phrase without its full stop; empty if nothing is to be done.
    """
    if outcome != "not comparable":
        hidden = outcome == "within noise" and judging.cpu_waits(runs) is not None
        return "run both on a quiet machine: other programs widen the noise" if hidden else ""
    if judging.stage_obstacle(runs):
        return "compare two runs of the same stage"
    if groups := conditions.forbidden_groups(differing, allow):
        *most, last = groups
        same = f"{', '.join(most)} and {last}" if most else last
        command = f"gpuprof compare A B --allow {','.join((*allow, *groups))}"
        return f"run both with the same {same}; if that is the change under test: {command}"
    if judging.repeated_data(runs):
        return "shard the dataset in its __iter__ with torch.utils.data.get_worker_info()"
    for name, report in runs.named:
        if report.steps.steady_count < MIN_STEADY_STEPS:
            return f"repeat the {name} run with at least {MIN_STEADY_STEPS + 10} steps"
        if not report.validity.ok:
            return f"repeat the {name} run, as its recording is incomplete"
    if training.outcome != "not comparable":
        whole = "train both to the end, for the same number of steps"
        return whole if "wall" in metrics else "judge by another measure: leave out --metric"
    if judging.step_work_obstacle(runs):
        return "run both with the same batch size and as many ranks"
    return "run both for more steps, with nothing else on the machine"
