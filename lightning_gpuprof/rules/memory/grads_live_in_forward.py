"""Finds that gradients of the step before are held through forward, where the memory's peak is."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import BaseRule, MissingSignal, condition, threshold
from lightning_gpuprof.rules.hardware.gpus import gib
from lightning_gpuprof.rules.memory import gpu_memory
from lightning_gpuprof.rules.wording import percent


@dataclass(frozen=True, kw_only=True)
class GradsLiveInForward(BaseRule):
    """The peak is reached in forward, while the gradients of the step before are still there.

    ## What it means

    Lightning clears the gradients after forward, right before backward. So all of forward runs with the old gradients
    in memory. If the peak lies in forward, clearing them at the end of the step lowers it by up to their size.

    ## How it is measured

    In most readings at the end of forward a parameter still had its gradient; the run's peak rose to its highest in
    forward; the exact bytes of the gradients are a tenth of the peak at least; and the peak with what others hold is 70
    % of the GPU at least. Not with manual optimization, nor while gradients are accumulated over batches, which needs
    them. Information: it costs memory, not time.

    ## When it is wrong

    - How much lower the peak gets is bounded by the next highest one, inside of backward, which is not measured: the
      size of the gradients is an upper bound.
    - Code of yours that reads gradients after the step (logging, clipping by hand) must do so before they are cleared.

    ## What to do

    Clear them at the end of the step, in `on_train_batch_end`.

    ## Example

    "8 GiB of gradients of the step before (13 % of the peak) are held through forward, where the peak of gpu0 is."
    """

    id = "grads-live-in-forward"

    least_ratio: float = threshold(0.10, source="the rule catalogue: of the peak")
    short_ratio: float = threshold(0.70, source="the rule catalogue: of the GPU's memory")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge what is there in forward."""
        use = gpu_memory.use(metrics)
        memory = use.memory
        if condition(metrics, "model.automatic_optimization") is False or _accumulates(metrics) or _in_buckets(metrics):
            return None
        if memory.gradients_live_in_forward is None:
            raise MissingSignal("whether gradients are there in forward was not measured")
        counted = [row.gradients_bytes for row in gpu_memory.held_on_gpu(metrics) if row.gradients_bytes is not None]
        if not memory.gradients_live_in_forward or use.ratio < self.short_ratio:
            return None
        if not counted:
            raise MissingSignal("the gradients were not counted")
        if memory.peak_phase is None:
            raise MissingSignal("in which phase the peak was reached is not known")
        gradients, peak = float(sum(counted)), memory.allocated_peak_bytes
        ratio = gradients / peak if peak > 0 else 0.0
        if memory.peak_phase != "forward" or ratio < self.least_ratio:
            return None
        return self.finding(
            severity="info",
            subject=str(condition(metrics, "model.class") or "the model"),
            summary=f"{gib(gradients)} of gradients of the step before ({percent(ratio)} of the peak) are held through "
            f"forward, where the peak of {memory.name} is.",
            advice=f"For up to {gib(gradients)} more room: def on_train_batch_end(self, outputs, batch, batch_idx): "
            "for optimizer in self.trainer.optimizers: optimizer.zero_grad(set_to_none=True)",
            evidence=(
                self.evidence("least_ratio", ratio, "gradients of the peak"),
                Evidence(name="memory that was needed", value=use.ratio, unit="ratio", limit=self.short_ratio),
                Evidence(name="phase of the peak", value=memory.peak_phase),
            ),
            confidence=0.8,
        )


def _accumulates(metrics: Metrics) -> bool:
    batches = condition(metrics, "trainer.accumulate_grad_batches")
    return isinstance(batches, int) and not isinstance(batches, bool) and batches > 1


def _in_buckets(metrics: Metrics) -> bool:
    """Whether gradients are views of DDP's buckets, which stay where they are."""
    return condition(metrics, "trainer.gradient_as_bucket_view") is True
