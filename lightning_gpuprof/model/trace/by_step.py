"""Operators and kernels step by step, as plain data."""

import msgspec


class StepTimes(msgspec.Struct, kw_only=True, frozen=True):
    """One operator or kernel; lists have one entry for each step of the window."""

    name: str
    calls: tuple[int, ...]
    times_us: tuple[float, ...]
    """Operators: host time of their own, inflated by tracing. Kernels, copies and memsets: device time."""


class ByStep(msgspec.Struct, kw_only=True, frozen=True):
    """What took time in each step. Device work belongs to the step in which it was launched."""

    steps: tuple[str, ...] = ()
    """``ProfilerStep#`` and the number, in order; empty if the window has no steps."""
    operators: tuple[StepTimes, ...] = ()
    """Most host time of their own first."""
    operators_count: int = 0
    """All of them: those with little time may have been left out."""
    kernels: tuple[StepTimes, ...] = ()
    """Most device time first, copies and memsets among them."""
    kernels_count: int = 0
