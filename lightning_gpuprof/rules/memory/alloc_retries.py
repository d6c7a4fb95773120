"""Allocations failed at first: the allocator waited for the GPU, freed all cached memory and tried again.

## What it means
The GPU has no memory left for a new segment. torch then frees every cached segment, which waits for the device, and
requests new ones in the following steps. One retry can take as long as many steps, and an out-of-memory error is next.

## How it is measured
The rise of the allocator's counter `num_alloc_retries` over steady steps. The cost is known if a trace window has calls
such as cudaMalloc and cudaFree in the device's idle time; its lower bound can make it worse.

## When it is wrong
- Retries before the run was steady, and after the last reading, are not counted.

## What to do
Let segments grow (`expandable_segments:True`), or need less: a smaller batch with accumulation. Emptying the cache by
hand makes it worse: that is what a retry does.
"""

from lightning_gpuprof.rules.base import Finding, Metrics, counted, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.memory.advice import growing_segments, smaller_batch
from lightning_gpuprof.rules.memory.memory_rule import AllocatorCallsRule, DeviceMemory, retries

_RETRIES = {"retries_steady_count": 12}
_ONE = {"retries_steady_count": 1}
_GROWING = {"allocator.settings": "expandable_segments:True"}


class AllocRetries(AllocatorCallsRule):
    id = "alloc-retries"
    title = "Memory allocations are retried"
    specialises = ("cudamalloc-steady", "empty-cache-in-loop", "gpu-gaps")

    least_count: int = threshold(1, source="heuristic: any in steady steps")
    warning_per_step: float = threshold(0.01, source="heuristic: one in a hundred steps")

    examples = (
        fires("12 retries in 380 steps", "warning", "expandable_segments:True", allocator=_RETRIES),
        fires("segments grow already", "warning", "batch_size=16", allocator=_RETRIES, run=_GROWING),
        fires("their cost is known", "critical", "1 allocation", allocator=_ONE, idle={"allocator": 0.3}),
        quiet("there are none", allocator={}),
        looks_alike("retries were before the run was steady", allocator={"retries_count": 5}),
        not_evaluated("retries were not counted", "were not counted", allocator={"retries_steady_count": None}),
    )

    def judge(self, metrics: Metrics, memory: DeviceMemory) -> Finding | None:
        steps = memory.steady_steps or 0
        count, ratio = retries(memory), memory.peak_ratio
        if count < self.least_count:
            return None
        full = "" if ratio is None else f" At the peak, {percent(ratio)} of {memory.name} was reserved."
        (setting, grow), (smaller, fewer) = growing_segments(metrics), smaller_batch(metrics)
        return self.of_calls(
            metrics,
            memory,
            "warning" if count / steps >= self.warning_per_step else "info",
            subject=memory.name,
            summary=f"{counted(count, 'allocation')} in {counted(steps, 'steady step')} failed until torch freed its "
            f"cached memory.{full}",
            advice=f"Before the start, set {setting}. If that is not enough: {smaller}"
            if setting
            else f"Use less memory (expandable segments are already on): {smaller}",
            change=grow or fewer,
            evidence=(self.evidence("least_count", count, "retries"),),
            confidence=0.9,
        )
