"""The gradient scaler checks in every step whether a gradient overflowed, and the GPU then idles.

## What it means
With `precision="16-mixed"`, `GradScaler.step` reads one value per device from the GPU before it calls the optimizer:
the host waits until the backward pass is done. `bf16-mixed` has the range of fp32 and needs no scaler; an optimizer
with `fused=True` reads the value on the GPU.

## How it is measured
As `sync-points`, for values that are read in Lightning's `optimizer_step`, but not in the optimizer itself, with a
`trainer.precision` that begins with 16.

## When it is wrong
- A value that your own `optimizer_step` reads counts here.
- If another place waits in every step, too, the wait moves there: see `sync-points`.

## What to do
`Trainer(precision="bf16-mixed")` from compute capability 8.0 on; before, `fused=True` without gradient clipping.
"""

from lightning_gpuprof.model.signals import FUSED
from lightning_gpuprof.rules.base import Change, Evidence, Metrics, Value, claims, setting, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, quiet
from lightning_gpuprof.rules.transfers.wait_rule import UNTRACED, HostWaits, WaitRule, idle_words, times


def _scaled(us: float = 2000.0, reads: str = "scaler", run: dict[str, Value] | None = None) -> dict[str, object]:
    """A run of an example: 10 ms of kernels; a value is read, and then the host takes a while."""
    return {"step": {"kernels": 100, "reads": {reads: us}}, "run": {"trainer.precision": "16-mixed", **(run or {})}}


_CLIP = "trainer.gradient_clip_val"
_OLD: dict[str, Value] = {"device.capability": "7.0"}


class AmpScalerSync(WaitRule):
    id = "amp-scaler-sync"
    title = "The gradient scaler waits for the GPU"
    cause = "gradient scaler"
    explains = claims.WAITS_OF_THE_SCALER

    least_per_step: float = threshold(0.5, source="heuristic: of every second step")
    least_ratio: float = threshold(0.05, source="heuristic, as for sync-points")

    examples = (
        fires("the GPU has bf16", "warning", "bf16-mixed", saves_ms=2, **_scaled(run={"device.capability": "9.0"})),
        fires("it has none", "warning", "fused=True", lacks="bf16-mixed", **_scaled(run=_OLD)),
        fires("gradients are clipped", "warning", "clip_val", **_scaled(run={**_OLD, _CLIP: 1.0})),
        fires("RMSprop cannot be fused", "warning", "does not", **_scaled(run={**_OLD, "model.optimizer": "RMSprop"})),
        fires("the host takes 0.65 ms", "info", "gradient scaler", **_scaled(650)),
        quiet("the host takes 0.4 ms", **_scaled(400)),
        quiet("the next launch follows at once", **_scaled(0)),
        looks_alike("there is no scaler", **_scaled(run={"trainer.precision": "bf16-mixed"})),
        looks_alike("the optimizer reads the value", **_scaled(reads="optimizer")),
        *UNTRACED,
    )

    def subject(self, found: HostWaits) -> str:
        return "GradScaler"

    def summary(self, found: HostWaits) -> str:
        often = f"The gradient scaler reads a value from the GPU {times(found.per_step)} per step"
        return f"{often}. The host waits for it, and {idle_words(found)}"

    def beside(self, metrics: Metrics) -> Evidence | None:
        return self.fact("precision", str(metrics.condition("trainer.precision")))

    def advice(self, metrics: Metrics, found: HostWaits) -> str:
        change, optimizer = self.change(metrics, found), metrics.condition("model.optimizer")
        if change is None:
            return (
                "Use an optimizer that reads the scaler's value on the GPU: Adam, AdamW, SGD or Adagrad with "
                f"fused=True. {optimizer} does not."
            )
        if change.call == "Trainer":
            capability = metrics.condition("device.capability")
            known = f"The GPU has compute capability {capability}" if capability else "It needs compute capability 8.0"
            return f'Train in bf16, which needs no scaler: Trainer(precision="bf16-mixed"). {known}.'
        also = " Lightning does not clip the gradients of fused optimizers: remove gradient_clip_val."
        clips = metrics.condition(_CLIP)
        return f"Let the optimizer read the scaler's value on the GPU: {change.added[0]}.{also if clips else ''}"

    def change(self, metrics: Metrics, found: HostWaits) -> Change | None:
        major = str(metrics.condition("device.capability") or "").split(".", 1)[0]
        if not (major.isdigit() and int(major) < 8):
            return setting("Trainer", precision=(metrics.condition("trainer.precision"), "bf16-mixed"))
        kind = metrics.condition("model.optimizer") or "AdamW"
        return Change(call=f"torch.optim.{kind}", arguments={"fused": True}) if kind in FUSED else None
