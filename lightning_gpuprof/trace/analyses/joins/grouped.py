"""Statistics of values by group without a loop over rows, and structs of the groups."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from lightning_gpuprof.trace.tables import Float64, Int32, Int64, Rows, ratio

T = TypeVar("T")

_SMALL = 1 << 31
_MAX_KEY = 1 << 62


class Groups(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that are alike, in no order that means something; no group is empty."""

    of_row: Int64
    """The group of each row, from 0."""
    first: Rows
    """The first row of each group."""

    def __len__(self) -> int:
        return len(self.first)

    @property
    def counts(self) -> Int64:
        """Rows of each group."""
        return np.bincount(self.of_row, minlength=len(self))

    def sums(self, values: Int64) -> Int64:
        """Sum of a whole-numbered column in each group, exact."""
        total = np.zeros(len(self), np.int64)
        np.add.at(total, self.of_row, values)
        return total

    def weighted(self, values: Float64, weights: Int64) -> Float64:
        """Sum of value times weight in each group.

        Args:
            values: One per row.
            weights: One per row.

        Returns:
            One sum per group.
        """
        return np.bincount(self.of_row, weights=values * weights, minlength=len(self)).astype(np.float64)

    def averages(self, values: Float64, weights: Int64) -> list[float | None]:
        """Weighted average in each group over the values that are known; None if none has a weight.

        Args:
            values: One per row, NaN where it is not known.
            weights: One per row.

        Returns:
            One average per group.
        """
        known = ~np.isnan(values)
        weight = np.where(known, weights, 0)
        total = self.weighted(np.where(known, values, 0.0), weight)
        return [ratio(part, whole) for part, whole in zip(total.tolist(), self.sums(weight).tolist(), strict=True)]


def groups_of(*columns: Int32 | Int64 | Rows) -> Groups:
    """Put together the rows that are equal in all columns, at least one, of whole numbers and equal length."""
    rows = len(columns[0])
    if not rows:
        return Groups(of_row=np.zeros(0, np.int64), first=np.zeros(0, np.intp))
    key, size = np.zeros(rows, np.int64), 1
    for column in columns:
        low = int(column.min())
        width = int(column.max()) - low + 1
        if width > _SMALL:
            column, low, width = _numbers_of(column), 0, rows
        if size > _MAX_KEY // width:
            key, size = _numbers_of(key), rows
        key = key * width + (column.astype(np.int64) - low)
        size *= width
    if size > 8 * rows + 4096:
        _, first, of_row = np.unique(key, return_index=True, return_inverse=True)
        return Groups(of_row=of_row.astype(np.int64), first=first)
    # few possible keys: number those that occur, without sorting
    first = np.full(size, rows, np.intp)
    first[key[::-1]] = np.arange(rows - 1, -1, -1)
    present = first < rows
    return Groups(of_row=(np.cumsum(present) - 1)[key].astype(np.int64), first=first[present])


def _numbers_of(values: Int32 | Int64 | Rows) -> Int64:
    """Number the distinct values, in order."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """One value for each group."""

    count: Int64
    total: Int64
    average: Float64
    median: Float64
    min: Int64
    max: Int64
    std: Float64
    """Of a sample, i.e. over n - 1, as Nsight Systems computes it; 0 for a single value."""


def statistics_of(values: Int64, groups: Groups) -> Statistics:
    """Statistics of each group.

    Args:
        values: One whole number, 0 or more, for each row.
        groups: The groups of the rows.

    Returns:
        In the order of the groups and the unit of the values; empty columns without groups.
    """
    count = groups.counts
    if not len(groups):
        none, no_ratio = np.zeros(0, np.int64), np.zeros(0)
        return Statistics(count=none, total=none, average=no_ratio, median=no_ratio, min=none, max=none, std=no_ratio)
    start = np.cumsum(count) - count
    ordered = _sorted_in_groups(values, groups.of_row, count)
    total = np.add.reduceat(ordered, start)
    average = total / count
    apart = ordered - np.repeat(average, count)
    variance = np.add.reduceat(apart * apart, start) / np.maximum(count - 1, 1)
    middle = (ordered[start + (count - 1) // 2] + ordered[start + count // 2]) / 2
    return Statistics(
        count=count,
        total=total,
        average=average,
        median=middle,
        min=ordered[start],
        max=ordered[start + count - 1],
        std=np.where(count > 1, np.sqrt(variance), 0.0),
    )


def _sorted_in_groups(values: Int64, group: Int64, count: Int64) -> Int64:
    """Values of the first group in ascending order, then those of the second, and so on."""
    width = int(values.max()) + 1
    if width > _MAX_KEY // len(count):
        by_lexsort: Int64 = values[np.lexsort((values, group))]
        return by_lexsort
    base = np.repeat(np.arange(len(count), dtype=np.int64) * width, count)
    ordered: Int64 = np.sort(group * width + values) - base
    return ordered


def rows_of(kind: Callable[..., T], **columns: npt.NDArray[Any] | Sequence[object]) -> list[T]:
    """One struct for each row of some columns.

    Args:
        kind: The class of the structs.
        **columns: A column for each field; all are equally long.

    Returns:
        As many as the columns have rows.
    """
    values = [column.tolist() if isinstance(column, np.ndarray) else column for column in columns.values()]
    return [kind(**dict(zip(columns, row, strict=True))) for row in zip(*values, strict=True)]


def shares(values: Int64, whole: float | None) -> list[float | None]:
    """Each value's share of a whole.

    Args:
        values: In the unit of the whole.
        whole: 0 or None where there is none.

    Returns:
        A ratio for each value, in their order; None for each where there is no whole.
    """
    return [ratio(value, whole) for value in values.tolist()]
