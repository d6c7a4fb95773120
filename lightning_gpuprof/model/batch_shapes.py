"""The shapes of the few batches that were inspected, and how step time follows them."""

import msgspec


class BatchShapes(msgspec.Struct, frozen=True, kw_only=True):
    """Of one loader."""

    looks: int
    """Batches inspected."""
    shapes: int
    """Different ones among them."""
    smallest: str
    """Shapes of the tensors in the smallest batch: ``16x8, 16``."""
    largest: str
    compared: int
    """Batches whose step is steady: with these the time is compared."""
    fit_ratio: float
    """Share of the variance of their step time that their size explains, with larger ones taking longer; 0: none."""
    spread_ratio: float
    """Standard deviation over mean of the step time that follows from the sizes of all batches inspected."""
    smallest_ms: float
    """Step time that follows from the size of the smallest."""
    largest_ms: float
