"""Finds that the optimizer's state holds a large part of a GPU's memory that is short."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import BaseRule, condition, threshold
from lightning_gpuprof.rules.hardware.gpus import gib
from lightning_gpuprof.rules.memory import gpu_memory
from lightning_gpuprof.rules.wording import percent


@dataclass(frozen=True, kw_only=True)
class OptimizerStateDominates(BaseRule):
    """The GPU's memory is short, and two fifths of its peak are states of the optimizer.

    ## What it means

    Adam keeps two numbers for each parameter, in fp32 as a rule: twice the parameters, four times those of a model in
    bf16. They lie on the GPU all the time and are used once a step.

    ## How it is measured

    Exact bytes of the storages of the optimizers' states on GPUs over the run's peak: above 40 %, while the peak with
    what others hold is 80 % of the GPU at least. Information: it costs memory, not time.

    ## When it is wrong

    - With memory to spare it is no finding, however large the share.
    - States that were not counted (too short a run, an optimizer of one's own): not evaluated.

    ## What to do

    Shard the states over GPUs (FSDP, DeepSpeed stage 1), or use states that need less: 8 bits, factored (Adafactor).

    ## Example

    "The state of AdamW holds 60 GiB of the peak of 120 GiB (50 %) on gpu0, which is full to 88 %."
    """

    id = "optimizer-state-dominates"

    least_ratio: float = threshold(0.40, source="heuristic: of the peak")
    short_ratio: float = threshold(gpu_memory.SHORT_RATIO, source="heuristic: of the GPU's memory, so that it matters")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge what the optimizers hold."""
        use = gpu_memory.use(metrics)
        state = float(sum(row.optimizer_state_bytes for row in gpu_memory.held_on_gpu(metrics)))
        peak = use.memory.allocated_peak_bytes
        ratio = state / peak if peak > 0 else 0.0
        if ratio <= self.least_ratio or use.ratio < self.short_ratio:
            return None
        name = condition(metrics, "model.optimizer") or "the optimizer"
        shard = gpu_memory.shard_advice(metrics)
        less = "keep it in 8 bits (bitsandbytes) or factored (Adafactor)"
        return self.finding(
            severity="info",
            subject=str(name),
            summary=f"The state of {name} holds {gib(state)} of the peak of {gib(peak)} ({percent(ratio)}) on "
            f"{use.memory.name}, which is full to {percent(use.ratio)}.",
            advice=f"For room, {shard}, or {less}." if shard else f"For room, {less}: the strategy shards it already.",
            evidence=(
                self.evidence("least_ratio", ratio, "optimizer state of the peak"),
                Evidence(name="memory that was needed", value=use.ratio, unit="ratio", limit=self.short_ratio),
            ),
            confidence=0.9,
        )
