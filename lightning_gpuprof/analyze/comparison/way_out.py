"""What to do about two runs that are not comparable, or whose change the noise hides: the words after "next:"."""

from collections.abc import Collection

from lightning_gpuprof.analyze import conditions
from lightning_gpuprof.analyze.comparison import judging
from lightning_gpuprof.analyze.comparison.judging import Runs
from lightning_gpuprof.model.comparison import ConditionChange, Judgement, Outcome
from lightning_gpuprof.model.conditions import FixedGroup
from lightning_gpuprof.model.report import MIN_STEADY_STEPS


def way_out(
    runs: Runs,
    differing: Collection[ConditionChange],
    allow: Collection[FixedGroup],
    training: Judgement,
    metrics: Collection[str],
    outcome: Outcome,
) -> str:
    """What makes two runs comparable, or shows a change that the noise hides; empty if nothing is to be done.

    Args:
        runs: Both.
        differing: Their conditions that differ.
        allow: Groups of these that may.
        training: Judgement of the throughput.
        metrics: Measures that were asked for.
        outcome: Of the comparison.
    """
    if outcome != "not comparable":
        hidden = outcome == "within noise" and judging.cpu_waits(runs) is not None
        return "run both on a quiet machine: other programs widen the noise" if hidden else ""
    if judging.stage_obstacle(runs):
        return "compare two runs of the same stage"
    if groups := conditions.forbidden_groups(differing, allow):
        *most, last = groups
        same = f"{', '.join(most)} and {last}" if most else last
        command = f"gpuprof compare A B --allow {','.join(groups)}"
        return f"run both with the same {same}; if that is the change under test: {command}"
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
