"""Typed events as columns: one table per kind of event, each column one numpy array."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from msgspec import Raw

from lightning_gpuprof.trace.events import (
    NOTHING,
    AnyArguments,
    AnyEvent,
    DeviceArguments,
    Known,
    KnownMoment,
    Loose,
    MemoryArguments,
    NoSpan,
    OperatorArguments,
)
from lightning_gpuprof.trace.tables import (
    ABSENT,
    DeviceSpans,
    FrameSpans,
    Int32,
    Int64,
    LaunchSpans,
    MemoryEvents,
    OperatorSpans,
    S,
    Spans,
    columns_of,
    dtype_of,
    is_id_column,
    narrowed,
)
from lightning_gpuprof.trace.times import LATEST_NS, LONGEST_NS, Times, is_moment, joined_ns, times_of

Kind = Literal[
    "kernel",
    "memcpy",
    "memset",
    "device_wait",
    "runtime",
    "cpu_op",
    "annotation",
    "python_function",
    "overhead",
    "memory",
]

KIND_OF_CATEGORY: dict[str, Kind] = {
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
    "cuda_sync": "device_wait",
    "cuda_runtime": "runtime",
    "cuda_driver": "runtime",
    "runtime": "runtime",
    "driver": "runtime",
    "cpu_op": "cpu_op",
    "operator": "cpu_op",
    "user_annotation": "annotation",
    "python_function": "python_function",
    "overhead": "overhead",
    "cpu_instant_event": "memory",
}
"""Categories in lower case: traces until 2021 write ``Kernel``, ``Operator``, ``Runtime``, ``Memcpy``, ``Memset``."""

MOMENTS = frozenset(category for category, kind in KIND_OF_CATEGORY.items() if kind == "memory")
"""Categories of events without a duration."""

TABLE_OF_KIND: dict[Kind, type[Spans]] = {
    "kernel": DeviceSpans,
    "memcpy": DeviceSpans,
    "memset": DeviceSpans,
    "device_wait": DeviceSpans,
    "runtime": LaunchSpans,
    "cpu_op": OperatorSpans,
    "annotation": OperatorSpans,
    "python_function": FrameSpans,
    "overhead": Spans,
    "memory": MemoryEvents,
}


class Labels(dict[object, int]):
    """Numbers each distinct value once, in order of appearance; ``labels[value]`` runs at C speed.

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


class Numbers(dict[Any, int]):
    """Numbers each distinct key once, in order of appearance."""

    def __missing__(self, key: object) -> int:
        number = self[key] = len(self)
        return number


_NO_ARGUMENTS = AnyArguments()


class ColumnBuilder:
    """Takes events, piece by piece, and gives columns at the end; the events themselves are not kept.

    Args:
        frames: Whether calls of Python functions get a table.
    """

    def __init__(self, *, frames: bool = True) -> None:
        self.names = Labels()
        self.threads = Labels()
        self.devices = Labels()
        self.geometries = Numbers()
        self.inputs = Numbers()
        self.stacks = Labels()
        self.collectives = Numbers()
        self.events = 0
        """Events taken, of all kinds."""
        self.categories: dict[str, int] = {}
        """Spans of each category as it is spelled."""
        self.timeless = 0
        """Spans without a start, which are left out."""
        self.backwards = 0
        """Spans that end before they start, which count as empty; known once the tables are made."""
        self.call_stacks = 0
        """Operators that say something of their call stack, though it may be empty."""
        self._threads_of_process: dict[Loose, _ThreadsOfProcess] = {}
        self.frames = frames
        self._parts: dict[Kind, list[_Part]] = {kind: [] for kind in get_args(Kind)}

    def add(self, events: Sequence[AnyEvent]) -> None:
        """Take a piece. Events without a start are counted, but have no place in a table.

        Raises:
            InexactTimesError: A time is a float64 that cannot hold it to the nanosecond; nothing was taken.
            OverflowError: A time lies outside of 64-bit nanoseconds.
        """
        of_category = _by_category(events)
        parts = []
        timeless = 0
        for category, chosen in of_category.items():
            kind = KIND_OF_CATEGORY.get(category.lower())
            if kind is not None and (self.frames or kind != "python_function"):
                starts_us = [event.ts for event in chosen]
                if None in starts_us or isinstance(starts_us[0], Decimal):  # which may be "not a number"
                    chosen = [event for event in chosen if is_moment(event.ts)]
                    timeless += len(starts_us) - len(chosen)
                    starts_us = [event.ts for event in chosen]
                if chosen:
                    parts.append((kind, self._part(kind, chosen, starts_us)))
        for kind, part in parts:
            self._parts[kind].append(part)
        for category, chosen in of_category.items():
            if category in MOMENTS:
                continue
            self.categories[category] = self.categories.get(category, 0) + len(chosen)
        self.timeless += timeless
        self.events += len(events)

    def table(self, kind: Kind, type_: type[S]) -> S:
        """All events of a kind; they are given once and not kept.

        Args:
            kind: Kind of event.
            type_: Class of the table.

        Returns:
            In the order in which they were added, times in ns; a negative duration is counted and becomes 0.
        """
        parts = self._parts.pop(kind)
        columns: dict[str, Any] = {}
        for name, annotation in columns_of(type_).items():
            if name not in ("start_ns", "end_ns"):
                column = _joined([part.columns.pop(name) for part in parts], dtype_of(annotation))
                columns[name] = narrowed(column) if is_id_column(annotation) else column
        start_ns = joined_ns([part.start for part in parts])
        duration_ns = joined_ns([part.duration for part in parts])
        self.backwards += int(np.count_nonzero(duration_ns < 0))
        return type_(start_ns=start_ns, end_ns=start_ns + np.maximum(duration_ns, 0), **columns)

    def absorb(self, other: ColumnBuilder) -> None:
        """Take everything that another builder took, as if it came next."""
        numbers = {
            "name": _renumbered(self.names, other.names.texts),
            "thread": _renumbered(self.threads, other.threads.texts),
            "device": _renumbered(self.devices, other.devices.texts),
            "geometry": _renumbered(self.geometries, other.geometries),
            "inputs": _renumbered(self.inputs, other.inputs),
            "stack": _renumbered(self.stacks, other.stacks.texts),
            "collective": _renumbered(self.collectives, other.collectives),
        }
        for kind, parts in other._parts.items():
            for part in parts:
                columns = {
                    name: numbers[name][column] if name in numbers else column for name, column in part.columns.items()
                }
                self._parts[kind].append(part._replace(columns=columns))
        for category, count in other.categories.items():
            self.categories[category] = self.categories.get(category, 0) + count
        self.timeless += other.timeless
        self.events += other.events
        self.call_stacks += other.call_stacks

    def _part(self, kind: Kind, events: Sequence[Any], starts_us: list[Loose | Decimal]) -> _Part:
        arguments: list[Any] = [event.args or _NO_ARGUMENTS for event in events]
        start = times_of(starts_us, most=LATEST_NS)
        duration = times_of([event.dur for event in events], most=LONGEST_NS, exact=False)
        columns: dict[str, Any] = {
            "name": _numbered(self.names, [event.name for event in events]),
            "thread": self._thread(events),
        }
        type_ = TABLE_OF_KIND[kind]
        if issubclass(type_, LaunchSpans):
            columns["correlation"] = _to_ids([a.correlation for a in arguments])
            columns["external_id"] = _external_ids(arguments)
        if issubclass(type_, DeviceSpans):
            columns["stream"] = _to_ids([a.stream for a in arguments])
            columns["device"] = _numbered(self.devices, list(map(_device, events, arguments)))
            columns["size_bytes"] = _to_ids([a.size_bytes for a in arguments])
            columns["geometry"] = _numbered(self.geometries, _geometries(arguments))
            columns["collective"] = self._collective(arguments)
        if type_ is OperatorSpans:
            columns["external_id"] = _external_ids(arguments)
            columns["sequence"] = _to_ids([a.sequence for a in arguments])
            columns["forward_thread"] = _to_ids([a.forward_thread for a in arguments])
            columns["inputs"] = self._inputs(arguments)
            columns["stack"] = self._stack(arguments)
            columns["collective"] = self._collective(arguments)
        if type_ is MemoryEvents:
            columns["address"] = _to_ids([a.address for a in arguments])
            columns["changed_bytes"] = _to_ids([a.changed_bytes for a in arguments])
            columns["held_bytes"] = _to_ids([a.held_bytes for a in arguments])
            columns["place"] = _to_ids([_place(a) for a in arguments])
        if type_ is FrameSpans:
            columns["python_id"] = _to_ids([a.python_id for a in arguments])
            columns["parent_id"] = _to_ids([a.parent_id for a in arguments])
        return _Part(start, duration, columns)

    def _thread(self, events: Sequence[Any]) -> Int32:
        processes = {event.pid for event in events}
        if len(processes) != 1:
            return np.array([self._threads_of(event.pid)[event.tid] for event in events], np.int32)
        threads = self._threads_of(processes.pop())
        return _numbered(threads, [event.tid for event in events])

    def _threads_of(self, process: Loose) -> _ThreadsOfProcess:
        found = self._threads_of_process.get(process)
        if found is None:
            found = self._threads_of_process[process] = _ThreadsOfProcess(process, self.threads)
        return found

    def _inputs(self, arguments: Sequence[OperatorArguments]) -> Int32:
        shapes = [a.shapes for a in arguments]
        if _all_empty(shapes):
            shapes = [a.shapes_2021 for a in arguments]
            if _all_empty(shapes):
                return np.full(len(arguments), ABSENT, np.int32)
        numbers = self.inputs
        return np.array(
            [
                ABSENT if shape is NOTHING else numbers[bytes(shape), bytes(a.types), bytes(a.values)]
                for shape, a in zip(shapes, arguments, strict=True)
            ],
            np.int32,
        )

    def _stack(self, arguments: Sequence[OperatorArguments]) -> Int32:
        stacks = [a.stack for a in arguments]
        if stacks.count(None) == len(stacks):
            return np.full(len(stacks), ABSENT, np.int32)
        self.call_stacks += len(stacks) - stacks.count(None)
        numbers = self.stacks
        return np.array([numbers[stack] if stack else ABSENT for stack in stacks], np.int32)

    def _collective(self, arguments: Sequence[DeviceArguments | OperatorArguments]) -> Int32:
        names = [a.collective for a in arguments]
        if names.count(None) == len(names):
            return np.full(len(names), ABSENT, np.int32)
        numbers = self.collectives
        return np.array(
            [numbers[_collective(a)] if name else ABSENT for name, a in zip(names, arguments, strict=True)], np.int32
        )


class _ThreadsOfProcess(dict[Loose, int]):
    """The numbers of a process's threads."""

    def __init__(self, process: Loose, threads: Labels) -> None:
        super().__init__()
        self._process = process
        self._threads = threads

    def __missing__(self, thread: Loose) -> int:
        number = self[thread] = self._threads[f"{_text(self._process)}/{_text(thread)}"]
        return number


def _renumbered(numbers: dict[Any, int], keys: Iterable[object]) -> Int32:
    """Our number of each of another builder's; the last entry is that of its :data:`ABSENT`, which indexes it."""
    return np.array([*(numbers[key] for key in keys), ABSENT], np.int32)


def _text(value: Loose) -> str:
    return "" if value is None else str(value)


def _by_category(events: Sequence[AnyEvent]) -> dict[str, list[Any]]:
    """The spans and moments among events."""
    if events and isinstance(events[0], (Known, KnownMoment, NoSpan)):
        into = _Lists()
        for event in events:
            into[type(event)](event)
        return {kind.cat: found for kind, found in into.found.items() if issubclass(kind, (Known, KnownMoment))}
    of_category: dict[str, list[Any]] = {}
    for event in events:
        if not isinstance(event, NoSpan) and (event.ph == "X" or event.cat in MOMENTS):
            of_category.setdefault(str(event.cat), []).append(event)
    return of_category


class _Lists(dict[type[AnyEvent], Callable[[AnyEvent], None]]):
    """What takes events of a type; looked up once for each, where a list would look up its ``append`` as well."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[type[AnyEvent], list[Any]] = {}

    def __missing__(self, type_: type[AnyEvent]) -> Callable[[AnyEvent], None]:
        take = self[type_] = self.found.setdefault(type_, []).append
        return take


def _all_empty(texts: list[Raw]) -> bool:
    return (not texts or texts[0] is NOTHING) and texts.count(NOTHING) == len(texts)


def _numbered(numbers: dict[Any, int], keys: list[Any]) -> Int32:
    """The number of each key; fast as no line of Python runs for a key that is known."""
    return np.fromiter(map(numbers.__getitem__, keys), np.int32, len(keys))


def _geometries(arguments: Sequence[DeviceArguments]) -> list[tuple[Any, ...]]:
    # bytes: a Raw keeps the whole piece alive
    return [
        (bytes(a.grid), bytes(a.block), a.registers, a.shared_memory, a.blocks_per_sm, a.warps_per_sm, a.occupancy)
        for a in arguments
    ]


_collective: Callable[[object], tuple[Any, ...]] = attrgetter(
    "collective", "dtype", "elements_in", "elements_out", "group", "group_size"
)


def _device(event: Any, arguments: DeviceArguments) -> Loose:
    if arguments.device is not None:
        return arguments.device
    device: Loose = event.pid if arguments.device_id is None else arguments.device_id
    return device


def _place(arguments: MemoryArguments | AnyArguments) -> Loose:
    """Number of the device; :data:`ABSENT` for the host's memory."""
    return ABSENT if arguments.device_type in (0, "0") else arguments.device_id


def _external_ids(arguments: Sequence[Any]) -> Int64:
    ids = _to_ids([a.external_id for a in arguments])
    if len(ids) and ids[0] == ABSENT and (ids == ABSENT).all():
        return _to_ids([a.external_id_2020 for a in arguments])
    return ids


def _to_ids(values: list[Loose]) -> Int64:
    """Integers as they are, also as text; :data:`ABSENT` for everything else, such as 2**64-1, Kineto's "none"."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except (ValueError, TypeError, OverflowError):
        return np.array([_to_id(value) for value in values], np.int64)


def _to_id(value: Loose) -> int:
    try:
        number = int(value) if value is not None else ABSENT
    except (ValueError, OverflowError):
        return ABSENT
    return number if -(2**63) <= number < 2**63 else ABSENT


class _Part(NamedTuple):
    """The events of a piece."""

    start: Times
    duration: Times
    columns: dict[str, Any]


def _joined(columns: Sequence[Int64 | Int32], dtype: type[np.int32] | type[np.int64]) -> Any:
    return np.concatenate(columns) if columns else np.zeros(0, dtype)
