"""Converts a file's times, microseconds of any kind, to whole nanoseconds."""

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

import numpy as np

from lightning_gpuprof.trace.events import INEXACT_FROM_US, Loose
from lightning_gpuprof.trace.tables import Float64, Int64

LATEST_NS = 2**62
"""Further from 0, 146 years, no clock is: such a time is none, and sums of it would be wrong without a sign of it."""
LONGEST_NS = 2**53
"""The same for durations: 104 days, which float64 still holds to the nanosecond."""


class InexactTimesError(Exception):
    """Times came through float64 that has not enough digits for them; the piece was not taken."""


class Times(NamedTuple):
    """Times of a piece as they are in the file, so that they can be converted all at once."""

    values: Int64 | Float64
    in_ns: bool
    """Otherwise in microseconds."""


def times_of(values_us: Sequence[Loose | Decimal], *, most: int, exact: bool = True) -> Times:
    """Times of a piece, all of one kind.

    Args:
        values_us: Times as the file has them, in µs.
        most: Largest allowed distance from 0, ns.
        exact: Whether a float that cannot hold its time is refused.

    Returns:
        As many as were given: µs as they are, or whole nanoseconds for all if some are no plain numbers.

    Raises:
        InexactTimesError: A float cannot hold its time to the nanosecond, and ``exact``.
        OverflowError: A time is further from 0 than ``most`` nanoseconds.
    """
    if len(values_us) and not isinstance(values_us[0], Decimal):
        try:
            floats = np.fromiter(values_us, np.float64, len(values_us))
        except (TypeError, ValueError, OverflowError):
            pass
        else:
            if max(-float(floats.min()), float(floats.max())) < INEXACT_FROM_US:  # false for NaN
                return Times(floats, in_ns=False)
    array = np.array(values_us)
    if array.dtype.kind in "if" and len(array):
        largest = max(-float(array.min()), float(array.max()))
        if largest > most / 1000:  # also false for NaN
            raise OverflowError
        if array.dtype.kind == "i":
            return Times(array.astype(np.int64), in_ns=False)
        if exact and largest >= INEXACT_FROM_US:
            raise InexactTimesError
        if math.isfinite(largest):
            return Times(array, in_ns=False)
    if exact and any(isinstance(value, float) and abs(value) >= INEXACT_FROM_US for value in values_us):
        raise InexactTimesError
    ints = [_value_to_ns(value) for value in values_us]
    if any(abs(one) > most for one in ints):
        raise OverflowError
    return Times(np.array(ints, np.int64), in_ns=True)


def joined_ns(times: Sequence[Times]) -> Int64:
    """Whole nanoseconds; exact for integers and for floats below 2**43 microseconds."""
    kinds = {(part.in_ns, part.values.dtype) for part in times}
    if len(kinds) > 1:
        return np.concatenate([joined_ns([part]) for part in times])
    if not kinds:
        return np.zeros(0, np.int64)
    values = np.concatenate([part.values for part in times])
    if times[0].in_ns:
        return values.astype(np.int64, copy=False)
    if values.dtype.kind == "i":
        return values.astype(np.int64, copy=False) * 1000
    whole = np.floor(values)  # apart, as the product could round a second time
    ns: Int64 = whole.astype(np.int64) * 1000 + np.rint((values - whole) * 1000).astype(np.int64)
    return ns


def is_moment(ts: float | Decimal | None) -> bool:
    """Whether a time is one: neither missing nor infinite nor "not a number"."""
    return ts is not None and (not isinstance(ts, Decimal) or ts.is_finite())


_MAX_DIGITS = 30
"""Before the point; an exponent makes numbers that fill the memory when they are written out."""


def _value_to_ns(value_us: Loose | Decimal) -> int:
    try:
        value = Decimal(value_us or 0)
    except (ArithmeticError, ValueError):  # not a number
        return 0
    if not value.is_finite():
        return 0
    if value and value.adjusted() > _MAX_DIGITS:
        raise OverflowError
    return round(value * 1000)
