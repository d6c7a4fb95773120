"""Numbers of operations flow in, readable text flows out."""

from __future__ import annotations

from lightning_gpuprof.sinks import numbers

_UNITS = ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP")


def tflops_per_s(rate: float | None) -> str:
    """A rate in a column of TFLOP/s; "-" for None."""
    return numbers.ABSENT if rate is None else numbers.fixed(rate / 1e12)


def gb_per_s(rate: float | None) -> str:
    """A rate in a column of GB/s, of 10**9 bytes as data sheets count them; "-" for None."""
    return numbers.ABSENT if rate is None else numbers.fixed(rate / 1e9)


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
