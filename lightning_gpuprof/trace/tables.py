"""The tables of a trace: one class per kind of span, each field one numpy column, all columns equally long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar, cast

import msgspec
import numpy as np
import numpy.typing as npt

from lightning_gpuprof.trace import events

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Ids = npt.NDArray[np.int32] | npt.NDArray[np.int64]
"""Numbers that the file gives: four bytes each where they fit, as most of a trace is ids."""
Rows = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

ABSENT = events.ABSENT
"""Stands in columns of ids, bytes and labels for "the event has none"."""

S = TypeVar("S", bound="Spans")
A = TypeVar("A", bound=npt.NDArray[Any])


class Spans(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Events with a start and an end, in no order that means something."""

    start_ns: Int64
    end_ns: Int64
    """Never before the start."""
    name: Int32
    """Index into :attr:`Trace.names`."""
    thread: Int32
    """Index into :attr:`Trace.threads`; on devices the stream's row in the viewer."""

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def duration_ns(self) -> Int64:
        """Ends minus starts."""
        return self.end_ns - self.start_ns

    @cached_property
    def distinct_names(self) -> Int32:
        """What :attr:`name` has, each once, ascending."""
        return np.flatnonzero(np.bincount(self.name)).astype(np.int32)

    def where(self: S, chosen: Mask | Rows) -> S:
        """The rows for which ``chosen`` is true, or that it counts."""
        return type(self)(**{name: getattr(self, name)[chosen] for name in self.__struct_fields__})

    def between(self: S, first: int, last: int) -> S:
        """The rows from the first on and before the last.

        Args:
            first: First row.
            last: The row after the last.

        Returns:
            Its columns are views: nothing is copied.
        """
        return type(self)(**{name: getattr(self, name)[first:last] for name in self.__struct_fields__})

    @property
    def spans(self) -> Spans:
        """These rows with nothing but what every kind of span has."""
        return Spans(start_ns=self.start_ns, end_ns=self.end_ns, name=self.name, thread=self.thread)


class LaunchSpans(Spans, frozen=True, kw_only=True):
    """Calls of the CUDA or HIP runtime and driver."""

    correlation: Ids
    """Links a call with its device work; :data:`ABSENT` if there is none, likewise below."""
    external_id: Ids


class DeviceSpans(LaunchSpans, frozen=True, kw_only=True):
    """Work on a device: kernels, copies, memsets, and what its streams waited for."""

    stream: Ids
    device: Int32
    """Index into :attr:`Trace.devices`."""
    size_bytes: Int64
    geometry: Int32
    """Index into :attr:`Trace.geometries`."""
    collective: Int32
    """Index into :attr:`Trace.collectives`."""


class OperatorSpans(Spans, frozen=True, kw_only=True):
    """Operators of torch, and ranges that the user or torch named."""

    external_id: Ids
    sequence: Ids
    """Number that a forward operator and its backward share."""
    forward_thread: Ids
    """Torch's number of the thread that ran the forward; positive only in a backward."""
    inputs: Int32
    """Index into :attr:`Trace.inputs`."""
    stack: Int32
    """Index into :attr:`Trace.stacks`; traces until 2022 have a call stack in each operator."""
    collective: Int32


class FrameSpans(Spans, frozen=True, kw_only=True):
    """Calls of Python functions."""

    python_id: Ids
    parent_id: Ids


class MemoryEvents(Spans, frozen=True, kw_only=True):
    """Allocations and frees, in the order of the file; each starts and ends at once."""

    address: Ids
    changed_bytes: Int64
    """Negative when freed."""
    held_bytes: Int64
    """What torch's allocator held afterwards, as it counts; :data:`ABSENT` if the file does not say."""
    place: Ids
    """Number of the device; :data:`ABSENT` for the host's memory."""


def columns_of(kind: type[Spans]) -> Mapping[str, str]:
    """Name and annotation of each column of a table, in order."""
    return {name: text for one in reversed(kind.__mro__) for name, text in vars(one).get("__annotations__", {}).items()}


def dtype_of(annotation: str) -> type[np.int32] | type[np.int64]:
    """The type of a column's numbers."""
    return np.int32 if "Int32" in annotation else np.int64


def is_id_column(annotation: str) -> bool:
    """Whether a column holds numbers that the file gives."""
    return "Ids" in annotation


def narrowed(ids: Int64) -> Ids:
    """The same in four bytes each if they fit."""
    limits = np.iinfo(np.int32)
    fit = not len(ids) or (ids.min() >= limits.min and ids.max() <= limits.max)
    return ids.astype(np.int32) if fit else ids


def joined(kind: type[S], parts: Sequence[Spans]) -> S:
    """All rows of all parts, in order, with the columns of ``kind``, which each part must have.

    Args:
        kind: Class of the tables.
        parts: Tables with its columns.

    Returns:
        The columns of a single part are shared with it; without parts they are empty.
    """
    columns: dict[str, Any] = {}
    for name, annotation in columns_of(kind).items():
        of_parts = [getattr(part, name) for part in parts]
        if len(of_parts) == 1:
            columns[name] = of_parts[0]
        elif of_parts:
            columns[name] = np.concatenate(of_parts)
        else:
            columns[name] = np.zeros(0, dtype_of(annotation))
    return kind(**columns)


def extent_ns(tables: Iterable[Spans]) -> tuple[int, int] | None:
    """First start and last end of everything in some tables; None if all are empty."""
    filled = [table for table in tables if len(table)]
    if not filled:
        return None
    return min(int(table.start_ns.min()) for table in filled), max(int(table.end_ns.max()) for table in filled)


class Geometry(msgspec.Struct, frozen=True, kw_only=True):
    """How a kernel was launched; None where the trace does not say."""

    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers_per_thread: int | None = None
    shared_memory_bytes: int | None = None
    blocks_per_sm: float | None = None
    """Blocks of the grid over multiprocessors, as Kineto writes it."""
    warps_per_sm: float | None = None
    est_occupancy_ratio: float | None = None
    """0 to 1, as Kineto estimated it; None where it wrote 0, its "not known"."""


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator was given, as far as shapes were recorded: one entry per argument in each list."""

    shapes: list[Any]
    """Lists of sizes; an empty list for a scalar, a list of lists for a list of tensors."""
    types: list[str]
    values: list[str] | None
    """What was passed for arguments that are no tensors, as text; None if the trace does not say."""


class Collective(msgspec.Struct, frozen=True, kw_only=True):
    """What torch wrote beside a communication kernel or operator; None where it did not."""

    name: str
    dtype: str | None = None
    elements_in: int | None = None
    elements_out: int | None = None
    group: str | None = None
    group_size: int | None = None


def distinct(values: A) -> A:
    """Each value once, ascending: ``np.unique``, which first imports ``numpy.ma`` for 12 ms.

    Args:
        values: Of one dimension.

    Returns:
        A new array.
    """
    ordered = np.sort(values)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return cast("A", ordered[first])


def is_in(values: Ids, others: Ids) -> Mask:
    """Whether each value is one of the others: ``np.isin``, which may call ``np.unique``.

    Args:
        values: Of one dimension.
        others: Of one dimension, in any order.

    Returns:
        One for each value.
    """
    known = distinct(others)
    if not len(known):
        return np.zeros(len(values), np.bool_)
    found: Mask = known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values
    return found


def summed(label: Rows | Int32 | Int64, values: Int64 | Float64, count: int) -> Int64:
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
    """The share of a part in a whole.

    Args:
        part: In the unit of the whole.
        whole: 0 or None where there is none.

    Returns:
        ``part / whole``; None where there is no whole.
    """
    return part / whole if whole else None


def rows_by(label: Int32) -> list[Rows]:
    """The rows of each label, ascending, in the order of the labels."""
    order = np.argsort(label, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(label[order])) + 1) if len(label) else []
