"""Finds that NVLinks of a GPU failed during the run."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.device import ErrorCounter
from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.report import Device
from lightning_gpuprof.rules.base import (
    MissingSignal,
    NotApplicable,
    is_distributed,
    possible,
    threshold,
)
from lightning_gpuprof.rules.hardware import gpus


@dataclass(frozen=True, kw_only=True)
class NvlinkDown(gpus.GpuRule):
    """NVLinks of the GPU failed and were brought up again, or transferred so many broken packets that it shows.

    ## What it means

    A link that fails is trained again; until then, and while packets are sent twice, collectives between GPUs wait. It
    is the link that needs care: a cable, a baseboard, a switch.

    ## How it is measured

    The driver's counters over all links that are up (NVML), at the first and last reading of the run. A single recovery
    is a finding, as NVIDIA's health checks have it (DCGM: 1 error). Broken packets (CRC) are a part of normal work
    below 100 a second, and a finding from there on. A warning if several ranks train together, else information.

    ## When it is wrong

    - GPUs without NVLink, and generations whose errors the driver counts elsewhere: not evaluated if several ranks
      train together, else there is nothing to judge.
    - Links that were down before the run are not seen: how many there should be depends on the server.

    ## What to do

    Have the links looked at by whoever runs the server; use another node meanwhile.

    ## Example

    "2 NVLink recoveries on NVIDIA H200 (gpu0) during this run."
    """

    id = "nvlink-down"

    least_recoveries: int = threshold(1, source="DCGM health checks: 1 NVLink error")
    least_crc_per_s: float = threshold(100.0, source="DCGM health checks: CRC errors matter from 100 a second")

    def judge(self, metrics: Metrics, device: Device) -> Finding | None:
        """Judge the links of a GPU."""
        counters = {c.name: c for c in device.errors if possible(c.first) and possible(c.last)}
        recoveries = _risen(counters.get("nvlink_recovery_count"))
        broken = _risen(counters.get("nvlink_crc_count"))
        train_s = metrics.wall.parts.get("train", 0.0)
        if (recoveries is None or broken is None) and not is_distributed(metrics):
            raise NotApplicable("no errors of NVLinks were counted, and one rank alone hardly uses them")
        if recoveries is None or broken is None or not (possible(train_s) and train_s > 0):
            raise MissingSignal("no errors of NVLinks were counted")
        crc_per_s = broken / train_s
        if recoveries < self.least_recoveries and crc_per_s < self.least_crc_per_s:
            return None
        recovered = recoveries >= self.least_recoveries
        many = f"{recoveries:,.0f} NVLink {'recovery' if recoveries == 1 else 'recoveries'}"
        return self.finding(
            severity="warning" if is_distributed(metrics) else "info",
            subject=gpus.title(device),
            summary=f"{many if recovered else f'{crc_per_s:,.0f} broken NVLink packets a second'} on "
            f"{gpus.title(device)} during this run.",
            advice=f"Have the links of {gpus.place(device)} looked at (nvidia-smi nvlink -e -i {gpus.place(device)}), "
            "and train on another node meanwhile.",
            evidence=(
                self.evidence("least_recoveries", recoveries, "NVLink recoveries"),
                self.evidence("least_crc_per_s", crc_per_s, "broken NVLink packets", "/s"),
            ),
            confidence=0.9,
        )


def _risen(counter: ErrorCounter | None) -> float | None:
    return None if counter is None else max(0.0, counter.last - counter.first)
