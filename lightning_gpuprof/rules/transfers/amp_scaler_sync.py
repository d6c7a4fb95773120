"""Finds that the gradient scaler of 16-bit training makes the host wait for the device before each optimizer step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, condition, gain, severity, threshold
from lightning_gpuprof.rules.launches.device_idle import confidence, remark, step_evidence
from lightning_gpuprof.rules.steps.fused_update import FUSED
from lightning_gpuprof.rules.transfers.device_waits import costly_waits, times


@dataclass(frozen=True, kw_only=True)
class AmpScalerSync(BaseRule):
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

    id: ClassVar[str] = "amp-scaler-sync"

    least_per_step: float = threshold(0.5, source="heuristic: of every second step")
    least_ratio: float = threshold(0.05, source="heuristic, as for sync-points")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the waits of the gradient scaler."""
        found = costly_waits(
            metrics, "gradient scaler", least_per_step=self.least_per_step, least_ratio=self.least_ratio
        )
        if found is None:
            return None
        return self.finding(
            severity=severity(found.lower_ms / found.step.period_ms, metrics.steps.steady_count),
            subject="GradScaler",
            summary=(
                f"The gradient scaler reads a value from the device {times(found.per_step)} per step: the host waits, "
                f"and {found.idle_words}.{remark(found.step)}"
            ),
            advice=_advice(metrics),
            evidence=(
                self.evidence(
                    "least_ratio", found.cost_ms / found.step.period_ms, "idle after waits, share of the step"
                ),
                self.evidence("least_per_step", found.per_step, "waits per step"),
                Evidence(name="precision", value=str(condition(metrics, "trainer.precision"))),
                Evidence(name="host blocked per traced step", value=found.blocked_ms, unit="ms"),
                *step_evidence(found.step),
            ),
            gain=gain(found.cost_ms, found.lower_ms, found.step.period_ms),
            confidence=confidence(found.step),
            explains=claims.WAITS_OF_THE_SCALER,
        )


def _advice(metrics: Metrics) -> str:
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
    known = f" (compute capability {capability})" if capability else " if the device has it (compute capability 8.0)"
    return f'Use bf16{known}, which needs no scaler: Trainer(precision="bf16-mixed").'
