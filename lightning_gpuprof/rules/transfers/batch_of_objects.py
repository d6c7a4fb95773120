"""Training on the CPU spends time visiting the batch's many Python objects, although there is nothing to move.

## What it means
Before each step, Lightning walks through the lists, tuples and dictionaries of a batch to find the tensors to move.
That takes 0.05 ms for a few tensors, and a microsecond for each Python object, numbers included: edges, boxes or tokens
as nested lists are thousands of them.

## How it is measured
The phase `h2d` as a share of the steady steps of a training on the CPU, without hooks of your own around the
transfer. Silent if the first batch has fewer than 50 objects (1,000 are counted). The gain is all of it.

## When it is wrong
- A batch class with a `to` method of its own may spend the time there.
- On a GPU the phase also has the copies, so the rule does not judge it; the objects cost the same there.

## What to do
Have `collate_fn` put numbers that belong together into one tensor. What the model does not need stays out of the
batch, or goes into one object that is not a list, tuple, dictionary or data class.
"""

from lightning_gpuprof.rules.base import Cost, Finding, Metrics, Share, claims, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.steps.host_time import PhaseRule

_MANY = {"times_ms": {"h2d": 10.0}}


class BatchOfObjects(PhaseRule):
    id = "batch-of-objects"
    title = "Batches contain many Python objects"
    phase = "h2d"

    least_ratio: float = threshold(0.05, source="as transfer-hook-slow")

    least_objects: int = threshold(50, source="heuristic: 1 µs each: 50 µs is the least cost that any rule reports")

    examples = (
        fires(
            "visiting the batch takes 10 of 59.9 ms",
            "warning",
            "10.0 ms of each 59.9 ms step (17 %)",
            saves_ms=10.0,
            **_MANY,
        ),
        quiet("visiting the batch takes 2 of 52 ms", times_ms={"h2d": 2.0}),
        looks_alike("a hook of your own takes it", **_MANY, hooks={("Net", "on_after_batch_transfer"): 9.9}),
        looks_alike("its tensors take long", **_MANY, run={"batch.objects": 3}),
        looks_alike("a GPU gets the batch", **_MANY, run={"device.type": "cuda"}),
        not_evaluated("five steps are steady", "5 steady steps", **_MANY, steady=5),
    )

    def part(self, metrics: Metrics) -> Share | None:
        """The whole phase, where nothing else is in it."""
        objects = metrics.condition("batch.objects")
        few = isinstance(objects, int) and objects < self.least_objects
        return super().part(metrics) if metrics.is_cpu_only and not metrics.transfer_hooks and not few else None

    def judge(self, metrics: Metrics, found: Cost) -> Finding:
        objects = metrics.condition("batch.objects")
        return self.finding(
            subject="batch",
            summary=f"Visiting each Python object of the batch takes {found}, although a CPU run moves nothing.",
            advice=(
                "Return a few tensors from collate_fn instead of lists and tuples of numbers: Lightning visits every "
                "object of a batch to find tensors to move."
            ),
            evidence=(
                self.evidence("least_ratio", found.ratio, "visiting the batch, share of the step"),
                self.fact("visiting the batch, per step", found.ms, "ms"),
                self.evidence("least_objects", objects, "objects in the first batch")
                if isinstance(objects, int)
                else None,
            ),
            cost=found,
            confidence=0.85 if isinstance(objects, int) else 0.5,
            explains=claims.BATCH_TRANSFER,
        )
