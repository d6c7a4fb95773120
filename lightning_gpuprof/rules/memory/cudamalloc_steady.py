"""Long after the start, steps still need new memory segments from the device.

## What it means
If batches are alike, the allocator's cache holds all that a step needs after a few steps. New segments later mean that
sizes change from batch to batch. A cudaMalloc takes from some ten microseconds to milliseconds of host time.

## How it is measured
The rise of the allocator's counter of cudaMalloc over steady steps, without retries, hardly any cudaFree and no growing
memory (`memory-leak`). The cost is known if a trace window has these calls in the device's idle time; the severity
follows from that share, and is information otherwise.

## When it is wrong
- Sequences of many lengths fill the cache slowly: it ends when the longest batches have been seen.
- With expandable segments each step of growth counts, which is cheaper than a new segment.

## What to do
Let segments grow, or make sizes alike: pad to a few lengths, `drop_last=True`.
"""

from lightning_gpuprof.rules.base import Finding, Metrics, MissingSignal, counted, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.memory.advice import growing_segments
from lightning_gpuprof.rules.memory.memory_leak import MemoryLeak
from lightning_gpuprof.rules.memory.memory_rule import AllocatorCallsRule, DeviceMemory, allocs, frees, retries

_NEW = {"device_allocs_steady_count": 190}


class CudamallocSteady(AllocatorCallsRule):
    id = "cudamalloc-steady"
    title = "Steady steps still call cudaMalloc"
    specialises = ("gpu-gaps",)

    least_per_step: float = threshold(0.1, source="heuristic: one in ten steps")

    examples = (
        fires("380 steps take 190 segments", "info", "expandable_segments:True", allocator=_NEW),
        fires("their cost is known", "critical", "190 new", allocator=_NEW, idle={"allocator": 0.3, "launch": 0.1}),
        quiet("the cache serves all", allocator={}),
        looks_alike("allocations are retried", allocator={**_NEW, "retries_steady_count": 3}),
        looks_alike("memory leaks", allocator=_NEW, growth={"bytes_per_step": 2**22}),
        not_evaluated("calls were not counted", "not counted", allocator={"device_allocs_steady_count": None}),
    )

    def judge(self, metrics: Metrics, memory: DeviceMemory) -> Finding | None:
        steps = memory.steady_steps or 0
        taken, retried, returned = allocs(memory), retries(memory), frees(memory)
        limit = self.least_per_step * steps
        if taken <= limit or returned > limit or retried or _grows(metrics):  # the last three are other rules'
            return None
        setting, change = growing_segments(metrics)
        alike = "make batch sizes alike: pad to a few lengths, DataLoader(..., drop_last=True)"
        return self.of_calls(
            metrics,
            memory,
            "info",
            subject=memory.name,
            summary=f"In {counted(steps, 'steady step')}, torch requested {counted(taken, 'new memory segment')} from "
            f"{memory.name} ({taken / steps:.2g} per step) and returned {returned:,}.",
            advice=f"Before the start, set {setting}. Or {alike}" if setting else f"M{alike[1:]}",
            change=change,
            evidence=(self.evidence("least_per_step", taken / steps, "cudaMalloc per step"),),
            confidence=0.8,
        )


def _grows(metrics: Metrics) -> bool:
    try:
        return MemoryLeak().check(metrics) is not None
    except MissingSignal:
        return False
