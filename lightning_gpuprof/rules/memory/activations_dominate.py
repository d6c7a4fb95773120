"""GPU memory is short, and more than half of its peak is what forward keeps for backward.

## What it means
Activations grow with the batch and the sequence length; parameters, gradients and optimizer state do not. Where memory
is short and activations hold most of it, the batch is the place to look.

## How it is measured
The memory allocated at the end of forward, minus the exact bytes of parameters, buffers, optimizer state and gradients
still there, is compared with the run's peak. The rule speaks only if the GPU is nearly full, other users of its memory
included. Information: it costs memory, not time.

## When it is wrong
- The batch, and whatever else is allocated on the device, counts as activations.
- Manual optimization, or a model that was not counted: not evaluated.

## What to do
Halve the batch and accumulate; recompute activations (about a third more compute); use
`F.scaled_dot_product_attention`, which stores no score matrix.
"""

from lightning_gpuprof.rules.base import Finding, Metrics, MissingSignal, gib, percent, possible, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.memory.advice import smaller_batch
from lightning_gpuprof.rules.memory.memory_rule import MemoryUse, ShortMemoryRule

_FULL = {"allocated_gib": 120.0, "activations_gib": 96.0}


class ActivationsDominate(ShortMemoryRule):
    id = "activations-dominate"
    title = "Activations fill the GPU memory"

    least_ratio: float = threshold(0.50, source="heuristic: half of the peak")

    examples = (
        fires("activations are 96 of 120 GiB", "info", "batch_size=16", allocator=_FULL),
        quiet("the GPU has room", allocator={}),
        looks_alike("activations are most of it, but there is room", allocator={**_FULL, "allocated_gib": 100.0}),
        looks_alike("the model fills it", allocator={"allocated_gib": 136.0, "activations_gib": 10.0}),
        not_evaluated("activations were not measured", "memory of activations", allocator={"activations_gib": None}),
    )

    def judge(self, metrics: Metrics, use: MemoryUse) -> Finding | None:
        memory, held, ratio = use.memory, use.memory.activations_bytes, use.memory.activations_ratio
        if held is None or ratio is None or not (possible(held) and possible(ratio)):
            raise MissingSignal("the memory of activations was not measured")
        if ratio <= self.least_ratio or use.ratio < self.short_ratio:
            return None
        smaller, change = smaller_batch(metrics)
        return self.finding(
            subject=memory.name,
            summary=f"Activations hold {gib(held)}, {percent(ratio)} of the peak. {memory.name} is "
            f"{percent(use.ratio)} full.",
            advice=f"To free memory, halve the batch: {smaller}. Or recompute large activations with "
            "torch.utils.checkpoint, which takes about a third more compute.",
            change=change,
            evidence=(self.evidence("least_ratio", ratio, "activations, share of the peak"), self.fullness(use)),
            confidence=0.8,
        )
