"""From typed events to columns: one table per kind of event, each column one numpy array."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from operator import attrgetter
from typing import Literal

import numpy as np
import numpy.typing as npt

from lightning_gpuprof.trace.events import Arguments, Event, ExactEvent, Loose

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]

ABSENT = -1
"""Stands in columns of ids and bytes for "the event has none"."""

Kind = Literal["kernel", "memcpy", "memset", "runtime", "cpu_op", "python_function", "annotation"]

KIND_OF_CATEGORY: dict[str, Kind] = {
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
    "cuda_runtime": "runtime",
    "cuda_driver": "runtime",
    "runtime": "runtime",
    "driver": "runtime",
    "cpu_op": "cpu_op",
    "operator": "cpu_op",
    "python_function": "python_function",
    "user_annotation": "annotation",
}
"""Categories in lower case: traces until 2021 write ``Kernel``, ``Operator``, ``Runtime``, ``Memcpy``, ``Memset``."""


@dataclass(frozen=True, kw_only=True)
class Spans:
    """Events of one kind, in the order of the file; all columns have the same length."""

    start_ns: Int64
    end_ns: Int64
    """Never before the start."""
    name: Int32
    """Index into :attr:`Trace.names`."""
    thread: Int32
    """Index into :attr:`Trace.threads`; on devices the stream's row in the viewer."""
    correlation: Int64
    """Links a launch with its device work, :data:`ABSENT` if there is none; likewise the columns below."""
    external_id: Int64
    stream: Int64
    device: Int32
    """Index into :attr:`Trace.devices`."""
    size_bytes: Int64

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def duration_ns(self) -> Int64:
        """Ends minus starts."""
        return self.end_ns - self.start_ns

    def where(self, chosen: npt.NDArray[np.bool_]) -> Spans:
        """The rows for which ``chosen`` is true."""
        return Spans(**{f.name: getattr(self, f.name)[chosen] for f in fields(self)})

    @staticmethod
    def joined(parts: Sequence[Spans]) -> Spans:
        """All rows of all parts, in order."""
        if not parts:
            ints, labels = np.zeros(0, np.int64), np.zeros(0, np.int32)
            return Spans(
                start_ns=ints,
                end_ns=ints,
                name=labels,
                thread=labels,
                correlation=ints,
                external_id=ints,
                stream=ints,
                device=labels,
                size_bytes=ints,
            )
        return Spans(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Spans)})


class Labels(dict[object, int]):
    """Numbers each distinct text once, in order of appearance; ``labels[value]`` runs at C speed through ``map``.

    A name may be an int in the file; it gets the number of its text.
    """

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def __missing__(self, value: object) -> int:
        if isinstance(value, str):
            number = len(self.texts)
            self.texts.append(value)
        else:
            number = self["" if value is None else str(value)]
        self[value] = number
        return number


class _Kinds(dict[Loose, Kind | None]):
    """The kind of each category as it is spelled in this file."""

    def __missing__(self, category: Loose) -> Kind | None:
        kind = self[category] = KIND_OF_CATEGORY.get(str(category).lower())
        return kind


_NO_ARGUMENTS = Arguments()
_DEVICE_KINDS: frozenset[Kind] = frozenset({"kernel", "memcpy", "memset"})
_LINKED_KINDS: frozenset[Kind] = _DEVICE_KINDS | {"runtime"}


class ColumnBuilder:
    """Takes events, piece by piece, and gives columns at the end; the events themselves are not kept."""

    def __init__(self) -> None:
        self.names = Labels()
        self.threads = Labels()
        self.devices = Labels()
        self.events = 0
        """Events taken, of all kinds."""
        self._kinds = _Kinds()
        self._parts: dict[Kind, list[Spans]] = {}

    def add(self, events: Sequence[Event] | Sequence[ExactEvent]) -> None:
        """Take a piece. Events without a start are counted, but have no place in a table.

        Raises:
            OverflowError: A time lies outside of 64-bit nanoseconds.
        """
        self.events += len(events)
        kinds = self._kinds
        sorted_out: dict[Kind, list[Event | ExactEvent]] = {}
        for event in events:
            kind = kinds[event.cat]
            # a time that is not equal to itself is NaN
            if kind is not None and event.ph == "X" and event.ts is not None and event.ts == event.ts:
                sorted_out.setdefault(kind, []).append(event)
        for kind, chosen in sorted_out.items():
            self._parts.setdefault(kind, []).append(self._spans(kind, chosen))

    def table(self, kind: Kind) -> Spans:
        """All events of a kind so far."""
        return Spans.joined(self._parts.get(kind, []))

    def _spans(self, kind: Kind, events: Sequence[Event | ExactEvent]) -> Spans:
        arguments = [event.args or _NO_ARGUMENTS for event in events]
        count = len(events)
        absent = np.broadcast_to(np.int64(ABSENT), count)  # one number, not a column of them
        linked, on_device = kind in _LINKED_KINDS, kind in _DEVICE_KINDS
        start_ns = _to_ns(_column("ts", events))
        return Spans(
            start_ns=start_ns,
            end_ns=start_ns + np.maximum(_to_ns(_column("dur", events)), 0),
            name=_numbered(self.names, _column("name", events), count),
            thread=_numbered(self.threads, zip(_column("pid", events), _column("tid", events), strict=True), count),
            correlation=_to_ids(_column("correlation", arguments)) if linked else absent,
            external_id=_external_ids(arguments),
            stream=_to_ids(_column("stream", arguments)) if on_device else absent,
            device=_numbered(self.devices, map(_device, events, arguments), count)
            if on_device
            else absent.astype(np.int32),
            size_bytes=_to_ids(_column("size_bytes", arguments)) if on_device else absent,
        )


def _column(field: str, items: Iterable[object]) -> list[Loose]:
    get: Callable[[object], Loose] = attrgetter(field)
    return list(map(get, items))


def _numbered(labels: Labels, values: Iterable[object], count: int) -> Int32:
    return np.fromiter(map(labels.__getitem__, values), np.int32, count)


def _device(event: Event | ExactEvent, arguments: Arguments) -> Loose:
    if arguments.device is not None:
        return arguments.device
    return event.pid if arguments.device_id is None else arguments.device_id


def _external_ids(arguments: Sequence[Arguments]) -> Int64:
    ids = _to_ids(_column("external_id", arguments))
    if (ids == ABSENT).all():
        return _to_ids(_column("external_id_2020", arguments))
    return ids


def _to_ids(values: list[Loose]) -> Int64:
    """Integers as they are, also as text; :data:`ABSENT` for everything else, such as 2**64-1, Kineto's "none"."""
    try:
        return np.array(values, np.int64)
    except (ValueError, TypeError, OverflowError):
        return np.array([_to_id(value) for value in values], np.int64)


def _to_id(value: Loose) -> int:
    try:
        number = int(value) if value is not None else ABSENT
    except (ValueError, OverflowError):
        return ABSENT
    return number if -(2**63) <= number < 2**63 else ABSENT


def _to_ns(values_us: Sequence[Loose | Decimal]) -> Int64:
    """Microseconds to whole nanoseconds; exact for integers, for decimals and for floats below 2**43."""
    array = np.array(values_us)
    if array.dtype.kind == "i":
        return array.astype(np.int64) * 1000
    if array.dtype.kind == "f" and np.isfinite(array).all():
        whole = np.floor(array)  # apart, as the product could round a second time
        ns: Int64 = whole.astype(np.int64) * 1000 + np.rint((array - whole) * 1000).astype(np.int64)
        return ns
    return np.array([_one_to_ns(value) for value in values_us], np.int64)


def _one_to_ns(value_us: Loose | Decimal) -> int:
    try:
        return round(Decimal(value_us or 0) * 1000)
    except (ArithmeticError, ValueError):  # not a number, not finite
        return 0
