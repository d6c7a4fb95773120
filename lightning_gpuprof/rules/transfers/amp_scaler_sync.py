"""Finds that the gradient scaler of 16-bit training makes the host wait for the device before each optimizer step."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import condition, threshold
from lightning_gpuprof.rules.steps.fused_update import FUSED
from lightning_gpuprof.rules.transfers.device_waits import CostlyWaits, WaitRule, times


@dataclass(frozen=True, kw_only=True)
class AmpScalerSync(WaitRule):
    """The gradient scaler asks in every step whether a gradient overflowed, and the device then has nothing to do.

    ## What it means

    With `precision="16-mixed"`, `GradScaler.step` reads one value per device from the GPU before it calls the
    optimizer: the host waits until the backward pass is done. `bf16-mixed` has the range of 32-bit numbers and needs no
    scaler; an optimizer with `fused=True` takes the value on the device.

    ## How it is measured

    As `sync-points`, for values that are read in Lightning's `optimizer_step`, but not in the optimizer itself, of a
    run whose `trainer.precision` begins with 16: the idle time of the device that begins during the wait, and of that
    no more than the host was blocked, per step. It has to cost 5 % of the period.

    ## When it is wrong

    - A value that the user's own `optimizer_step` reads counts here.
    - If another place waits in every step, too, the wait moves there. `sync-points` names such places.

    ## What to do

    `Trainer(precision="bf16-mixed")` from compute capability 8.0 on; before, `fused=True`, which in Lightning
    excludes gradient clipping.

    ## Example

    "Use bf16, which needs no scaler: Trainer(precision="bf16-mixed")"
    """

    id = "amp-scaler-sync"
    cause = "gradient scaler"
    explains = claims.WAITS_OF_THE_SCALER

    least_per_step: float = threshold(0.5, source="heuristic: of every second step")
    least_ratio: float = threshold(0.05, source="heuristic, as for sync-points")

    def subject(self, found: CostlyWaits) -> str:
        """What waits, wherever it is called."""
        return "GradScaler"

    def summary(self, found: CostlyWaits) -> str:
        """How often the scaler reads a value."""
        return (
            f"The gradient scaler reads a value from the device {times(found.per_step)} per step: the host waits, and "
            f"{found.idle_words}"
        )

    def beside(self, metrics: Metrics) -> tuple[Evidence, ...]:
        """The precision that needs a scaler."""
        return (Evidence(name="precision", value=str(condition(metrics, "trainer.precision"))),)

    def advice(self, metrics: Metrics, found: CostlyWaits) -> str:
        """How to do without, as far as the device can."""
        capability = str(condition(metrics, "device.capability") or "")
        major = capability.split(".", 1)[0]
        if major.isdigit() and int(major) < 8:
            text = f"The device (compute capability {capability}) has no bf16: make the optimizer "
            kind = condition(metrics, "model.optimizer")
            if kind is not None and kind not in FUSED:
                return (
                    f"{text}one of those that take the scaler's value on the device, Adam, AdamW, SGD or Adagrad with "
                    f"fused=True; {kind} does not."
                )
            text += "with fused=True, which takes the scaler's value on the device."
            if condition(metrics, "trainer.gradient_clip_val"):
                text += " Lightning does not clip gradients then: gradient_clip_val has to go."
            return text
        known = (
            f" (compute capability {capability})" if capability else " if the device has it (compute capability 8.0)"
        )
        return f'Use bf16{known}, which needs no scaler: Trainer(precision="bf16-mixed").'
