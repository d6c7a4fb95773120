"""How much of a batch of token rows is padding, from a look at tensors in host memory. A look takes some 0.1 ms."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

MAX_ROWS = 64
"""Rows of a batch that are looked at."""
MIN_WIDTH, MAX_WIDTH = 16, 65_536
MAX_ITEMS = 32
MAX_DEPTH = 3
MAX_INSIDE_RATIO = 0.02
"""Share of the rest that may have the value of the padding: in counts or targets zeros are everywhere."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What a look at one batch found; without rows of tokens all numbers are 0."""

    name: str = ""
    """Of the tensor in its batch."""
    rows: int = 0
    width: int = 0
    """Length of all rows, with padding."""
    real: int = 0
    """Sum of their lengths without."""
    longest: int = 0
    """The longest of these."""


@dataclass(kw_only=True)
class PaddingSums:
    """The looks at the batches of a loader, summed up."""

    name: str = ""
    looks: int = 0
    cells: int = 0
    real: int = 0
    to_longest: int = 0
    widths: tuple[int, int] = (0, 0)

    def take(self, found: Rows) -> None:
        """Add a look."""
        self.looks += 1
        if not found.rows:
            return
        self.name = found.name
        least, most = self.widths if self.cells else (found.width, found.width)
        self.widths = min(least, found.width), max(most, found.width)
        self.cells += found.rows * found.width
        self.real += found.real
        self.to_longest += found.rows * found.longest

    def values(self) -> dict[str, float | None]:
        """As a sample has them."""
        return {
            "looks_count": float(self.looks),
            "cells_count": float(self.cells),
            "real_count": float(self.real),
            "to_longest_count": float(self.to_longest),
            "width_min_count": float(self.widths[0]),
            "width_max_count": float(self.widths[1]),
        }


def rows_of(batch: object) -> Rows:
    """The rows of tokens in a batch: by its ``attention_mask``, else by the constant end that they share.

    Args:
        batch: As the DataLoader hands it over. Only tensors of whole numbers in host memory are read.
    """
    by_name = {name: table for name, tensor in _tensors(batch) if (table := _table(tensor)) is not None}
    masks = {name: table for name, table in by_name.items() if name.endswith("attention_mask")}
    for name, table in masks.items():
        if table.min() >= 0 and table.max() <= 1:
            return _rows(name, table.shape[1], np.count_nonzero(table, axis=1))
    tokens = {name: table for name, table in by_name.items() if table.dtype.itemsize >= 4}
    if not tokens:
        return Rows()
    name, first = next(iter(tokens.items()))
    alike = [_lengths(table) for table in tokens.values() if table.shape == first.shape]
    return _rows(name, first.shape[1], np.maximum.reduce(alike))


def _rows(name: str, width: int, lengths: npt.NDArray[Any]) -> Rows:
    return Rows(name=name, rows=len(lengths), width=width, real=int(lengths.sum()), longest=int(lengths.max()))


def _tensors(batch: object) -> Iterator[tuple[str, Any]]:
    """With their keys or places, of the batch and of what it holds."""
    waiting: list[tuple[str, object, int]] = [("batch", batch, 0)]
    for name, item, depth in waiting:
        if len(waiting) > MAX_ITEMS:
            return
        inner: Iterable[tuple[object, object]] = ()
        if isinstance(item, UserDict):
            item = item.data
        if isinstance(item, dict):
            inner = item.items()
        elif isinstance(item, (list, tuple)):
            inner = ((f"{name}[{place}]", one) for place, one in enumerate(item[:MAX_ITEMS]))
        elif hasattr(item, "numpy"):
            yield name, item
        if depth < MAX_DEPTH:
            waiting += [(str(key), one, depth + 1) for key, one in inner]


def _table(tensor: Any) -> npt.NDArray[Any] | None:
    """Its first rows as an array that shares its memory; None if these are no rows of whole numbers on the host."""
    import torch

    plain = type(tensor) is torch.Tensor and tensor.device.type == "cpu" and tensor.layout is torch.strided
    whole = plain and tensor.dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    if not whole or tensor.dim() != 2 or not len(tensor) or not MIN_WIDTH <= tensor.shape[1] <= MAX_WIDTH:
        return None
    found: npt.NDArray[Any] = tensor.numpy()[:MAX_ROWS]
    return found


def _lengths(table: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Length of each row without the constant at its end or, if that is more, at its beginning."""
    width = table.shape[1]
    shortest = np.full(len(table), width)
    for rows in (table, table[:, ::-1]):
        values, counts = np.unique(rows[:, -1], return_counts=True)
        real = rows != values[counts.argmax()]
        lengths = np.where(real.any(axis=1), width - real[:, ::-1].argmax(axis=1), 0)
        inside = lengths.sum() - real.sum()
        if 0 < lengths.sum() < shortest.sum() and inside <= MAX_INSIDE_RATIO * lengths.sum():
            shortest = lengths
    return shortest
