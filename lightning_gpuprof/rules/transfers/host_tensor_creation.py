"""Finds tensors that the model makes on the host and copies to the device in every step."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import threshold
from lightning_gpuprof.rules.transfers.device_waits import CostlyWaits, WaitRule, times
from lightning_gpuprof.rules.wording import listed


@dataclass(frozen=True, kw_only=True)
class HostTensorCreation(WaitRule):
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

    id = "host-tensor-creation"
    cause = "host tensor"
    explains = claims.TENSORS_OF_THE_HOST
    counted = "copies"

    least_per_step: float = threshold(2.0, source="the catalogue: at least two per step")
    least_ratio: float = threshold(0.05, source="heuristic, as for sync-points")

    def summary(self, found: CostlyWaits) -> str:
        """How often tensors are copied."""
        return (
            f"Tensors are copied from the host to the device {times(found.per_step)} per step within the model: the "
            f"host waits for each, and {found.idle_words}"
        )

    def advice(self, metrics: Metrics, found: CostlyWaits) -> str:
        """Where to make them on the device."""
        places = list(dict.fromkeys(wait.where for wait in found.waits))[:3]
        return (
            f"Make what is copied at {listed(places)} on the device: torch.zeros(..., device=self.device); or "
            "once, if it is constant: self.register_buffer(name, tensor)."
        )
