"""The peak of GPU memory lies in the optimizer's update and comes from temporary tensors.

## What it means
On a GPU torch's optimizers update all parameters at once (`foreach`), with temporary copies of about the size of the
parameters. Where activations are small, that is the peak of the step and limits the model size.

## How it is measured
The run's peak rose to its highest in the optimizer phase, above the fullest end of any phase, while the needed memory,
with what others hold, fills much of the GPU. Silent if the first parameter group says `fused=True` or `foreach=False`.
Information: it costs memory, not time.

## When it is wrong
- Gradient clipping lies in the same phase and makes temporary tensors, too.

## What to do
`fused=True` (Adam, AdamW, SGD, Adagrad; in `16-mixed` not with gradient clipping) updates in place and faster;
`foreach=False` saves the memory but is slower.
"""

from lightning_gpuprof.model.signals import FOREACH, FUSED, can_fuse
from lightning_gpuprof.rules.base import Advice, Change, Finding, Metrics, MissingSignal, gib, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.memory.memory_rule import MemoryUse, ShortMemoryRule

_ENDS = {"forward": 98.0, "backward": 90.0, "optimizer": 90.0, "step": 90.0}
_PEAK = {"allocated_gib": 112.0, "peak_phase": "optimizer", "ends_gib": _ENDS}


class UnevenPeakPhase(ShortMemoryRule):
    id = "uneven-peak-phase"
    title = "The optimizer causes the memory peak"

    least_ratio: float = threshold(0.10, source="heuristic: temporary memory over the peak")
    short_ratio: float = threshold(0.70, source="heuristic: of the GPU's memory, so that it matters")

    examples = (
        fires("AdamW takes 14 GiB", "info", "14 GiB", allocator=_PEAK),
        fires("RAdam has no fused update", "info", "foreach=False", allocator=_PEAK, run={"model.optimizer": "RAdam"}),
        quiet("the GPU has room", allocator={}),
        looks_alike("the peak is in backward", allocator={**_PEAK, "peak_phase": "backward"}),
        looks_alike("the update is fused", allocator=_PEAK, run={"model.optimizer_fused": True}),
        not_evaluated("the peak's phase is unknown", "phase of the peak", allocator={**_PEAK, "peak_phase": None}),
    )

    def judge(self, metrics: Metrics, use: MemoryUse) -> Finding | None:
        memory, peak = use.memory, use.memory.allocated_peak_bytes
        if use.ratio < self.short_ratio:
            return None
        if memory.peak_phase is None or not memory.phases:
            raise MissingSignal("the phase of the peak is not known")
        in_place = metrics.condition("model.optimizer_fused") is True
        if memory.peak_phase != "optimizer" or in_place or metrics.condition("model.optimizer_foreach") is False:
            return None
        temporary = peak - max(row.allocated_bytes for row in memory.phases)
        if not 0 < temporary <= peak or temporary < self.least_ratio * peak:
            return None
        name = str(metrics.condition("model.optimizer") or "the optimizer")
        return self.finding(
            subject=name,
            summary=f"The update of {name} needs {gib(temporary)} of temporary memory, which causes the peak of "
            f"{gib(peak)}. {memory.name} is {percent(use.ratio)} full.",
            advice=_advice(metrics, name),
            evidence=(
                self.evidence("least_ratio", temporary / peak, "temporary memory, share of the peak"),
                self.fullness(use),
            ),
            confidence=0.7,
        )


def _advice(metrics: Metrics, name: str) -> Advice:
    call = f"torch.optim.{name}"
    if can_fuse(metrics):
        change, how = Change(call=call, arguments={"fused": True}), "in place, which is faster too"
    elif name in FUSED | FOREACH:
        change, how = Change(call=call, arguments={"foreach": False}), "one tensor at a time, which is slower"
    else:
        return f"Check whether {name} can update in place (fused=True) or one tensor at a time (foreach=False).", None
    return f"Update {how}: {change.added[0].removeprefix('torch.optim.')}", change
