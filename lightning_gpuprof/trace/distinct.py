"""Distinct values of columns and their numbers, sums by number, medians and shares.

As ``numpy.unique`` and ``numpy.median``, which import ``numpy.ma`` at their first call: 12 ms and 1.7 MB, as much as
several analyses of a trace take.
"""

from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from lightning_gpuprof.trace.tables import Int32, Int64, Rows

N = TypeVar("N", bound=np.generic)


class Numbered(NamedTuple):
    """A column whose values are numbered in order."""

    values: npt.NDArray[Any]
    """The distinct ones, in order."""
    first: Rows
    """The first row of each."""
    of_row: Rows
    """Index of each row's value in :attr:`values`."""

    @property
    def counts(self) -> Int64:
        """Rows of each value."""
        counts: Int64 = np.bincount(self.of_row, minlength=len(self.values)).astype(np.int64, copy=False)
        return counts


def distinct(values: npt.NDArray[N]) -> npt.NDArray[N]:
    """The distinct values of a column, in order."""
    ordered = np.sort(values)
    return ordered[_changes(ordered)]


def numbered(values: npt.NDArray[N]) -> Numbered:
    """Number the values of a column."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    begins = _changes(ordered)
    of_row = np.empty(len(values), np.intp)
    of_row[order] = np.cumsum(begins) - 1
    return Numbered(ordered[begins], order[begins], of_row)


def median(values: npt.NDArray[np.integer] | npt.NDArray[np.floating] | list[float]) -> float:
    """The middle value, or the mean of the two in the middle.

    Raises:
        ValueError: There is none.
    """
    column = np.asarray(values)
    if not len(column):
        raise ValueError("there are no values to take the median of")
    middle = len(column) // 2
    if len(column) % 2:
        return float(np.partition(column, middle)[middle])
    low, high = np.partition(column, (middle - 1, middle))[middle - 1 : middle + 1].tolist()
    return float((low + high) / 2)


def summed(label: Rows | Int32 | Int64, values: Int64 | npt.NDArray[np.float64], count: int) -> Int64:
    """Sum the values of each label. float64 sums of whole nanoseconds are exact up to 2**53 ns, which is 104 days.

    Args:
        label: From 0, one for each of n rows.
        values: Whole numbers, one for each row.
        count: Labels are below this.

    Returns:
        One sum for each of ``count`` labels.
    """
    return np.bincount(label, weights=values, minlength=count).astype(np.int64)


def ratio(part: float, whole: float | None) -> float | None:
    """A share, None where there is no whole.

    Args:
        part: In the unit of the whole.
        whole: 0 or None where there is none.
    """
    return part / whole if whole else None


def _changes(ordered: npt.NDArray[N]) -> npt.NDArray[np.bool_]:
    """Where a value of an ordered column differs from the one before."""
    changes = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=changes[1:])
    return changes
