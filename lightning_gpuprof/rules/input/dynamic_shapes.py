"""Nearly every batch has a shape of its own, and the time of a step follows it.

## What it means
A long batch takes longer than a short one. That is right as such, but many shapes cost more than that: the GPU's
memory is split into blocks of many sizes, compiled code and CUDA graphs are made for each shape, cuDNN chooses again,
and ranks wait for the one with the longest batch.

## How it is measured
As the DataLoader hands them over, 13 of the first 200 batches are inspected, and 17 of the first 1,000: the shapes of
their tensors. The rule speaks if more than 8 of these shapes differ, and if the larger batch takes the longer step: a
rank correlation (Spearman) of 0.7 over the inspected batches, without those of the first five steps and of traced ones.
The step time that follows from the size (Theil, Sen) has to vary by 15 % of the mean. What bucketing and padding gain
depends on the model, so there is no gain.

## When it is wrong
- Eight or fewer shapes are what a bucket sampler leaves: no finding, even if step time varies by them.
- Batches whose tensors are inside of objects (graphs) are not seen.
- Lightning fetches one batch ahead from a loader without a length: its times are then those of the step before.

## What to do
Put samples of similar length into one batch (a bucket batch sampler), pad to a multiple of 64, and set
`drop_last=True`.
"""

from lightning_gpuprof.rules.base import BaseRule, Finding, Metrics, MissingSignal, measured, millis, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet


class DynamicShapes(BaseRule):
    id = "dynamic-shapes"
    title = "Step time follows varying batch shapes"
    certainty = 0.8

    most_shapes: int = threshold(8, source="heuristic: what bucketing leaves")
    least_spread_ratio: float = threshold(0.15, source="heuristic: standard deviation over mean")
    least_correlation: float = threshold(0.70, source="heuristic: by chance in 3 % of runs with 8 batches compared")
    least_compared: int = threshold(8, source="heuristic: fewer are in order by chance")

    examples = (
        fires(
            "12 of 13 differ in length", "info", "to 16x184 ... from 20.0 ms to 80.0 ms ... drop_last=True", shapes={}
        ),
        fires(
            "the last batch is dropped", "info", "of 64.", lacks="drop_last", shapes={}, run={"loader.drop_last": True}
        ),
        quiet("8 shapes are what bucketing leaves", shapes={"shapes": 8}),
        quiet("step time varies by a tenth", shapes={"spread_ratio": 0.1}),
        looks_alike("step time varies by something else", shapes={"correlation": 0.3}),
        looks_alike("only the last batch is smaller", shapes={"shapes": 2, "spread_ratio": 0.2}),
        not_evaluated("seven were compared", "7 of the 8", shapes={"compared": 7}),
        not_evaluated("no batch was inspected", "no batch was inspected", shapes=None),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        metrics.require_steady()
        found = measured(metrics.batch_shapes)
        if found.shapes <= self.most_shapes:
            return None
        if found.compared < self.least_compared:
            raise MissingSignal(f"{found.compared} of the {self.least_compared} batches needed are in untraced steps")
        if not found.is_possible:
            raise MissingSignal("the step time of inspected batches is not a valid number")
        if found.correlation < self.least_correlation or found.spread_ratio < self.least_spread_ratio:
            return None
        last = "" if metrics.condition("loader.drop_last") is True else ", and set drop_last=True in the DataLoader"
        return self.finding(
            subject="batches",
            summary=(
                f"{found.shapes} of {found.looks} inspected batches have different shapes, from {found.smallest} to "
                f"{found.largest}. Step time follows their size, from {millis(found.smallest_ms)} to "
                f"{millis(found.largest_ms)}: it varies by {percent(found.spread_ratio)} of its mean."
            ),
            advice=(
                "Put samples of similar length into one batch with a bucket batch sampler, and pad to a multiple of "
                f"64{last}. Few shapes let memory, compiled code and CUDA graphs be used again."
            ),
            evidence=(
                self.evidence("most_shapes", found.shapes, "different shapes among the inspected batches"),
                self.evidence("least_spread_ratio", found.spread_ratio, "spread of step time by size, of its mean"),
                self.evidence("least_correlation", found.correlation, "rank correlation of size and step time"),
                self.evidence("least_compared", found.compared, "batches compared"),
            ),
        )
