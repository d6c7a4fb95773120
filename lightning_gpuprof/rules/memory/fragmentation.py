"""Finds that the GPU's memory is short, and a large part of it lies in pieces that nothing uses."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import BaseRule, MissingSignal, possible, threshold
from lightning_gpuprof.rules.hardware.gpus import gib
from lightning_gpuprof.rules.memory import gpu_memory
from lightning_gpuprof.rules.wording import percent


@dataclass(frozen=True, kw_only=True)
class Fragmentation(BaseRule):
    """The GPU is nearly all reserved, and a large part of that is free pieces beside tensors that are in use.

    ## What it means

    torch cuts its segments into blocks. A free piece beside a block in use cannot be given back to the device, and a
    tensor that is larger than any piece does not fit, although the sum would. It costs nothing until memory is short.

    ## How it is measured

    Inactive split bytes over reserved bytes, in the reading with the most allocated bytes: between steps, or after the
    gradients are cleared, that share is large in any healthy run. It must pass 20 %, and reserved memory with what
    others hold must be 80 % of the GPU at least. It is a warning if allocations had to be tried again in steady steps,
    else information.

    ## When it is wrong

    - The allocator is read at the ends of phases: the share at the very peak, inside of backward, may be another.
    - Sequences of many lengths fragment in any case; sizes that come in a few steps help more than a setting.

    ## What to do

    Let segments grow: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.

    ## Example

    "33 GiB of 130 GiB reserved (25 %) lay in free pieces at the fullest reading of gpu0, which was reserved to 93 %."
    """

    id = "fragmentation"

    pieces_ratio: float = threshold(0.20, source="the rule catalogue: of the reserved memory, at the peak")
    reserved_ratio: float = threshold(0.80, source="the rule catalogue: of the GPU, so that it matters")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the fullest reading."""
        use = gpu_memory.use(metrics)
        memory, reserved = use.memory, use.reserved_ratio
        pieces, ratio = memory.inactive_split_at_peak_bytes, memory.fragmentation_ratio
        if reserved is None or pieces is None or ratio is None or not (possible(pieces) and possible(ratio)):
            raise MissingSignal("free pieces of the reserved memory were not measured")
        if ratio <= self.pieces_ratio or reserved < self.reserved_ratio:
            return None
        setting = gpu_memory.expandable_advice(metrics)
        retries = memory.retries_steady_count or 0
        tried = f"; {retries:,} allocations had to be tried again" if retries > 0 else ""
        return self.finding(
            severity="warning" if retries > 0 else "info",
            subject=memory.name,
            summary=f"{gib(pieces)} of {gib(pieces / ratio)} reserved ({percent(ratio)}) lay in free pieces at the "
            f"fullest reading of {memory.name}, which was reserved to {percent(reserved)}{tried}.",
            advice=f"Set {setting} before the start."
            if setting
            else "Segments grow already (expandable_segments): let sizes come in a few steps, as by padding to "
            "lengths.",
            evidence=(
                self.evidence("pieces_ratio", ratio, "free pieces of reserved memory"),
                self.evidence("reserved_ratio", reserved, "reserved memory of the GPU"),
            ),
            confidence=0.7,
        )
