"""Share of the step that something takes, and a time per step of several windows, with their uncertainty."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lightning_gpuprof.model.missing import MissingSignal
from lightning_gpuprof.model.numbers import possible

_ROUNDING = 1e-6


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """Share of the step time of steady unprofiled steps that something takes, with its uncertainty."""

    median_ratio: float
    """``median_ms`` over the median step time: the two that are printed beside it."""
    lower_ratio: float
    """5 % lower bound by a block bootstrap (Kuensch 1989), not above that; rules hold this against thresholds."""
    median_ms: float
    total_ratio: float
    """Share of the summed step time: what rare long steps do to the run, which a median does not see."""
    total_lower_ratio: float | None = None
    """5 % lower bound of the same by the same bootstrap; None: not computed."""


def usable(share: Share) -> bool:
    """Whether all numbers of a share are possible ones."""
    ratios = (share.median_ratio, share.lower_ratio, share.total_ratio)
    return all(possible(x) and x <= 1.0 + _ROUNDING for x in ratios) and possible(share.median_ms)


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A time per step: the median over the windows, and the least of them as its lower bound."""

    ms: float
    lower_ms: float

    @staticmethod
    def over(values_ms: Sequence[float]) -> Measured:
        """Of one value per window; none is 0 ms. Raises MissingSignal if a value is no possible time."""
        if not all(map(possible, values_ms)):
            raise MissingSignal("a kernel time of a trace window is not a valid number")
        ordered = sorted(values_ms)
        if not ordered:
            return Measured(ms=0.0, lower_ms=0.0)
        return Measured(ms=ordered[(len(ordered) - 1) // 2], lower_ms=ordered[0])
