"""Tells that the run trains on a slice of a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.report import Device
from lightning_gpuprof.rules.base import MissingSignal, threshold
from lightning_gpuprof.rules.hardware import gpus

_NOT_TOLD = {
    "utilization_ratio": "utilization",
    "sm_clock_mhz": "clocks",
    "power_w": "power",
    "temperature_c": "temperature",
}


@dataclass(frozen=True, kw_only=True)
class MigSlice(gpus.GpuRule):
    """The run trains on a MIG device: a slice of a GPU with a part of its multiprocessors, memory and bandwidth.

    ## What it means

    The peaks of the data sheet are those of the whole board. Power, clocks and heat are shared with the other slices,
    and most drivers do not give them for one of them, so the rules about clocks cannot judge.

    ## How it is measured

    The UUID of the device that the run uses (NVML). A hint, without a gain.

    ## When it is wrong

    - A partitioned board that is used as a whole is no slice.
    - Drivers that do not tell whether a GPU is partitioned: not evaluated.

    ## What to do

    Hold times against runs on the same kind of slice only; take a larger slice or a whole GPU if this one is full.

    ## Example

    "The run trains on NVIDIA H200 MIG 1g.18gb (gpu0), a slice of 16 GiB."
    """

    id = "mig-slice"

    least_slices: int = threshold(1, source="the rule catalogue: any")

    def judge(self, metrics: Metrics, device: Device) -> Finding | None:
        """Judge the device."""
        if device.uuid.startswith("MIG-"):
            total = device.facts.memory_total_bytes
            size = "" if total is None else f" of {gpus.gib(total)}"
            absent = [words for name, words in _NOT_TOLD.items() if device.values.get(name) is None]
            unknown = f" Not told for a slice: {', '.join(absent)}." if absent else ""
            return self.finding(
                severity="info",
                subject=gpus.title(device),
                summary=f"The run trains on {gpus.title(device)}, a slice{size}: the board's peak rates are not its "
                f"own.{unknown}",
                advice="Compare times with runs on the same kind of slice only; nvidia-smi -L names the slices that "
                "there are.",
                evidence=(self.evidence("least_slices", device.uuid, "MIG device"),),
            )
        if device.facts.mig is None and not device.uuid:
            raise MissingSignal("whether the GPU is partitioned was not measured")
        return None
