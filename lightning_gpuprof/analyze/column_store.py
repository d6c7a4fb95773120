"""Joins packed blocks to columns: kept as narrow as their numbers allow, given out as integers of 32 or 64 bits."""

import sys
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from lightning_gpuprof.model.packing import MAX_WIDTH, Group, Ints

CHUNK_ROWS = 1 << 14
_NARROW = (np.uint8, np.uint16, np.uint32)

SHORT = 1 << 30
"""Columns of numbers below this are given out with 32 bits: half of the memory, and of the time to look through them.
The sum or the difference of two still has room; NumPy sums a whole column with 64 bits."""

_NOBODY_ELSE = min(sys.getrefcount(held) for held in (np.empty(0), np.empty(0)))
"""References to what a tuple holds, in a loop over it."""

Parts = list[tuple[int, npt.NDArray[np.unsignedinteger | np.int64]]]
"""Pieces of a column that are not all zero, each with the row it begins at."""
Places = npt.NDArray[np.intp]


class NarrowColumns(Mapping[int, Ints]):
    """Columns by number, of shape (rows,); made again at each look, because a long run has too many to hold them.

    Who lets go of one before the next look spares a long run the time that new memory takes.

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
        self._last: tuple[Ints, ...] = ()

    def __getitem__(self, number: int) -> Ints:
        parts = self._parts[number]
        if number not in self._short:
            self._short[number] = self._unit == 1 and all(part.max() < SHORT for _, part in parts)
        column, end = self._memory(np.int32 if self._short[number] else np.int64), 0
        for begin, part in parts:
            column[end:begin] = 0
            end = begin + len(part)
            column[begin:end] = part
        column[end:] = 0
        if self._unit != 1:
            column *= self._unit
        return column

    def _memory(self, kind: type[np.int32 | np.int64]) -> Ints:
        """Of the last column, if nobody holds it or a view of it; else new, which takes twice as long to fill."""
        for column in self._last:
            if column.dtype == kind and sys.getrefcount(column) == _NOBODY_ELSE:
                return column
        self._last = (np.empty(self._rows, kind),)
        return self._last[0]

    def __contains__(self, number: object) -> bool:
        return number in self._parts

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
        self._places: dict[bytes, Places] = {}
        self._planes = np.zeros((MAX_WIDTH, 16, 0), np.uint8)  # of a journal without such blocks it stays so
        """The chunk that is filled: bytes of numbers, lowest first, by column and row, as blocks have them."""
        self._width = 0
        """Planes that are not all zero."""
        self._blocks: list[tuple[int, list[tuple[Places, Ints]]]] = []
        """Rows of each block of the chunk, and what is to be added to all numbers of some of its columns."""
        self._filled = 0
        self._begin = 0
        self._parts: dict[int, Parts] = {}

    def add(self, groups: Sequence[Group], rows: int) -> None:
        """Append so many rows; columns that are in no group get zeros.

        Args:
            groups: Columns by width, as :func:`unpack` gives them.
            rows: Number of rows.
        """
        if self._filled + rows > self._planes.shape[2]:
            self._close_chunk(rows)
        end = self._filled + rows
        bases = []
        for group in groups:
            places = self._places_of(group.columns)
            width = len(group.planes)
            self._planes[:width, places, self._filled : end] = group.planes
            self._width = max(self._width, width)
            bases.append((places, group.base))
        self._blocks.append((rows, bases))
        self._filled = end

    def close(self) -> None:
        """All blocks are there; only now the columns are."""
        self._close_chunk(0)

    def column(self, number: int, unit: int = 1) -> Ints:
        """One of the leading columns.

        Args:
            number: Which one.
            unit: Of its numbers.

        Returns:
            Shape (rows,), made again at each call: 32 bits if the unit is 1 and all numbers are below ``SHORT``, else
            64; zeros if it is in no block.
        """
        return NarrowColumns({number: self._parts.get(number, [])}, self._begin, unit)[number]

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

    def _places_of(self, columns: Ints) -> Places:
        """Rows of the chunk for columns; blocks have few sets of these."""
        key = columns.tobytes()
        if key not in self._places:
            places = [self._place.setdefault(number, len(self._place)) for number in columns.tolist()]
            while len(self._place) > self._planes.shape[1]:
                self._planes = np.concatenate([self._planes, np.zeros_like(self._planes)], axis=1)
            self._places[key] = np.array(places, np.intp)
        return self._places[key]

    def _close_chunk(self, rows_to_come: int) -> None:
        if self._filled:
            table = self._numbers()
            for number, largest, column in zip(self._place, table.max(axis=1).tolist(), table, strict=True):
                if largest:
                    narrow = next((t for t in _NARROW if largest <= np.iinfo(t).max), np.int64)
                    self._parts.setdefault(number, []).append((self._begin, column.astype(narrow)))
        if rows_to_come > self._planes.shape[2]:
            self._planes = np.zeros((*self._planes.shape[:2], max(rows_to_come, CHUNK_ROWS)), np.uint8)
        else:
            self._planes[: self._width] = 0
        self._begin += self._filled
        self._filled = self._width = 0
        self._blocks = []

    def _numbers(self) -> npt.NDArray[np.uint32 | np.int64]:
        """Shape (columns, rows): what the chunk holds."""
        planes = self._planes[: max(self._width, 1), : len(self._place), : self._filled]
        bases = np.zeros((len(self._place), len(self._blocks)), np.int64)
        for number, (_, of_block) in enumerate(self._blocks):
            for places, base in of_block:
                bases[places, number] = base
        largest = int(bases.max(initial=0))
        kind = np.uint32 if largest + 256**self._width <= 1 << 32 else np.int64
        table: npt.NDArray[np.uint32 | np.int64] = planes[-1].astype(kind)
        for plane in planes[-2::-1]:  # in place: a sixth of the time of shifted copies, whose memory is new each time
            table <<= kind(8)
            table |= plane
        if largest:
            table += np.repeat(bases.astype(kind), [rows for rows, _ in self._blocks], axis=1)
        return table
