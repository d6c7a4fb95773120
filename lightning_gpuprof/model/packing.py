"""Tables of non-negative integers packed into few bytes, and back: what the blocks of a journal hold.

A column is stored in as many bytes a number as its largest needs, columns of the same width together, all lowest bytes
first, then all next ones, so that deflate finds the bytes that hardly change side by side. In a long block the numbers
are differences to the column's smallest, which is one more row before them: high bytes of all columns are then alike.
The lowest bytes of measured times are noise: looking for repetitions in them costs twice the time and finds none, so
the strategy is run lengths and Huffman codes (``Z_RLE``). New codes more often (memory level 5) save 3 to 8 % of the
room and take twice the time.
"""

import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32] | npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

MAX_WIDTH = 7
"""Bytes a number: 2**56 ns are two years, and 128 columns of such numbers still add up within 63 bits."""

_WIDTH_LIMITS = np.array([256**width for width in range(MAX_WIDTH + 1)], np.int64)
MIN_ROWS_FOR_BASE = 32
"""Fewer rows do not pay for one more."""
_RAW_DEFLATE = -15


class Packed(NamedTuple):
    """A table of ``len(widths)`` columns."""

    widths: str
    """One digit a column: bytes a number; 0 for a column of zeros, which takes no room."""
    data: bytes


class Group(NamedTuple):
    """The columns of one width."""

    columns: Ints
    """Their numbers in the table."""
    base: Ints
    """Shape (columns,): to be added to all numbers of a column."""
    planes: Bytes
    """Shape (width, columns, rows), lowest bytes first."""


def pack(table: Numbers) -> Packed:
    """Pack a table of shape (columns, rows); raises ValueError for numbers below 0 or above ``MAX_WIDTH`` bytes."""
    largest = table.max(axis=1, initial=0)
    used = largest > 0  # often a third of them
    if table.min(initial=0) < 0 or (largest >= _WIDTH_LIMITS[-1]).any():
        raise ValueError(f"numbers must be from 0 to 256**{MAX_WIDTH} - 1, got {table.min()} to {table.max()}")
    table, largest = table[used], largest[used]
    if table.shape[1] >= MIN_ROWS_FOR_BASE:
        smallest = table.min(axis=1)
        whole = np.empty((len(table), table.shape[1] + 1), table.dtype)
        whole[:, 0] = smallest
        np.subtract(table, smallest[:, None], out=whole[:, 1:])
        table, largest = whole, np.maximum(largest - smallest, smallest)
    widths = np.zeros(len(used), np.uint8)
    widths[used] = of_used = np.searchsorted(_WIDTH_LIMITS, largest, side="right")
    size = table.itemsize
    digits = np.ascontiguousarray(table, f"<i{size}").view(np.uint8).reshape(*table.shape, size)
    parts = [
        digits[of_used == width, :, :width].transpose(2, 0, 1).tobytes()
        for width in range(1, MAX_WIDTH + 1)
        if width in of_used
    ]
    deflate = zlib.compressobj(1, zlib.DEFLATED, _RAW_DEFLATE, zlib.DEF_MEM_LEVEL, zlib.Z_RLE)
    data = deflate.compress(b"".join(parts)) + deflate.flush()
    return Packed((widths + ord("0")).tobytes().decode(), data)


def unpack(widths: str, rows: int, data: bytes) -> Iterator[Group]:
    """The columns that are not all zero, by width.

    Args:
        widths: As :func:`pack` gave them.
        rows: Length of each column.
        data: The packed bytes.

    Yields:
        The narrowest first; columns in no group are all zero.

    Raises:
        ValueError: ``data`` is not what :func:`pack` makes of so many rows in such widths; before the first group.
    """
    places = _offsets(widths)
    has_base = rows >= MIN_ROWS_FOR_BASE
    stored = rows + has_base
    size = stored * sum(width * len(columns) for width, columns in places)
    inflate = zlib.decompressobj(_RAW_DEFLATE)
    try:
        plain = inflate.decompress(data, size + 1)  # one more, to see that there is no more
    except zlib.error as error:
        raise ValueError(f"packed columns cannot be inflated: {error}") from error
    if len(plain) != size or not inflate.eof:
        raise ValueError(f"{size} bytes of packed columns expected")
    numbers = np.frombuffer(plain, np.uint8)
    begin = 0
    for width, columns in places:
        end = begin + stored * width * len(columns)
        planes = numbers[begin:end].reshape(width, len(columns), stored)
        base = _WIDTH_LIMITS[:width] @ planes[:, :, 0] if has_base else np.zeros(len(columns), np.int64)
        yield Group(columns, base, planes[:, :, has_base:])
        begin = end


@lru_cache(maxsize=1024)
def _offsets(widths: str) -> tuple[tuple[int, Ints], ...]:
    """The column numbers of every width that occurs; neighbouring blocks mostly have the same widths."""
    of_column = np.frombuffer(widths.encode("ascii"), np.uint8) - ord("0")
    counts = np.bincount(of_column, minlength=MAX_WIDTH + 1)
    if len(counts) > MAX_WIDTH + 1:
        raise ValueError(f"a width must be a digit up to {MAX_WIDTH}")
    return tuple((width, np.flatnonzero(of_column == width)) for width in range(1, MAX_WIDTH + 1) if counts[width])
