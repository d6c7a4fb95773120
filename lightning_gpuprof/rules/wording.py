"""Measured numbers flow in, the words and figures of summaries and advice flow out."""

from __future__ import annotations

import math


def percent(ratio: float) -> str:
    """A share of 0 to 1 for people: ``83 %``, below a tenth with one digit more: ``3.2 %``."""
    if not math.isfinite(ratio):
        return "unknown"
    value = ratio * 100
    return f"{value:.0f} %" if abs(value) >= 9.95 or value == 0 else f"{value:.1f} %"


def millis(value_ms: float) -> str:
    """A duration with three significant digits: ``0.853 ms``, ``41.2 ms``, from 1,000 ms on as seconds."""
    return seconds(value_ms / 1e3) if abs(value_ms) >= 999.5 else f"{_significant(value_ms)} ms"


def seconds(value_s: float) -> str:
    """A duration with three significant digits: ``3.02 s``, below one second in ms."""
    return f"{_significant(value_s * 1e3)} ms" if abs(value_s) < 0.9995 else f"{_significant(value_s)} s"


def cpus(value: float) -> str:
    """A number of CPUs, 1.0 being one full CPU: ``2 CPUs``, ``0.9 CPUs``, ``1 CPU``."""
    text = f"{value:.1f}".removesuffix(".0") if math.isfinite(value) else "unknown"
    return f"{text} CPU" if text == "1" else f"{text} CPUs"


def counted(number: int, noun: str) -> str:
    """A count with its noun in the right number: ``1 step``, ``12 steps``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def amount(value: float) -> str:
    """A number with four significant digits: ``239.3``, ``12,350``; ``unknown`` if it is not finite."""
    if not math.isfinite(value):
        return "unknown"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def factor(value: float) -> str:
    """How many times: ``1.31x``."""
    return f"{value:.2f}x" if math.isfinite(value) else "unknown"


def listed(items: list[str]) -> str:
    """Items as a phrase: ``a``, ``a and b``, ``a, b and c``."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _significant(value: float) -> str:
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "unknown"
    decimals = 2 - math.floor(math.log10(abs(value)))
    decimals = 2 - math.floor(math.log10(abs(round(value, decimals))))  # 0.9996 rounds up to 1.00
    return f"{round(value, decimals):,.{max(0, decimals)}f}"
