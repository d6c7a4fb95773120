"""The GPU is nearly all reserved, and a large part of that is free pieces between tensors in use.

## What it means
torch cuts its segments into blocks. A free piece next to a used block cannot be returned to the device, and a tensor
larger than any piece does not fit, although the sum would. It costs nothing until memory is short.

## How it is measured
Inactive split bytes over reserved bytes, in the reading with most allocated bytes (between steps, or after gradients
are cleared, that share is large in any run), while reserved memory, with what others hold, nearly fills the GPU. A
warning if allocations were retried in steady steps, else information.

## When it is wrong
- The allocator is read at the ends of phases: at the peak, inside backward, the share may differ.
- Sequences of many lengths fragment anyway; sizes in a few steps help more than a setting.

## What to do
Let segments grow: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.
"""

from lightning_gpuprof.rules.base import BaseRule, Finding, Metrics, MissingSignal, gib, percent, possible, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.memory.advice import growing_segments
from lightning_gpuprof.rules.memory.memory_rule import memory_use

_PIECES = {
    "allocated_gib": 95.0,
    "reserved_gib": 130.0,
    "fragmentation_ratio": 0.25,
    "inactive_split_at_peak_bytes": 32.5 * 2**30,
}


class Fragmentation(BaseRule):
    id = "fragmentation"
    title = "GPU memory is fragmented"

    pieces_ratio: float = threshold(0.20, source="heuristic: of the reserved memory, at the peak")
    reserved_ratio: float = threshold(0.80, source="heuristic: of the GPU, so that it matters")

    examples = (
        fires("a quarter is in pieces", "info", "expandable_segments:True", allocator=_PIECES),
        fires("allocations were retried", "warning", "3 allocations", allocator={**_PIECES, "retries_steady_count": 3}),
        quiet("the GPU has room", allocator={}),
        looks_alike("the GPU has pieces and room", allocator={**_PIECES, "reserved_gib": 100.0}),
        looks_alike("the GPU is full of tensors", allocator={"allocated_gib": 136.0}),
        not_evaluated("pieces were not measured", "were not measured", allocator={"fragmentation_ratio": None}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        use = memory_use(metrics)
        memory, reserved = use.memory, use.reserved_ratio
        pieces, ratio = memory.inactive_split_at_peak_bytes, memory.fragmentation_ratio
        if reserved is None or pieces is None or ratio is None or not (possible(pieces) and possible(ratio)):
            raise MissingSignal("free pieces of the reserved memory were not measured")
        if ratio <= self.pieces_ratio or reserved < self.reserved_ratio:
            return None
        setting, change = growing_segments(metrics)
        retries = max(0, memory.retries_steady_count or 0)
        tried = f" {retries:,} allocations were retried." if retries else ""
        return self.finding(
            severity="warning" if retries else "info",
            subject=memory.name,
            summary=f"{gib(pieces)} of the reserved {gib(pieces / ratio)} ({percent(ratio)}) were free but fragmented. "
            f"{percent(reserved)} of {memory.name} was reserved.{tried}",
            advice=f"Before the start, set {setting}"
            if setting
            else "Use fewer different sizes, for example pad to a few lengths (expandable segments are already on).",
            change=change,
            evidence=(
                self.evidence("pieces_ratio", ratio, "free pieces, share of reserved memory"),
                self.evidence("reserved_ratio", reserved, "reserved memory, share of the GPU"),
            ),
            confidence=0.7,
        )
