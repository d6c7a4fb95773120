"""The run trains on a MIG device: a slice of a GPU with a part of its multiprocessors, memory and bandwidth.

## What it means
Peak rates in data sheets are those of the whole board. Power, clocks and heat are shared with other slices, and most
drivers do not report them for one slice, so the rules about clocks cannot judge.

## How it is measured
The UUID of the device that the run uses (NVML). A hint, without a gain.

## When it is wrong
- Drivers that do not say whether a GPU is partitioned: not evaluated.

## What to do
Compare times only with runs on the same kind of slice; take a larger slice or a whole GPU if this one is full.
"""

from lightning_gpuprof.rules.base import Finding, Metrics, MissingSignal, gib, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.hardware.gpu_rule import Gpu, GpuRule

_NOT_TOLD = {
    "utilization_ratio": "utilization",
    "sm_clock_mhz": "clocks",
    "power_w": "power",
    "temperature_c": "temperature",
}

_SLICE = {"uuid": "MIG-1", "facts": {"mig": True, "memory_total_bytes": 2**34}, "values": dict.fromkeys(_NOT_TOLD)}


class MigSlice(GpuRule):
    id = "mig-slice"
    title = "The run trains on a MIG slice of a GPU"

    least_slices: int = threshold(1, source="heuristic: any")

    examples = (
        fires("the device is a slice of 16 GiB", "info", "a slice of 16 GiB", gpu=_SLICE),
        quiet("the device is a whole GPU", gpu={}),
        looks_alike("a partitioned GPU is used as a whole", gpu={"facts": {"mig": True}}),
        not_evaluated("nothing is known of it", "is partitioned", gpu={"uuid": "", "facts": {"mig": None}}),
    )

    def judge(self, metrics: Metrics, gpu: Gpu) -> Finding | None:
        device = gpu.device
        if device.facts.mig is None and not device.uuid:
            raise MissingSignal("whether the GPU is partitioned was not measured")
        if not device.uuid.startswith("MIG-"):
            return None
        total = device.facts.memory_total_bytes
        size = "" if total is None else f" of {gib(total)}"
        absent = [words for name, words in _NOT_TOLD.items() if device.values.get(name) is None]
        unknown = f" Not reported for a slice: {', '.join(absent)}." if absent else ""
        return self.finding(
            subject=device.title,
            summary=f"The run trains on {device.title}, a slice{size}: the board's peak rates do not apply.{unknown}",
            advice="Compare times only with runs on the same kind of slice. To list the slices: `nvidia-smi -L`.",
            evidence=(self.evidence("least_slices", 1, "MIG slices"), self.fact("MIG device", device.uuid)),
        )
