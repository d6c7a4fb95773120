"""How full a GPU was at its fullest, and what held its memory."""

import math
from collections.abc import Mapping

import msgspec

from lightning_gpuprof.model.memory import DeviceMemory
from lightning_gpuprof.model.missing import NOT_COMPUTED, Unmeasured
from lightning_gpuprof.model.numbers import possible


class MemoryUse(msgspec.Struct, frozen=True, kw_only=True):
    """How full a GPU was at its fullest."""

    memory: DeviceMemory
    total_bytes: float
    needed_bytes: float
    """The allocator's peak of tensors, with what others hold beside it; what the allocator only keeps is not in it."""
    outside_bytes: float | None
    """Held by CUDA's context, NCCL and other processes: in use on the GPU beyond what torch had reserved. None: not
    known, and not in ``needed_bytes``."""

    @property
    def ratio(self) -> float:
        """Needed over total."""
        return self.needed_bytes / self.total_bytes

    @property
    def reserved_ratio(self) -> float | None:
        """Reserved and outside, over total; None: not measured."""
        reserved = self.memory.reserved_peak_bytes
        return None if reserved is None else (reserved + (self.outside_bytes or 0.0)) / self.total_bytes

    def times_larger_batch(self, filled_ratio: float) -> float:
        """How many times as large a batch may be, at least 1; infinite where activations were not measured.

        Args:
            filled_ratio: Share of the GPU's memory that it may fill.
        """
        held = self.memory.activations_bytes
        if held is None or not possible(held) or held <= 0:
            return math.inf
        return max(1.0, (filled_ratio * self.total_bytes - (self.needed_bytes - held)) / held)

    def steps_until_full(self, bytes_per_step: float) -> float | None:
        """At this growth; None if it is full already, or does not grow."""
        left = self.total_bytes - self.needed_bytes
        return None if left <= 0 or bytes_per_step <= 0 else left / bytes_per_step


class ModelMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What model and optimizers hold on the one GPU that they are on."""

    gradients_bytes: float | None
    """None: not counted."""
    optimizer_state_bytes: float


class MemoryHolders(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds the memory."""

    use: MemoryUse | Unmeasured = NOT_COMPUTED
    model: ModelMemory | Unmeasured = NOT_COMPUTED
    held_bytes: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Parameters, gradients, optimizer state and activations, at the moment when the memory ran out where it did; empty
    unless all are known."""

    @property
    def largest(self) -> str:
        """Who holds most; empty if that is not known."""
        kind = max(self.held_bytes, key=lambda name: self.held_bytes[name], default="")
        return kind if kind and self.held_bytes[kind] > 0 else ""
