"""Other processes hold memory of the GPU that this run trains on.

## What it means
Two programs on one GPU take turns: steps may take longer, the other program's memory is missing here, and the times of
this run say little. Often it is a notebook or an old run that was never closed.

## How it is measured
Every tenth sample, the driver (NVML) lists the processes on the GPU; this run and its children are left out. The median
of the readings decides. How much the others compute is not measured, so there is no gain. In a container process ids
are hidden: there, memory beyond what torch reserved is information, as NCCL of this run may hold it.

## When it is wrong
- A process that holds memory without computing slows nothing down.
- Other ranks of the run that put tensors on this GPU count as others: see `rank-memory-imbalance`.

## What to do
End what is left over, or move one of them; partition the GPU (MIG) if both must stay.
"""

from lightning_gpuprof.model.report import Device
from lightning_gpuprof.rules.base import Evidence, Finding, Metrics, MissingSignal, gib, possible, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.hardware.gpu_rule import Gpu, GpuRule

_LOOK = "`nvidia-smi --query-compute-apps=gpu_bus_id,pid,name,used_memory --format=csv`"


def _others(processes: float | None, gib: float | None) -> dict[str, dict[str, float | None]]:
    return {"values": {"foreign_processes_count": processes, "memory_others_bytes": gib and gib * 2**30}}


class GpuShared(GpuRule):
    id = "gpu-shared"
    title = "Other processes use the GPU"

    least_bytes: int = threshold(2**30, source="heuristic: 1 GiB")
    least_readings: int = threshold(2, source="heuristic: one reading may meet a process that is about to end")
    least_unknown_bytes: int = threshold(4 * 2**30, source="heuristic: libraries of one process hold less")
    least_unknown_ratio: float = threshold(0.10, source="heuristic: of the GPU's memory")

    examples = (
        fires("another process holds 5 GiB", "warning", "1 other process holds 5 GiB", gpu=_others(1.0, 5.0)),
        quiet("the run is alone", gpu={}),
        looks_alike("monitors hold small contexts", gpu=_others(2.0, 0.5)),
        looks_alike("the run itself fills the GPU", gpu={"values": {"memory_used_bytes": 139.0 * 2**30}}),
        not_evaluated("it is a container, without an allocator", "ids are not visible", gpu=_others(None, None)),
    )

    def judge(self, metrics: Metrics, gpu: Gpu) -> Finding | None:
        device = gpu.device
        if gpu.slow_readings < self.least_readings:
            raise MissingSignal(f"{device.samples} samples are too few to say who uses the GPU")
        processes, others = device.median("foreign_processes_count"), device.median("memory_others_bytes")
        if processes is None or others is None:
            return None if processes == 0 else self._unaccounted(metrics, device)
        if processes < 1 or others < self.least_bytes:
            return None
        holds, them = ("other process holds", "it") if processes == 1 else ("other processes hold", "them")
        return self.finding(
            severity="warning",
            subject=device.title,
            summary=f"{processes:.0f} {holds} {gib(others)} of {device.title} and may slow this run down.",
            advice=f"End or move {them} and measure again. If both must stay, partition the GPU (MIG). To see who it "
            f"is: {_LOOK}",
            evidence=(
                Evidence(name="other processes", value=round(processes), limit=1, source="heuristic"),
                self.evidence("least_bytes", others, "memory of other processes", "bytes"),
            ),
            confidence=0.9,
        )

    def _unaccounted(self, metrics: Metrics, device: Device) -> Finding | None:
        reserved = next((one.reserved_peak_bytes for one in metrics.memory.devices if one.name == device.subject), None)
        used, total = device.largest("memory_used_bytes"), device.facts.memory_total_bytes
        if used is None or reserved is None or total is None or not (possible(total) and possible(reserved)):
            raise MissingSignal("other process ids are not visible here, and torch's allocator was not read")
        rest, least = used - reserved, max(self.least_unknown_bytes, self.least_unknown_ratio * total)
        if rest < least:
            return None
        return self.finding(
            subject=device.title,
            title="Part of the GPU memory has an unknown owner",
            summary=f"{gib(used)} of {device.title} are in use, but torch reserved only "
            f"{gib(reserved)}. Who holds the other {gib(rest)} is not visible in this container.",
            advice=f"Check on the host that only this run is on {device.place}: {_LOOK}",
            evidence=(self.evidence("least_unknown_bytes", rest, "not reserved by torch", "bytes", limit=least),),
            confidence=0.4,
        )
