"""How much of a batch of token rows is padding, and the shapes of its tensors, from a look in host memory.

A look at one tensor of 32 x 512 takes 0.10 ms, of 512 x 512 or 64 x 65,536 up to 0.22 ms; at two alike up to 0.53 ms;
at a batch with an ``attention_mask`` up to 0.11 ms. It is made on the training thread, in ``data_wait``.
"""

import math
import time
from collections import UserDict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from lightning_gpuprof.capture.fence import must_propagate

MAX_READ, MAX_CELLS = 64, 32_768
"""Rows of a tensor that are read in full, spread over all, and numbers in these."""
MAX_ROWS = 2048
MIN_WIDTH, MAX_WIDTH = 16, 65_536
STRIP = 8
"""Columns that are read of all rows at a time: a line of the CPU's cache."""
MAX_ITEMS = 64
"""Items of a batch that are looked into, and of each of these."""
MAX_DEPTH = 3
MAX_ALIKE = 3
"""Tensors of one shape that are compared."""
MAX_SHAPES = 8
"""Tensors of a batch whose shapes are named."""
MAX_WAITING = 64
"""Looks that wait to be taken out, which happens once a second."""
MAX_INSIDE_RATIO = 0.02
"""Share of the rest that may have the value of the padding: in counts or targets zeros are everywhere."""


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at one batch found; without rows of tokens all numbers are 0."""

    name: str = ""
    """Of the tensor in its batch."""
    rows: int = 0
    """Those that were read in full."""
    width: int = 0
    """Length of all rows, with padding."""
    real: int = 0
    """Sum of the lengths without, of the rows that were read in full."""
    longest: int = 0
    """Length without padding of the longest of all rows."""


class Shapes(msgspec.Struct, frozen=True, kw_only=True):
    """The tensors of one batch."""

    at_ns: int
    """When it was handed over, by the run's clock."""
    text: str
    """``16x128, 16``."""
    elements: int
    """Numbers in all of them."""


class PaddingSums(msgspec.Struct, kw_only=True):
    """The looks at the batches of a loader, summed up."""

    name: str = ""
    looks: int = 0
    rows: int = 0
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
        self.rows += found.rows
        self.cells += found.rows * found.width
        self.real += found.real
        self.to_longest += found.rows * found.longest

    def values(self) -> dict[str, float | None]:
        """As a sample has them."""
        return {
            "looks_count": float(self.looks),
            "rows_count": float(self.rows),
            "cells_count": float(self.cells),
            "real_count": float(self.real),
            "to_longest_count": float(self.to_longest),
            "width_min_count": float(self.widths[0]),
            "width_max_count": float(self.widths[1]),
        }


class Looks:
    """Looks at a few batches of a loader, over all its iterators: at first, then less and less often.

    Args:
        on_failure: Called with why no batch is looked at any more. A look reads objects of the user's own classes.
    """

    def __init__(self, on_failure: Callable[[Exception], None]) -> None:
        self.rows: deque[Rows] = deque(maxlen=MAX_WAITING)
        """Taken out by another thread; of too many the newest."""
        self.shapes: deque[Shapes] = deque(maxlen=MAX_WAITING)
        """Likewise, of the same batches."""
        self._on_failure = on_failure
        self._batches = 0
        self._due: float = 1

    def is_due(self) -> bool:
        """Whether to look at the next batch; to be asked before each."""
        self._batches += 1
        if self._batches < self._due:
            return False
        self._due = self._batches + max(1, self._batches // 2)
        return True

    def look(self, batch: object) -> None:
        """Note what is in a batch; the next look may be set already when this one fails."""
        try:
            if self._due < math.inf:
                at_ns = time.perf_counter_ns()
                self.rows.append(rows_of(batch))
                if (shapes := shapes_of(batch, at_ns)) is not None:
                    self.shapes.append(shapes)
        except Exception as error:
            if must_propagate(error):
                raise
            self._due = math.inf
            self._on_failure(error)


def rows_of(batch: object) -> Rows:
    """The rows of tokens in a batch: by its ``attention_mask``, else by the constant end that they share.

    Args:
        batch: As the DataLoader hands it over. Only tensors of whole numbers in host memory are read.
    """
    by_name = {name: table for name, tensor in _tensors(batch) if (table := _table(tensor)) is not None}
    for name, table in by_name.items():
        if name.endswith("attention_mask"):
            read = _read(table)
            if read.min() >= 0 and read.max() <= 1:
                longest = min(_longest(table, 0), _longest(table[:, ::-1], 0))
                return _rows(name, table, np.count_nonzero(read, axis=1), longest)
    tokens = {name: table for name, table in by_name.items() if table.dtype.itemsize >= 4}
    if not tokens:
        return Rows()
    name, first = next(iter(tokens.items()))
    alike = [table for table in tokens.values() if table.shape == first.shape][:MAX_ALIKE]
    lengths, longest = zip(*map(_lengths, alike), strict=True)
    return _rows(name, first, np.maximum.reduce(lengths), max(longest))


def shapes_of(batch: object, at_ns: int) -> Shapes | None:
    """The shapes of a batch's tensors.

    Args:
        batch: As the DataLoader hands it over.
        at_ns: When it did, by the run's clock.

    Returns:
        The text has the first :data:`MAX_SHAPES` of them, the elements are of all; nested tensors are left out. None
        where there are no others.
    """
    found = [tuple(map(int, tensor.shape)) for _, tensor in _tensors(batch) if not tensor.is_nested]
    if not found:
        return None
    text = ", ".join("x".join(map(str, shape)) or "1" for shape in found[:MAX_SHAPES])
    return Shapes(at_ns=at_ns, text=text, elements=sum(map(math.prod, found)))


def _rows(name: str, table: npt.NDArray[Any], lengths: npt.NDArray[Any], longest: int) -> Rows:
    longest = max(longest, int(lengths.max()))
    return Rows(name=name, rows=len(lengths), width=table.shape[1], real=int(lengths.sum()), longest=longest)


def _tensors(batch: object) -> Iterator[tuple[str, Any]]:
    """With their keys or places, of the batch and of what it holds; those of one collection before what is inside."""
    import torch

    waiting: list[tuple[str, object, int]] = [("batch", batch, 0)]
    for name, item, depth in waiting:
        if isinstance(item, torch.Tensor):
            yield name, item
        if isinstance(item, torch.Tensor) or depth == MAX_DEPTH:
            continue
        inner: Iterable[tuple[object, object]] = ()
        if isinstance(item, UserDict):
            item = item.data
        if isinstance(item, dict):
            inner = dict.items(item)  # not what a class of the user makes of it: that may draw random numbers
        elif isinstance(item, (list, tuple)):
            elements = list.__iter__(item) if isinstance(item, list) else tuple.__iter__(item)
            inner = ((f"{name}[{place}]", one) for place, one in enumerate(islice(elements, MAX_ITEMS)))
        kinds = (torch.Tensor, UserDict, dict, list, tuple)
        found = [(str(key), one, depth + 1) for key, one in islice(inner, MAX_ITEMS) if isinstance(one, kinds)]
        found.sort(key=lambda one: not isinstance(one[1], torch.Tensor))
        waiting += found[: MAX_ITEMS - len(waiting)]


def _table(tensor: Any) -> npt.NDArray[Any] | None:
    """An array that shares its memory; None if these are no rows of whole numbers on the host."""
    import torch

    plain = type(tensor) is torch.Tensor and tensor.device.type == "cpu" and tensor.layout is torch.strided
    whole = plain and tensor.dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    if not whole or tensor.dim() != 2:
        return None
    if not 1 <= tensor.shape[0] <= MAX_ROWS or not MIN_WIDTH <= tensor.shape[1] <= MAX_WIDTH:
        return None
    found: npt.NDArray[Any] = tensor.numpy()
    return found


def _read(table: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The rows to read in full."""
    return _spread(table, min(MAX_READ, max(1, MAX_CELLS // table.shape[1])))


def _spread(table: npt.NDArray[Any], most: int) -> npt.NDArray[Any]:
    """At most so many rows, at one distance: a batch may be sorted by length."""
    return table[:: math.ceil(len(table) / most)]


def _lengths(table: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], int]:
    """Lengths of the rows to read, without the constant at their end or, if that is more, at their beginning.

    Returns:
        These, and the longest of all rows.
    """
    width = table.shape[1]
    shortest, longest = np.full(len(_read(table)), width), width
    for rows in (table, table[:, ::-1]):
        values, counts = np.unique(_spread(rows[:, -1], MAX_READ), return_counts=True)
        padding = values[counts.argmax()]
        real = _read(rows) != padding
        lengths = np.where(real.any(axis=1), width - real[:, ::-1].argmax(axis=1), 0)
        inside = lengths.sum() - real.sum()
        if 0 < lengths.sum() < shortest.sum() and inside <= MAX_INSIDE_RATIO * lengths.sum():
            shortest, longest = lengths, _longest(rows, padding)
    return shortest, longest


def _longest(table: npt.NDArray[Any], padding: Any) -> int:
    """Where the last row ends that the padding follows: halved again and again, as it may be far from the end."""
    low = 0
    high: int = table.shape[1]
    if (table[:, -1] != padding).any():
        return high
    while high - low > STRIP:
        middle = (low + high) // 2
        if (table[:, middle : middle + STRIP] != padding).any():
            low = middle
        else:
            high = middle
    return high - int((table[:, low:high] != padding).any(axis=0)[::-1].argmax())
