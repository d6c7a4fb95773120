"""How often optimizers step under manual optimization, and how long backwards between two steps wait for ranks."""

import msgspec


class Accumulation(msgspec.Struct, frozen=True, kw_only=True):
    """Steady batches of a run whose gradients DDP reduces, by whether an optimizer stepped in them."""

    unstepped_ratio: float
    """Share of the batches in which none did: their gradients are only added up."""
    steps_per_batch: float
    """Optimizer steps, those of several optimizers together."""
    wait_ms: float | None
    """Median wait for other ranks at the end of the backward in batches without a step.

    None: not timed, or no such batches.
    """
    least_wait_ms: float | None
    """5 % quantile of the same: such a batch found the other ranks ready."""

    def unneeded_ratio(self, reduced: float) -> float:
        """Share of the reductions that no optimizer step needs, where all gradients are reduced so often in a batch."""
        return 1.0 - min(1.0, self.steps_per_batch / reduced) if reduced else 0.0

    @property
    def batches_per_step(self) -> int:
        """Batches for each in which an optimizer steps."""
        return round(1.0 / (1.0 - self.unstepped_ratio))
