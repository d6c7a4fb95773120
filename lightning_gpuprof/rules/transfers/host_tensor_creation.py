"""Finds tensors that the model makes on the host and copies to the device in every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, gain, severity, threshold
from lightning_gpuprof.rules.launches.device_idle import confidence, remark, step_evidence
from lightning_gpuprof.rules.transfers.device_waits import costly_waits, times
from lightning_gpuprof.rules.wording import listed


@dataclass(frozen=True, kw_only=True)
class HostTensorCreation(BaseRule):
    """In every step the model makes tensors on the host and copies them to the device, which makes the host wait.

    ## What it means

    `torch.tensor([...], device="cuda")`, `torch.zeros(n).to(x.device)` or indexing with a Python list inside of
    forward, backward or the optimizer copies pageable memory: the host waits until the copy is done, which is queued
    behind all earlier work of the device.

    ## How it is measured

    As `sync-points`, for copies of pageable memory to the device within the model's own phases: the idle time of the
    device that begins during the wait, and of that no more than the host was blocked, per step. At least two such
    copies per step that cost 5 % of the period together.

    ## When it is wrong

    - Traces of ROCm do not tell pageable from pinned memory; there, all copies that wait count.
    - If another place waits in every step, too, the wait moves there. `sync-points` names such places.

    ## What to do

    Make constants once (`self.register_buffer`), others on the device (`torch.zeros(n, device=x.device)`), and move
    what depends on the data into the batch.

    ## Example

    "Make what is copied at net.py(20): forward on the device: torch.zeros(..., device=self.device), or once:
    self.register_buffer"
    """

    id: ClassVar[str] = "host-tensor-creation"

    least_per_step: float = threshold(2.0, source="the catalogue: at least two per step")
    least_ratio: float = threshold(0.05, source="heuristic, as for sync-points")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge copies from the host within the model's phases."""
        found = costly_waits(metrics, "host tensor", least_per_step=self.least_per_step, least_ratio=self.least_ratio)
        if found is None:
            return None
        places = list(dict.fromkeys(wait.where for wait in found.waits))[:3]
        return self.finding(
            severity=severity(found.lower_ms / found.step.period_ms, metrics.steps.steady_count),
            subject=found.worst.where,
            summary=(
                f"Tensors are copied from the host to the device {times(found.per_step)} per step within the model: "
                f"the host waits for each, and {found.idle_words}.{remark(found.step)}"
            ),
            advice=(
                f"Make what is copied at {listed(places)} on the device: torch.zeros(..., device=self.device); or "
                "once, if it is constant: self.register_buffer(name, tensor)."
            ),
            evidence=(
                self.evidence(
                    "least_ratio", found.cost_ms / found.step.period_ms, "idle after waits, share of the step"
                ),
                self.evidence("least_per_step", found.per_step, "copies per step"),
                Evidence(name="host blocked per traced step", value=found.blocked_ms, unit="ms"),
                *step_evidence(found.step),
            ),
            gain=gain(found.cost_ms, found.lower_ms, found.step.period_ms),
            confidence=confidence(found.step),
            explains=claims.TENSORS_OF_THE_HOST,
        )
