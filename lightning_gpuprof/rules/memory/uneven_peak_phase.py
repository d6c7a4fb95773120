"""Finds that the memory's peak lies in the optimizer's update."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import BaseRule, MissingSignal, condition, threshold
from lightning_gpuprof.rules.hardware.gpus import gib
from lightning_gpuprof.rules.memory import gpu_memory
from lightning_gpuprof.rules.steps.fused_update import FOREACH, FUSED, can_fuse
from lightning_gpuprof.rules.wording import percent


@dataclass(frozen=True, kw_only=True)
class UnevenPeakPhase(BaseRule):
    """The peak of the GPU's memory is reached in the optimizer's update, by temporary tensors.

    ## What it means

    On a GPU torch's optimizers update all parameters at once (`foreach`), with temporary copies of about the size of
    the parameters. Where activations are small, that is the peak of the step, and it decides how large a model fits.

    ## How it is measured

    The run's peak rose to its highest in the optimizer phase, a tenth above the fullest end of any phase, and the peak
    with what others hold is 70 % of the GPU at least. Silent if the first parameter group says `fused=True` or
    `foreach=False`. Information: it costs memory, not time.

    ## When it is wrong

    - Clipping of gradients lies in the same phase and makes temporary tensors, too.
    - Known only where the step in which the peak rose was read at each end of a phase; else not evaluated.

    ## What to do

    `fused=True` (Adam, AdamW, SGD, Adagrad; in `16-mixed` not with gradient clipping) updates in place, without the
    temporary tensors and faster; `foreach=False` saves the memory, but is slower.

    ## Example

    "The update of AdamW takes 14 GiB of temporary memory: the peak of 112 GiB on gpu0 lies in it."
    """

    id = "uneven-peak-phase"

    least_ratio: float = threshold(0.10, source="heuristic: temporary memory over the peak")
    short_ratio: float = threshold(0.70, source="heuristic: of the GPU's memory, so that it matters")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge in which phase the peak lies."""
        use = gpu_memory.use(metrics)
        memory = use.memory
        if use.ratio < self.short_ratio:
            return None
        if memory.peak_phase is None or not memory.phases:
            raise MissingSignal("in which phase the peak was reached is not known")
        in_place = condition(metrics, "model.optimizer_fused") is True
        if memory.peak_phase != "optimizer" or in_place or condition(metrics, "model.optimizer_foreach") is False:
            return None
        peak = memory.allocated_peak_bytes
        temporary = peak - max(row.allocated_bytes for row in memory.phases)
        if not 0 < temporary <= peak or temporary < self.least_ratio * peak:
            return None
        name = condition(metrics, "model.optimizer") or "the optimizer"
        return self.finding(
            severity="info",
            subject=str(name),
            summary=f"The update of {name} takes {gib(temporary)} of temporary memory: the peak of {gib(peak)} on "
            f"{memory.name}, which is full to {percent(use.ratio)}, lies in it.",
            advice=_advice(metrics, str(name)),
            evidence=(
                self.evidence("least_ratio", temporary / peak, "temporary memory of the peak"),
                Evidence(name="memory that was needed", value=use.ratio, unit="ratio", limit=self.short_ratio),
            ),
            confidence=0.7,
        )


def _advice(metrics: Metrics, name: str) -> str:
    if can_fuse(metrics):
        return f"For room, update in place: {name}(..., fused=True); or {name}(..., foreach=False), which is slower."
    if name in FUSED | FOREACH:
        return f"For room, update one tensor at a time: {name}(..., foreach=False), which is slower."
    return f"For room, see whether {name} can update in place (fused=True) or one tensor at a time (foreach=False)."
