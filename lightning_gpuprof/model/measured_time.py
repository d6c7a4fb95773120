"""A time per step that several trace windows measured."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lightning_gpuprof.model.missing import MissingSignal
from lightning_gpuprof.model.numbers import possible


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A time per step: the median over the windows, and the least of them as its lower bound."""

    ms: float
    lower_ms: float

    @staticmethod
    def over(values_ms: Sequence[float]) -> Measured:
        """Of one value per window; none is 0 ms.

        Raises:
            MissingSignal: A value is no possible time.
        """
        if not all(map(possible, values_ms)):
            raise MissingSignal("a kernel time of a trace window is no possible number")
        ordered = sorted(values_ms)
        if not ordered:
            return Measured(ms=0.0, lower_ms=0.0)
        return Measured(ms=ordered[(len(ordered) - 1) // 2], lower_ms=ordered[0])
