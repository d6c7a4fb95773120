"""The run ended out of memory, or its tensors nearly filled the GPU.

## What it means
With a slightly longer batch, another allocation of a library or a second process, the next run may end with an
out-of-memory error. If this one did, the finding says what held the memory at that moment.

## How it is measured
The peak of tensors (torch's allocator) plus memory in use beyond torch (NVML: CUDA's context, NCCL, other processes),
over the GPU's memory; critical if the run ended with an out-of-memory error. Memory that is reserved but not given out
does not count: it is freed when something else is needed.

## When it is wrong
- If all batches are alike, the run does not grow, and a full GPU is well used: hence the high limits.
- Without NVML memory outside torch is not known, and the share is too low.

## What to do
Reduce what holds most: activations (a smaller batch with accumulation, recomputation), optimizer state (sharding, 8-bit
states), fragmentation (`expandable_segments:True`).
"""

from lightning_gpuprof.model.code_place import in_words
from lightning_gpuprof.model.memory import OutOfMemory
from lightning_gpuprof.rules.base import BaseRule, Finding, Metrics, gib, listed, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.memory.advice import most_memory
from lightning_gpuprof.rules.memory.memory_rule import memory_use

_END = {"message": "CUDA out of memory.", "phase": "forward", "requested_bytes": 2**31, "other_bytes": 98 * 2**30}


class OomRisk(BaseRule):
    id = "oom-risk"
    title = "GPU memory is nearly full"

    high_ratio: float = threshold(0.92, source="TraceML: 0.92 of the GPU's memory")
    full_ratio: float = threshold(0.97, source="TraceML: 0.97 of the GPU's memory")

    examples = (
        fires("the run ended out of memory", "critical", "batch_size=16", allocator={}, end=_END),
        fires("136 of 140 GiB are needed", "warning", "97 %", allocator={"allocated_gib": 136.0}),
        quiet("the GPU has room", allocator={}),
        looks_alike("the allocator keeps unused memory", allocator={"allocated_gib": 60.0, "reserved_gib": 139.0}),
        not_evaluated("its size is unknown", "size of the GPU's memory", allocator={"total": None}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        if metrics.memory.out_of_memory is not None:
            return self._ended(metrics, metrics.memory.out_of_memory)
        use = memory_use(metrics)
        if use.ratio < self.high_ratio:
            return None
        name, full = use.memory.name, use.ratio >= self.full_ratio
        outside = "" if not use.outside_bytes else f", {gib(use.outside_bytes)} of it outside torch"
        return self.finding(
            severity="warning" if full else "info",
            subject=name,
            summary=f"The peak takes {gib(use.needed_bytes)} of {gib(use.total_bytes)} ({percent(use.ratio)}) of {name}"
            f"{outside}. {gib(max(0.0, use.total_bytes - use.needed_bytes))} are left.",
            advice=most_memory(metrics),
            evidence=(
                self.evidence("full_ratio" if full else "high_ratio", use.ratio, "needed memory, share of the GPU"),
                self.fact("peak of tensors", use.memory.allocated_peak_bytes, "bytes"),
                self.fact("outside torch", use.outside_bytes, "bytes"),
                self.fact("memory of the GPU", use.total_bytes, "bytes"),
            ),
            confidence=0.9 if use.outside_bytes is not None else 0.7,
        )

    def _ended(self, metrics: Metrics, end: OutOfMemory) -> Finding:
        values = (end.requested_bytes, end.device_free_bytes, end.allocated_bytes, end.reserved_bytes)
        requested, free, held, reserved = ("" if value is None else gib(value) for value in values)
        said = [f"{requested} were requested"] * bool(requested) + [f"{free} were free on the device"] * bool(free)
        said += [f"tensors held {held} of the reserved {reserved}"] * bool(held and reserved)
        where = "".join(f", in {one}" for one in (end.phase, in_words(end.place)) if one)
        return self.finding(
            title="The run ran out of memory",
            severity="critical",
            subject=end.place or end.phase or "memory",
            summary=f"Out of memory at batch {end.batch}{where}{f': {listed(said)}' if said else ''}.",
            advice=most_memory(metrics),
            evidence=(
                self.fact("requested", end.requested_bytes, "bytes"),
                self.fact("free on the device", end.device_free_bytes, "bytes"),
                self.fact("in tensors", end.allocated_bytes, "bytes"),
                self.fact("reserved", end.reserved_bytes, "bytes"),
                self.fact("largest free piece", end.largest_free_bytes, "bytes"),
                self.fact("out of memory", None if said else end.message),
            ),
        )
