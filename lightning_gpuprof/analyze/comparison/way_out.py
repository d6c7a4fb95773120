"""What to do about two runs that are not comparable, as the words after "next:"."""

from collections.abc import Collection

from lightning_gpuprof.analyze import conditions
from lightning_gpuprof.analyze.comparison import judging
from lightning_gpuprof.analyze.comparison.judging import Runs
from lightning_gpuprof.model.comparison import ConditionChange, Judgement
from lightning_gpuprof.model.conditions import FixedGroup
from lightning_gpuprof.model.report import MIN_STEADY_STEPS


def way_out(
    runs: Runs,
    differing: Collection[ConditionChange],
    allow: Collection[FixedGroup],
    training: Judgement,
    metrics: Collection[str],
) -> str:
    """What makes two runs comparable.

    Args:
        runs: Both; they are not comparable.
        differing: Their conditions that differ.
        allow: Groups of these that may.
        training: Judgement of the throughput.
        metrics: Measures that were asked for.
    """
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
