"""cuDNN times its algorithms again and again, because batches keep coming in new shapes.

## What it means
With `torch.backends.cudnn.benchmark` cuDNN runs up to ten algorithms, twice each, for every shape that a convolution
has not had before. That pays off if the shape comes back a thousand times. If shapes vary, steps do it over and over.

## How it is measured
The setting; the shapes of the inspected batches, which must show more than 20 shapes in all: so many different ones
would be found among 20 shapes with a chance below a tenth; and trace windows: a convolution waits for an event only to
time algorithms. What counts is the host time of such convolutions, without that in which the GPU ended earlier work.

Of what the median untraced step takes longer than traced ones without that time, half is certain: without timing, one
algorithm runs once instead of twice. If it takes hardly longer, only some steps have new shapes. They must then be
outliers of forward or backward, and no more than the sum of their excess, spread over all steps, counts.

## When it is wrong
- The gain is an upper bound: the algorithm that cuDNN takes without timing may be slower than the fastest.
- A long run may have had all of its shapes once, and be fast from then on: untraced steps are then no longer slow.

## What to do
`Trainer(benchmark=False)`, or few shapes: pad or crop the batches to a few sizes, or put samples of one size into a
batch.
"""

from lightning_gpuprof.model.numbers import counted
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    Change,
    Cost,
    Finding,
    Metrics,
    MissingSignal,
    measured,
    threshold,
    worthwhile_evidence,
)
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet

_BENCHMARK = "flags.cudnn_benchmark"
_CERTAIN_RATIO = 0.5
"""Of the time of trials: each algorithm runs twice, and the one that is taken without a trial once."""

_ON = {_BENCHMARK: True}
_TRIALS = {"kernels": 300, "trials": 3, "trial_us": 300.0}


class CudnnBenchmarkThrash(BaseRule):
    id = "cudnn-benchmark-thrash"
    title = "cuDNN benchmarks each new batch shape"
    needs = "gpu"
    specialises = ("step-outliers",)
    certainty = 0.9

    most_shapes: int = threshold(20, source="the method: fewer shapes are soon known")
    least_seen_ratio: float = threshold(0.50, source="heuristic: batches, and so steps, differ in size")

    examples = (
        fires("convolutions of each step are timed", "warning", "benchmark=False", step=_TRIALS, shapes={}, run=_ON),
        quiet("benchmark is off", step=_TRIALS, shapes={}, run={_BENCHMARK: False}),
        quiet("8 shapes are soon known", step=_TRIALS, shapes={"shapes": 8}, run=_ON),
        looks_alike("new shapes cost nothing", step={"kernels": 300}, shapes={}, run=_ON),
        looks_alike("the loss is read", step={"kernels": 300, "reads": {"training_step": 900.0}}, shapes={}, run=_ON),
        not_evaluated("there is no trace window", "no trace window", shapes={}, run={"device.type": "cuda", **_ON}),
        not_evaluated("no batch was inspected", "no batch was inspected", step=_TRIALS, shapes=None, run=_ON),
        not_evaluated("the setting is not known", "cudnn.benchmark", step=_TRIALS, shapes={}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        if metrics.is_cpu_only:
            return None
        step_ms, benchmark = metrics.step_ms, metrics.condition(_BENCHMARK)
        if benchmark is None:
            raise MissingSignal("the setting of cudnn.benchmark is not known")
        if benchmark is not True:
            return None
        batches = measured(metrics.batch_shapes)
        if not batches.are_of_more_than(self.most_shapes):
            return None
        trials = measured(metrics.algorithm_trials)
        trial, seen_ms = trials.time, step_ms - trials.rest.ms
        if seen_ms >= self.least_seen_ratio * trial.ms:
            lower_ms = _CERTAIN_RATIO * min(trial.lower_ms, seen_ms)
            cost, claim = metrics.cost(min(trial.ms, step_ms), lower_ms), claims.ALGORITHM_TRIALS
        else:
            cost, claim = _of_some_steps(metrics, trial.ms), claims.OUTLIERS
        if not cost.is_worth():
            return None
        of_steps = f"{trials.steps_with_trials} of {counted(trials.steps, 'traced step')}"
        return self.finding(
            subject="convolutions",
            summary=f"cuDNN timed its algorithms for {counted(trials.convolutions, 'convolution')} in {of_steps}, as "
            f"batches keep coming in new shapes: {batches.shapes} of {batches.looks} inspected batches differ. That "
            f"takes {cost}.",
            advice="Turn cudnn.benchmark off: Trainer(..., benchmark=False). Or keep it on, and pad or crop the "
            "batches to a few sizes, which cuDNN then knows.",
            evidence=(
                worthwhile_evidence("timing algorithms, share of the step", cost),
                self.fact("convolutions timed per traced step", trials.convolutions / trials.steps),
                self.fact("different shapes among the inspected batches", batches.shapes),
            ),
            cost=cost,
            explains=claim,
            change=Change(call="Trainer", arguments={"benchmark": False}),
        )


def _of_some_steps(metrics: Metrics, trial_ms: float) -> Cost:
    """What trials cost that only some steps have: no more than the excess of outlying steps in the model's phases."""
    found = metrics.outliers
    if found is None:
        raise MissingSignal("too few comparable steps to see which are slower than the rest")
    excess_ms = sum(found.excess_by_phase_ms.get(phase, 0.0) for phase in claims.ALGORITHM_TRIALS.phases)
    spread_ms = min(trial_ms, excess_ms / found.checked if found.checked else 0.0)
    return metrics.cost(spread_ms, 0.0)
