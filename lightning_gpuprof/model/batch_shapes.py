"""The shapes of the few batches that were inspected, and how step time follows them."""

import msgspec

from lightning_gpuprof.model.numbers import possible


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

    @property
    def is_possible(self) -> bool:
        """Whether what was measured are numbers of at least 0."""
        return all(map(possible, (self.smallest_ms, self.largest_ms, self.correlation, self.spread_ratio)))
