"""Joins packed blocks to columns: kept as narrow as their numbers allow, given out as integers of 32 or 64 bits."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from lightning_gpuprof.model.packing import Group, Ints

CHUNK_ROWS = 1 << 14
_NARROW = (np.uint8, np.uint16, np.uint32)

SHORT = 1 << 30
"""Columns of numbers below this are given out with 32 bits: half of the memory, and of the time to look through them.
The sum or the difference of two still has room; NumPy sums a whole column with 64 bits."""

Parts = list[tuple[int, npt.NDArray[np.unsignedinteger | np.int64]]]
"""Pieces of a column that are not all zero, each with the row it begins at."""


class NarrowColumns(Mapping[int, Ints]):
    """Columns by number, of shape (rows,); made anew at each look, because a long run has too many to hold them.

    Args:
        parts: Pieces of each column; zeros between them.
        rows: Length of all columns.
        unit: What the stored numbers are multiples of.
    """

    def __init__(self, parts: Mapping[int, Parts], rows: int, unit: int = 1) -> None:
        self._parts = parts
        self._rows = rows
        self._unit = unit
        self._short: dict[int, bool] = {}

    def __getitem__(self, number: int) -> Ints:
        parts = self._parts[number]
        if number not in self._short:
            self._short[number] = self._unit == 1 and all(part.max() < SHORT for _, part in parts)
        column: Ints = np.zeros(self._rows, np.int32 if self._short[number] else np.int64)
        for begin, part in parts:
            column[begin : begin + len(part)] = part
        if self._unit != 1:
            column *= self._unit
        return column

    def __iter__(self) -> Iterator[int]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


class ColumnStore:
    """Takes blocks in order, then gives out columns.

    Args:
        leading: So many columns come before those of the slots.
    """

    def __init__(self, leading: int) -> None:
        self._leading = leading
        self._place: dict[int, int] = {}
        self._table = np.zeros((16, 0), "<i8")  # of a journal without such blocks it stays so
        self._filled = 0
        self._begin = 0
        self._parts: dict[int, Parts] = {}

    def add(self, groups: Sequence[Group], rows: int) -> None:
        """Append so many rows; columns that are in no group get zeros.

        Args:
            groups: Columns by width, as :func:`unpack` gives them.
            rows: Number of rows.
        """
        if self._filled + rows > self._table.shape[1]:
            self._close_chunk(rows)
        end = self._filled + rows
        places_of = [[self._place_of(number) for number in group.columns.tolist()] for group in groups]
        digits = self._table.view(np.uint8).reshape(*self._table.shape, 8)
        for group, places in zip(groups, places_of, strict=True):
            for byte, plane in enumerate(group.planes):
                digits[places, self._filled : end, byte] = plane
            if group.base.any():
                self._table[places, self._filled : end] += group.base[:, None]
        self._filled = end

    def close(self) -> None:
        """All blocks are there; only now the columns are."""
        self._close_chunk(0)

    def column(self, number: int) -> Ints:
        """One of the leading columns."""
        return NarrowColumns({number: self._parts.get(number, [])}, self._begin)[number]

    def slots(self, unit: int = 1) -> NarrowColumns:
        """The slots' columns that are not all zero, by slot, in multiples of ``unit``."""
        first = self._leading
        parts = {number - first: self._parts[number] for number in sorted(self._parts) if number >= first}
        return NarrowColumns(parts, self._begin, unit)

    def slot_sums(self) -> Ints:
        """Shape (rows,): the sum over all slots."""
        summed = np.zeros(self._begin, np.int64)
        for number, parts in self._parts.items():
            if number >= self._leading:
                for begin, part in parts:
                    summed[begin : begin + len(part)] += part.astype(np.int64)
        return summed

    def _place_of(self, number: int) -> int:
        place = self._place.setdefault(number, len(self._place))
        if place == len(self._table):
            grown = np.zeros((2 * place, self._table.shape[1]), "<i8")
            grown[:place, : self._filled] = self._table[:, : self._filled]
            self._table = grown
        return place

    def _close_chunk(self, rows_to_come: int) -> None:
        filled = self._table[:, : self._filled]
        for number, place in self._place.items():
            column = filled[place]
            largest = int(column.max(initial=0))
            if largest:
                narrow = next((t for t in _NARROW if largest <= np.iinfo(t).max), np.int64)
                self._parts.setdefault(number, []).append((self._begin, column.astype(narrow)))
        if rows_to_come > self._table.shape[1]:
            self._table = np.zeros((len(self._table), max(rows_to_come, CHUNK_ROWS)), "<i8")
        else:
            filled[:] = 0
        self._begin += self._filled
        self._filled = 0
