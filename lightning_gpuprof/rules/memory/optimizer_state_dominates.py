"""GPU memory is short, and two fifths of its peak are optimizer state.

## What it means
Adam keeps two numbers for each parameter, usually in fp32: twice the parameters, four times those of a bf16 model. They
stay on the GPU all the time and are used once a step.

## How it is measured
The exact bytes of the optimizers' states on GPUs over the run's peak, while the needed memory, with what others hold,
nearly fills the GPU. Information: it costs memory, not time.

## When it is wrong
- States that were not counted (too short a run, a custom optimizer): not evaluated.

## What to do
Shard the states over GPUs (FSDP, DeepSpeed stage 1), or use smaller states: 8 bits, factored (Adafactor).
"""

from lightning_gpuprof.rules.base import Finding, Metrics, gib, measured, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.memory.advice import sharding
from lightning_gpuprof.rules.memory.memory_rule import MemoryUse, ShortMemoryRule

_FULL = {"allocated_gib": 120.0}
_STATE = {"optimizer_state_bytes": 60 * 2**30}
_SHARDED = {"trainer.strategy": "FSDPStrategy", "trainer.world_size": 8}


class OptimizerStateDominates(ShortMemoryRule):
    id = "optimizer-state-dominates"
    title = "Optimizer state fills the GPU memory"

    least_ratio: float = threshold(0.40, source="heuristic: of the peak")

    examples = (
        fires("the state is 60 of 120 GiB", "info", "strategy='fsdp'", allocator=_FULL, held=_STATE),
        fires("the strategy shards it", "info", "8 bits", allocator=_FULL, held=_STATE, run=_SHARDED),
        quiet("the GPU has room", allocator={}, held=_STATE),
        looks_alike("activations fill it", allocator={**_FULL, "activations_gib": 96.0}),
        not_evaluated("the state was not counted", "was not counted", allocator=_FULL, held=None),
    )

    def judge(self, metrics: Metrics, use: MemoryUse) -> Finding | None:
        state, peak = measured(metrics.holders.model).optimizer_state_bytes, use.memory.allocated_peak_bytes
        ratio = state / peak if peak > 0 else 0.0
        if ratio <= self.least_ratio or use.ratio < self.short_ratio:
            return None
        name = str(metrics.condition("model.optimizer") or "the optimizer")
        shard, change = sharding(metrics)
        less = "keep it in 8 bits (bitsandbytes) or factored (Adafactor)"
        return self.finding(
            subject=name,
            summary=f"The state of {name} holds {gib(state)}, {percent(ratio)} of the peak. {use.memory.name} is "
            f"{percent(use.ratio)} full.",
            advice=f"To free memory, {less}{f', or {shard}' if shard else ''}.",
            change=change,
            evidence=(self.evidence("least_ratio", ratio, "optimizer state, share of the peak"), self.fullness(use)),
            confidence=0.9,
        )
