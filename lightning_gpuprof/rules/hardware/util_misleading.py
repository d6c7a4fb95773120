"""The utilization is high, but most of the GPU's SMs are idle.

## What it means
The driver's utilization is the share of time in which any kernel ran, even a single block on one of a hundred SMs. It
says that the host keeps up, not that the GPU is full.

## How it is measured
The median utilization (NVML) in 20 distinct samples, beside the share of active multiprocessors: by the GPU's counters
(GPM, Hopper and later; 95 % upper bound of the mean), else estimated from the kernels of a trace window. Information:
what a fuller GPU gains depends on the kernels.

## When it is wrong
- Kernels that wait for memory may run at full speed with half of the multiprocessors.

## What to do
Give each kernel more work: a larger batch, fused kernels (`torch.compile`), fewer small operators.
"""

from lightning_gpuprof.model.missing import MissingSignal, measured
from lightning_gpuprof.model.report import Device
from lightning_gpuprof.rules.base import Advice, Finding, Metrics, gib, percent, setting, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.hardware.gpu_rule import Gpu, GpuRule


class UtilMisleading(GpuRule):
    id = "util-misleading"
    title = "Most of the GPU's SMs are idle"

    full_ratio: float = threshold(0.90, source="heuristic: a utilization that looks full")
    active_ratio: float = threshold(0.50, source="DCGM: SM activity below 0.5 is ineffective use of the GPU")
    least_s: float = threshold(5.0, source="the method: a window of 5 s for what NVML averages")

    examples = (
        fires("a fifth of it works", "info", "batch_size=64 instead of 32", gpu={"values": {"sm_active_ratio": 0.2}}),
        quiet("most of it works", gpu={}),
        looks_alike("the GPU waits for the host", gpu={"values": {"sm_active_ratio": 0.2, "utilization_ratio": 0.4}}),
        not_evaluated("there are no counters", "neither the activity", gpu={"values": {"sm_active_ratio": None}}),
    )

    def judge(self, metrics: Metrics, gpu: Gpu) -> Finding | None:
        device, utilization = gpu.device, measured(gpu.utilization).median
        metrics.require_steady()
        if not metrics.wall.parts.get("train", 0.0) >= self.least_s:
            raise MissingSignal(f"the run took less than {self.least_s:.0f} s")
        if utilization < self.full_ratio:
            return None
        active = measured(gpu.active)
        if active.upper_ratio >= self.active_ratio:
            return None
        return self.finding(
            subject=device.title,
            summary=f"{device.title} reports {percent(utilization)} utilization, but only {percent(active.ratio)} of "
            f"its SMs are active ({active.source}).",
            advice=_advice(metrics, device),
            evidence=(
                self.evidence("active_ratio", active.ratio, "active multiprocessors"),
                self.evidence("full_ratio", utilization, "utilization"),
            ),
            confidence=0.8,
        )


def _advice(metrics: Metrics, device: Device) -> Advice:
    size = metrics.batch_size
    total, used = device.facts.memory_total_bytes, device.largest("memory_used_bytes")
    batch, change = "Try a larger batch if it suits the model", None
    if size and total is not None and used is not None and used <= 0.5 * total:
        batch = f"Try batch_size={2 * size} instead of {size}: {gib(total - used)} of memory are free"
        change = setting("DataLoader", batch_size=(size, 2 * size))
    eager = metrics.condition("compile.state") in (None, "none")
    fused = " Or fuse small kernels: torch.compile(model)." if eager else ""
    return f"{batch}.{fused} A trace window shows which kernels are too small: GpuProfiler(windows=[...]).", change
