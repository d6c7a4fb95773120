"""Steady steps return memory segments to the device and request them again: something empties the cache.

## What it means
`torch.cuda.empty_cache()` calls cudaFree for every unused segment, which waits for the device, and the next step pays
for cudaMalloc. It frees no memory that tensors hold, and torch frees its cache by itself when it has to.

## How it is measured
Over steady steps the allocator's counters of cudaFree and cudaMalloc both rise, without retries: then only a call
returns segments. If a trace window shows these calls in the device's idle time, that share can make it worse.

## When it is wrong
- `garbage_collection_threshold` in PYTORCH_CUDA_ALLOC_CONF returns segments, too: then this rule is silent.
- A library may make the call; a trace window with stacks shows the line.

## What to do
Remove the call, or make it once before validation, where sizes change.
"""

from lightning_gpuprof.rules.base import Change, Finding, Metrics, counted, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.memory.advice import settings
from lightning_gpuprof.rules.memory.memory_rule import AllocatorCallsRule, DeviceMemory, allocs, frees, retries

_COLLECTS = "garbage_collection_threshold"
_EMPTIED = {"device_allocs_steady_count": 1500, "device_frees_steady_count": 1520}


class EmptyCacheInLoop(AllocatorCallsRule):
    id = "empty-cache-in-loop"
    title = "Training empties the CUDA memory cache"
    specialises = ("cudamalloc-steady", "gpu-gaps")

    least_per_step: float = threshold(0.1, source="heuristic: one in ten steps")
    warning_per_step: float = threshold(1.0, source="heuristic: each step waits for the device")

    examples = (
        fires("4 segments a step come and go", "warning", "Remove torch.cuda.empty_cache()", allocator=_EMPTIED),
        quiet("none do", allocator={}),
        looks_alike("allocations are retried", allocator={**_EMPTIED, "retries_steady_count": 4}),
        looks_alike("a setting returns them", allocator=_EMPTIED, run={"allocator.settings": f"{_COLLECTS}:0.8"}),
        not_evaluated("calls were not counted", "cudaFree", allocator={"device_frees_steady_count": None}),
    )

    def judge(self, metrics: Metrics, memory: DeviceMemory) -> Finding | None:
        steps = memory.steady_steps or 0
        returned, taken, retried = frees(memory), allocs(memory), retries(memory)
        if retried or min(returned, taken) <= self.least_per_step * steps or _COLLECTS in settings(metrics):
            return None
        return self.of_calls(
            metrics,
            memory,
            "warning" if returned >= self.warning_per_step * steps else "info",
            subject=memory.name,
            summary=f"{counted(steps, 'steady step')} returned {counted(returned, 'segment')} to {memory.name} and "
            f"requested {taken:,} again, although memory was not short: something empties the cache.",
            advice="Remove torch.cuda.empty_cache() from the training loop and its callbacks. torch frees cached "
            "memory by itself when an allocation needs it.",
            change=Change(remove=("torch.cuda.empty_cache()",)),
            evidence=(
                self.evidence("least_per_step", returned / steps, "cudaFree per step"),
                self.evidence("least_per_step", taken / steps, "cudaMalloc per step"),
                self.fact("retries", retried),
            ),
            confidence=0.8,
        )
