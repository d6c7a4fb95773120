"""float16 with a gradient scaler runs on a GPU that has bfloat16 at the same speed.

## What it means
float16 needs a gradient scaler: it multiplies the loss, looks through all gradients for overflow, and reads the answer
back to the host before each optimizer step, which waits for the device. bfloat16 has the range of float32 and needs
none.

## How it is measured
From the conditions: `precision="16-mixed"` and a compute capability of 8.0 (Ampere) or more. It is information only:
trace windows show what the scaler's wait costs (`amp-scaler-sync`).

## When it is wrong
- bfloat16 has fewer digits: a few models (some GANs, regression to high precision) need float16 or float32.

## What to do
`Trainer(precision="bf16-mixed")`.
"""

from lightning_gpuprof.model.signals import capability
from lightning_gpuprof.rules.base import BaseRule, Change, Finding, Metrics, MissingSignal, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet

_SCALED = {"device.type": "cuda", "trainer.precision": "16-mixed", "device.capability": "9.0"}


class Precision16OnAmpere(BaseRule):
    id = "precision-16-on-ampere"
    title = "bfloat16 would need no gradient scaler"
    needs = "gpu"

    least_capability: float = threshold(8.0, source="NVIDIA: bfloat16 tensor cores from compute capability 8.0 on")

    examples = (
        fires("float16 runs on a GPU of capability 9.0", "info", 'precision="bf16-mixed"', run=_SCALED),
        fires("its capability is 8.0", "info", "bf16-mixed", run={**_SCALED, "device.capability": "8.0"}),
        fires("its capability is 12.0", "info", "bf16-mixed", run={**_SCALED, "device.capability": "12.0"}),
        quiet("the GPU has no bfloat16", run={**_SCALED, "device.capability": "7.5"}),
        quiet("the model runs in bfloat16", run={**_SCALED, "trainer.precision": "bf16-mixed"}),
        quiet("the model runs in float32", run={**_SCALED, "trainer.precision": "32-true"}),
        looks_alike("weights are float16: no scaler", run={**_SCALED, "trainer.precision": "16-true"}),
        looks_alike("the model runs on a CPU", run={**_SCALED, "device.type": "cpu"}),
        not_evaluated("the precision is not known", "precision", run={**_SCALED, "trainer.precision": None}),
        not_evaluated("the capability is not known", "capability", run={**_SCALED, "device.capability": None}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        precision, device = metrics.condition("trainer.precision"), metrics.condition("device.type")
        if precision is None or device is None:
            raise MissingSignal("the precision or the device of the run is not known")
        if device != "cuda" or str(precision) not in ("16-mixed", "16"):
            return None
        of_device = capability(metrics)
        if of_device is None or metrics.condition("version.hip") is not None:
            raise MissingSignal("the compute capability of the device is not known")
        if of_device < self.least_capability:
            return None
        change = Change(call="Trainer", arguments={"precision": "bf16-mixed"}, before={"precision": precision})
        return self.finding(
            subject=f"precision={precision}",
            summary="The gradient scaler of float16 checks all gradients and waits for the GPU in each optimizer step.",
            advice=(
                f'Use bfloat16: Trainer(precision="{change.arguments["precision"]}"). It needs no scaler and is as '
                f"fast on a GPU of compute capability {of_device}. Some models need the finer precision of float16."
            ),
            evidence=(self.evidence("least_capability", of_device, "compute capability"),),
            confidence=0.8,
            change=change,
        )
