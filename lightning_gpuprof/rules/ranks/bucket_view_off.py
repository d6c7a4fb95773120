"""DDP keeps each gradient twice and copies between the two.

## What it means
Without `gradient_as_bucket_view=True`, each gradient exists beside its copy in a DDP bucket. With it, gradients are
views of the buckets: no copies, and half the memory for gradients.

## How it is measured
From the run's conditions: DDP with several ranks on devices, the setting is off, and the gradients (as many bytes as
the trained parameters) are at least 5 % of the device's memory. As this is a setting, it is information without a gain.

## When it is wrong
A loop that calls `.detach_()` on gradients fails with it; torch says so.

## What to do
`Trainer(strategy=DDPStrategy(gradient_as_bucket_view=True))`.
"""

from lightning_gpuprof.rules.base import BaseRule, Change, Finding, Metrics, MissingSignal, gib, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet

_COPIES = {
    "device.type": "cuda",
    "device.memory_bytes": 40 * 2**30,
    "trainer.world_size": 4,
    "trainer.strategy": "DDPStrategy",
    "trainer.gradient_as_bucket_view": False,
    "model.parameter_bytes": 5 * 2**30,
    "model.parameters": 1000,
    "model.trainable_parameters": 1000,
}
_VIEWS = Change(
    remove=('Trainer(..., strategy="ddp")',),
    add=("Trainer(..., strategy=DDPStrategy(gradient_as_bucket_view=True))",),
)


class BucketViewOff(BaseRule):
    id = "bucket-view-off"
    title = "DDP stores each gradient twice"
    needs = "ranks"

    least_ratio: float = threshold(0.05, source="heuristic: memory that a larger batch could use")

    examples = (
        fires("5 GiB of gradients are copied on 40 GiB", "info", "5 GiB of gradients twice, 12 %", run=_COPIES),
        quiet("gradients are views", run={**_COPIES, "trainer.gradient_as_bucket_view": True}),
        quiet("there is one rank", run={**_COPIES, "trainer.world_size": 1}),
        quiet("the strategy is FSDP", run={**_COPIES, "trainer.strategy": "FSDPStrategy"}),
        looks_alike("the model is on the CPU", run={**_COPIES, "device.type": "cpu"}),
        not_evaluated("the memory is not known", "memory", run={**_COPIES, "device.memory_bytes": None}),
        not_evaluated("the strategy is not known", "strategy", run={**_COPIES, "trainer.strategy": None}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        if not metrics.is_distributed or metrics.is_cpu_only:
            return None
        strategy = metrics.condition("trainer.strategy")
        if strategy is None:
            raise MissingSignal("the strategy of the trainer is not known")
        if strategy != "DDPStrategy" or metrics.condition("trainer.gradient_as_bucket_view") is True:
            return None
        memory, gradients = metrics.positive("device.memory_bytes"), _gradient_bytes(metrics)
        if memory is None or gradients is None:
            raise MissingSignal("the size of the model or of the device's memory is not known")
        ratio = gradients / memory
        if ratio < self.least_ratio:
            return None
        return self.finding(
            subject="DDPStrategy",
            summary=f"DDP holds {gib(gradients)} of gradients twice, {percent(ratio)} of the device's memory, and "
            "copies them in every step.",
            advice=f"Let gradients be views of the buckets: {_VIEWS.added[0]}. It frees {gib(gradients)}.",
            change=_VIEWS,
            evidence=(
                self.evidence("least_ratio", ratio, "gradients, share of the device's memory"),
                self.fact("gradients", gradients, "bytes"),
                self.fact("memory of the device", memory, "bytes"),
            ),
            confidence=0.8,
        )


def _gradient_bytes(metrics: Metrics) -> float | None:
    total, parameters = metrics.number("model.parameter_bytes"), metrics.number("model.parameters")
    trained = metrics.number("model.trainable_parameters")
    return None if total is None or trained is None or not parameters else total * trained / parameters
