"""The memory of the GPUs of a job side by side, each at its fullest."""

import msgspec


class GpuNeed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The GPU that a rank trains on."""

    tensors_bytes: float
    """Peak of torch's allocator in this rank's process."""
    outside_bytes: float | None = None
    """In use on the GPU beyond what that has reserved: CUDA's context, NCCL, other processes. None: not known."""
    total_bytes: float | None = None

    @property
    def needed_bytes(self) -> float:
        """Both, as far as known."""
        return self.tensors_bytes + (self.outside_bytes or 0.0)


class RankNeed(msgspec.Struct, frozen=True, kw_only=True):
    """One rank."""

    rank: int
    host: str
    gpu: GpuNeed


class RankMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that have the same part of the model, at least two; of each the same is known."""

    ranks: tuple[RankNeed, ...]

    @property
    def fullest(self) -> RankNeed:
        """The rank whose GPU is needed most."""
        return max(self.ranks, key=lambda one: one.gpu.needed_bytes)

    @property
    def emptiest(self) -> RankNeed:
        """The rank whose GPU is needed least."""
        return min(self.ranks, key=lambda one: one.gpu.needed_bytes)
