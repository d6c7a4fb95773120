"""Finds that activations hold most of a GPU's memory that is short."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import BaseRule, MissingSignal, possible, threshold
from lightning_gpuprof.rules.hardware.gpus import gib
from lightning_gpuprof.rules.memory import gpu_memory
from lightning_gpuprof.rules.memory.oom_risk import smaller_batch
from lightning_gpuprof.rules.wording import percent


@dataclass(frozen=True, kw_only=True)
class ActivationsDominate(BaseRule):
    """The GPU's memory is short, and more than half of its peak is what forward keeps for backward.

    ## What it means

    Activations grow with the batch and the length of sequences; parameters, gradients and optimizer state do not. Where
    memory is short and activations hold most of it, the batch is what to look at.

    ## How it is measured

    What is allocated at the end of forward, less the exact bytes of parameters, buffers, optimizer state and gradients
    that are still there, over the run's peak: above 50 %, while the peak with what others hold is 80 % of the GPU at
    least. Information: it costs memory, not time.

    ## When it is wrong

    - The batch, and whatever else is allocated on the device, counts as activations.
    - With memory to spare it is no finding, however large the share.
    - Manual optimization, or a model that is not counted: not evaluated.

    ## What to do

    Halve the batch and accumulate; recompute activations (about a third more computing); use
    `F.scaled_dot_product_attention`, which keeps no matrix of scores.

    ## Example

    "Activations hold 96 GiB of the peak of 120 GiB (80 %) on gpu0, which is full to 88 %."
    """

    id = "activations-dominate"

    least_ratio: float = threshold(0.50, source="the rule catalogue: half of the peak")
    short_ratio: float = threshold(gpu_memory.SHORT_RATIO, source="heuristic: of the GPU's memory, so that it matters")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge what forward keeps."""
        use = gpu_memory.use(metrics)
        memory = use.memory
        held, ratio = memory.activations_bytes, memory.activations_ratio
        if held is None or ratio is None or not (possible(held) and possible(ratio)):
            raise MissingSignal("what forward keeps was not measured")
        if ratio <= self.least_ratio or use.ratio < self.short_ratio:
            return None
        return self.finding(
            severity="info",
            subject=memory.name,
            summary=f"Activations hold {gib(held)} of the peak of {gib(memory.allocated_peak_bytes)} "
            f"({percent(ratio)}) on {memory.name}, which is full to {percent(use.ratio)}.",
            advice=f"For room, {smaller_batch(metrics)}, or recompute what is large: torch.utils.checkpoint (about a "
            "third more computing).",
            evidence=(
                self.evidence("least_ratio", ratio, "activations of the peak"),
                Evidence(name="memory that was needed", value=use.ratio, unit="ratio", limit=self.short_ratio),
            ),
            confidence=0.8,
        )
