"""The peak is reached in forward, while the gradients of the previous step are still there.

## What it means
Lightning clears the gradients after forward, right before backward. All of forward runs with the old gradients in
memory. If the peak lies in forward, clearing them at the end of the step lowers it by up to their size.

## How it is measured
In most readings at the end of forward a parameter still had its gradient, and the run's peak rose to its highest in
forward. Their exact bytes over the peak decide, while the needed memory, with what others hold, fills much of the GPU.
Silent with manual optimization, accumulated gradients or gradients in DDP's buckets.

## When it is wrong
- The next highest peak, inside backward, is not measured: the size of the gradients is an upper bound.

## What to do
Clear them at the end of the step, in `on_train_batch_end`, after all code of yours that reads them.
"""

from lightning_gpuprof.rules.base import Change, Finding, Metrics, MissingSignal, gib, measured, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.memory.memory_rule import MemoryUse, ShortMemoryRule
from lightning_gpuprof.rules.torch_advice import IN_MODULE

_PEAK = {"allocated_gib": 110.0, "peak_phase": "forward"}
_GRADIENTS, _ACCUMULATED = {"gradients_bytes": 16 * 2**30}, "trainer.accumulate_grad_batches"
_CLEAR = (
    "def on_train_batch_end(self, outputs, batch, batch_idx):",
    "    for optimizer in self.trainer.optimizers:",
    "        optimizer.zero_grad(set_to_none=True)",
)


class GradsLiveInForward(ShortMemoryRule):
    id = "grads-live-in-forward"
    title = "Old gradients fill memory during forward"

    least_ratio: float = threshold(0.10, source="heuristic: of the peak")
    short_ratio: float = threshold(0.70, source="heuristic: of the GPU's memory")

    examples = (
        fires("16 of 110 GiB are old gradients", "info", "set_to_none=True", allocator=_PEAK, held=_GRADIENTS),
        quiet("the GPU has room", allocator={}),
        looks_alike("the peak is in backward", allocator={**_PEAK, "peak_phase": "backward"}, held=_GRADIENTS),
        looks_alike("they are accumulated", allocator=_PEAK, held=_GRADIENTS, run={_ACCUMULATED: 4}),
        not_evaluated("they were not counted", "not counted", allocator=_PEAK, held={"gradients_bytes": None}),
    )

    def judge(self, metrics: Metrics, use: MemoryUse) -> Finding | None:
        memory, peak = use.memory, use.memory.allocated_peak_bytes
        in_buckets = metrics.condition("trainer.gradient_as_bucket_view") is True  # views, which stay where they are
        accumulates = (metrics.positive(_ACCUMULATED) or 1) > 1
        if metrics.condition("model.automatic_optimization") is False or in_buckets or accumulates:
            return None
        if memory.gradients_live_in_forward is None:
            raise MissingSignal("whether forward holds old gradients was not measured")
        gradients = measured(metrics.holders.model).gradients_bytes
        if not memory.gradients_live_in_forward or use.ratio < self.short_ratio:
            return None
        if gradients is None:
            raise MissingSignal("the gradients were not counted")
        if memory.peak_phase is None:
            raise MissingSignal("the phase of the peak is not known")
        ratio = gradients / peak if peak > 0 else 0.0
        if memory.peak_phase != "forward" or ratio < self.least_ratio:
            return None
        return self.finding(
            subject=str(metrics.condition("model.class") or "the model"),
            summary=f"Gradients of the previous step hold {gib(gradients)} ({percent(ratio)} of the peak) during "
            f"forward, when the memory of {memory.name} peaks.",
            advice=f"Free up to {gib(gradients)} by clearing them at the end of the step: in on_train_batch_end, "
            "optimizer.zero_grad(set_to_none=True)",
            change=Change(add=_CLEAR, place=IN_MODULE),
            evidence=(
                self.evidence("least_ratio", ratio, "gradients, share of the peak"),
                self.fact("phase of the peak", memory.peak_phase),
                self.fullness(use),
            ),
            confidence=0.8,
        )
