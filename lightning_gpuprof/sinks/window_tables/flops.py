"""FLOPs and FLOP/s as readable text."""

from __future__ import annotations

from lightning_gpuprof.model import numbers
from lightning_gpuprof.sinks.tables import NUMBER

_UNITS = ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP")


TFLOPS = NUMBER.in_unit("", of=1e12)
"""A rate in a column whose title is its unit."""


def flops(value: float | None) -> str:
    """Operations in the unit that suits them: ``778 GFLOP``; "-" for None."""
    if value is None:
        return numbers.ABSENT
    amount = value
    for unit in _UNITS[:-1]:
        if abs(amount) < 1000:
            return f"{numbers.significant(amount)} {unit}"
        amount /= 1000
    return f"{numbers.significant(amount)} {_UNITS[-1]}"
