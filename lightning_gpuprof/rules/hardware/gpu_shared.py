"""Finds that other processes use the run's GPU."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.memory import DeviceMemory
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.report import Device
from lightning_gpuprof.rules.base import MissingSignal, possible, threshold
from lightning_gpuprof.rules.hardware import gpus

_LOOK = "nvidia-smi --query-compute-apps=gpu_bus_id,pid,name,used_memory --format=csv"


@dataclass(frozen=True, kw_only=True)
class GpuShared(gpus.GpuRule):
    """Other processes hold memory of the GPU that this run trains on.

    ## What it means

    Two programs on one GPU take turns: each step may take longer by what the other one computes, the memory that the
    other holds is missing here, and the times of this run say little. Often it is a notebook or a run that died without
    letting go.

    ## How it is measured

    The driver (NVML) lists the processes with a context on the GPU in every tenth sample; ours and our children are
    taken off. In half of the readings at least one other is there, and in the median they hold 1 GiB at least: then it
    is a warning. Small contexts, as those of monitors, are no finding. How much the others compute is not measured, so
    there is no gain.

    In a container the driver's process ids cannot be told from ours. Then the memory in use on the GPU is held against
    what torch has reserved: 4 GiB and a tenth of the GPU more than that is information, as NCCL or another library of
    this run may hold it.

    ## When it is wrong

    - A process that only holds memory and does not compute slows nothing down.
    - Several ranks of this run on one GPU, which is a mistake of its own.
    - Neither process ids nor torch's allocator known: not evaluated.

    ## What to do

    End what is left over, or move one of them; partition the GPU (MIG) if both must stay.

    ## Example

    "1 process that is not of this run holds 5 GiB of NVIDIA H200 (gpu0)."
    """

    id = "gpu-shared"

    least_bytes: int = threshold(2**30, source="the rule catalogue: 1 GiB")
    least_readings: int = threshold(2, source="heuristic: one reading may meet a process that is about to end")
    least_unknown_bytes: int = threshold(
        4 * 2**30, source="heuristic: contexts, NCCL and libraries of one process hold less"
    )
    least_unknown_ratio: float = threshold(0.10, source="heuristic: of the GPU's memory")

    def judge(self, metrics: Metrics, device: Device) -> Finding | None:
        """Judge the processes of a GPU."""
        if gpus.slow_readings(device) < self.least_readings:
            raise MissingSignal(f"{device.samples} samples were taken, too few to tell who uses the GPU")
        processes = gpus.median(device, "foreign_processes_count")
        others = gpus.median(device, "memory_others_bytes")
        if processes is not None and others is not None:
            if processes < 1 or others < self.least_bytes:
                return None
            return self._of_others(device, round(processes), others)
        if processes == 0:
            return None
        return self._unaccounted(metrics, device)

    def _of_others(self, device: Device, processes: int, others: float) -> Finding:
        holds = "process that is not of this run holds" if processes == 1 else "processes that are not of this run hold"
        return self.finding(
            severity="warning",
            subject=gpus.title(device),
            summary=f"{processes} {holds} {gpus.gib(others)} of {gpus.title(device)}: its times are not those of this "
            "run alone.",
            advice=f"End or move {'it' if processes == 1 else 'them'}, and measure again; to see who it is: {_LOOK}. "
            "If both must stay, partition the GPU (MIG).",
            evidence=(
                Evidence(name="processes of others", value=processes, limit=1, source="heuristic"),
                self.evidence("least_bytes", others, "memory of others", "bytes"),
            ),
            confidence=0.9,
        )

    def _unaccounted(self, metrics: Metrics, device: Device) -> Finding | None:
        memory = gpus.allocator_of(metrics, device)
        used, total = gpus.largest(device, "memory_used_bytes"), device.facts.memory_total_bytes
        reserved = None if memory is None else _reserved(memory)
        if used is None or reserved is None or total is None or not possible(total):
            raise MissingSignal("the driver's process ids cannot be told from ours, and torch's allocator was not read")
        rest = used - reserved
        if rest < max(self.least_unknown_bytes, self.least_unknown_ratio * total):
            return None
        return self.finding(
            severity="info",
            subject=gpus.title(device),
            summary=f"{gpus.gib(used)} of {gpus.title(device)} are in use, and torch has reserved {gpus.gib(reserved)} "
            f"of them: who holds {gpus.gib(rest)} cannot be told from inside this container.",
            advice=f"Ask on the machine itself: {_LOOK}. Only this run should be on {gpus.place(device)}.",
            evidence=(
                self.evidence(
                    "least_unknown_bytes",
                    rest,
                    "memory that torch has not reserved",
                    "bytes",
                    limit=max(self.least_unknown_bytes, self.least_unknown_ratio * total),
                ),
            ),
            confidence=0.4,
        )


def _reserved(memory: DeviceMemory) -> float | None:
    reserved = memory.reserved_peak_bytes
    return reserved if reserved is not None and possible(reserved) else None
