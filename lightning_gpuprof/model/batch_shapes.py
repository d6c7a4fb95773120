"""The shapes of the few batches that were inspected, and how step time follows them."""

import msgspec

from lightning_gpuprof.model.numbers import possible

CHANCE = 0.10
"""Of finding as many different shapes among a few, below which there are more than a few."""


class BatchShapes(msgspec.Struct, frozen=True, kw_only=True):
    """Of one loader."""

    looks: int
    """Batches inspected."""
    shapes: int
    """Different ones among them."""
    compared: int = 0
    """Those whose step is an ordinary one, after the first five; what follows is of these."""
    smallest: str = ""
    """Shapes of the tensors in the smallest: ``16x8, 16``."""
    largest: str = ""
    smallest_ms: float = 0.0
    """Step time with it."""
    largest_ms: float = 0.0
    correlation: float = 0.0
    """Rank correlation (Spearman) of size and step time: 1 where each larger batch takes longer, 0: none."""
    spread_ratio: float = 0.0
    """Standard deviation over mean of the step time that follows from the size."""

    def are_of_more_than(self, shapes: int) -> bool:
        """Whether all batches together have more shapes than so many, though not all are inspected.

        Else as many different ones are found with a chance below :data:`CHANCE`. Equally frequent shapes differ most.
        """
        odds = [1.0, *[0.0] * self.looks]  # of as many different ones so far
        for _ in range(self.looks):
            known = [count / shapes for count in range(self.looks + 1)]
            odds = [
                odds[count] * known[count] + (odds[count - 1] * (1 - known[count - 1]) if count else 0.0)
                for count in range(self.looks + 1)
            ]
        return self.shapes > shapes or sum(odds[self.shapes :]) < CHANCE

    @property
    def is_possible(self) -> bool:
        """Whether what was measured are numbers of at least 0."""
        return all(map(possible, (self.smallest_ms, self.largest_ms, self.correlation, self.spread_ratio)))
