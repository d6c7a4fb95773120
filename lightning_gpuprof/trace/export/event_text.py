"""What an annotated trace adds, rows of named stretches and counters, as the text of events that viewers draw."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from lightning_gpuprof.trace.events import INEXACT_FROM_US
from lightning_gpuprof.trace.tables import Float64, Int64, Rows

CATEGORY = "gpuprof"
"""Of all spans that are added; no category of Kineto's, so that no reader takes them for something recorded."""

_PROCESS = "gpuprof"
_ON_TOP = -1
"""Viewers sort processes by this number; Kineto gives its own 0 and more."""

_CHUNK = 1 << 13
"""Events whose numbers are Python objects at a time."""


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """What a stretch of time is called, and what a click on it shows."""

    name: str
    notes: Mapping[str, str]
    """Shown beneath the name; may be empty."""


class SliceTrack(msgspec.Struct, frozen=True, kw_only=True):
    """A row of disjoint stretches of time; all columns are equally long."""

    name: str
    start_ns: Int64
    end_ns: Int64
    label: Rows
    """Index into :attr:`labels`."""
    labels: tuple[Label, ...]


class CounterTrack(msgspec.Struct, frozen=True, kw_only=True):
    """A value over time: it holds from its moment to the next one."""

    name: str
    """What is counted: ``GPU 0 power``."""
    unit: str
    """Shown behind the name: ``W``."""
    time_ns: Int64
    """On the trace's clock: Unix time less :attr:`Trace.base_time_ns`."""
    value: Float64
    """What is not finite is left out: nothing was measured there."""


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of the whole trace: instants, one after the other."""

    labels: tuple[Label, ...] = ()
    start_ns: int = 0
    """Of the first one; the others follow a microsecond after each other, so that each can be clicked."""


NO_MARKS = Marks()


def track_events(
    slices: Sequence[SliceTrack], counters: Sequence[CounterTrack], process: int, marks: Marks = NO_MARKS
) -> Iterator[bytes]:
    """The events of one process with a thread for each row.

    Args:
        slices: Rows, from the top.
        counters: Values over time; their rows are named by viewers.
        process: A number that no process and no GPU of the trace has. The rows are the threads after it.
        marks: Instants above the rows.

    Returns:
        JSON text as Kineto writes it, without the braces around each event; nothing if there are no tracks.
    """
    if not slices and not counters and not marks.labels:
        return
    yield _metadata("process_name", process, process, {"name": _PROCESS})
    yield _metadata("process_sort_index", process, process, {"sort_index": _ON_TOP})
    # a thread with the number of its process would be its main thread, which Perfetto shows before all others
    for thread, track in enumerate(slices, start=process + 1):
        yield _metadata("thread_name", process, thread, {"name": track.name})
        yield _metadata("thread_sort_index", process, thread, {"sort_index": thread - process})
        yield from _slices(track, process, thread)
    for counter in counters:
        yield from _values(counter, process)
    for number, label in enumerate(marks.labels):
        time_us = (marks.start_ns + 500) // 1000 + number
        yield f'{_head("i", label.name, process, process)}{time_us}, "s": "p"{_notes(label)}'.encode()


def _slices(track: SliceTrack, process: int, thread: int) -> Iterator[bytes]:
    starts, durations, in_ns = _as_float_us(track.start_ns, track.end_ns)
    shown = np.flatnonzero(durations > 0)
    heads = [_head("X", label.name, process, thread) for label in track.labels]
    tails = [_notes(label) for label in track.labels]
    for begin in range(0, len(shown), _CHUNK):
        rows = shown[begin : begin + _CHUNK]
        columns = (_texts(starts[rows], in_ns), _texts(durations[rows], in_ns), track.label[rows].tolist())
        for start, duration, label in zip(*columns, strict=True):
            yield f'{heads[label]}{start}, "dur": {duration}{tails[label]}'.encode()


def _values(counter: CounterTrack, process: int) -> Iterator[bytes]:
    known = np.isfinite(counter.value)
    times, _, in_ns = _as_float_us(counter.time_ns[known], counter.time_ns[known])
    head = _head("C", counter.name, process, process)
    unit = _json(counter.unit or "value")
    for begin in range(0, len(times), _CHUNK):
        values = counter.value[known][begin : begin + _CHUNK].tolist()
        for time, value in zip(_texts(times[begin : begin + _CHUNK], in_ns), values, strict=True):
            yield f'{head}{time}, "args": {{{unit}: {value:.15g}}}'.encode()


def _as_float_us(start_ns: Int64, end_ns: Int64) -> tuple[Int64, Int64, bool]:
    """Start, duration, and whether both are in nanoseconds, else in microseconds.

    Viewers read times as float64 microseconds. Perfetto makes whole nanoseconds of them, and of two stretches that
    overlap in even one it drops the second. So durations are from the start as it is read to the end as it is read.
    Where float64 cannot hold a nanosecond, as for Unix times, times are whole microseconds, which are read exactly.
    """
    if len(start_ns) and max(abs(int(start_ns.min())), abs(int(end_ns.max()))) >= INEXACT_FROM_US * 1000:
        start_us, end_us = (start_ns + 500) // 1000, (end_ns + 500) // 1000
        return start_us, end_us - start_us, False
    return start_ns, _as_read(end_ns) - _as_read(start_ns), True


def _as_read(time_ns: Int64) -> Int64:
    """What Perfetto makes of a time; from 2**42 microseconds on that may be one nanosecond more or less."""
    read = time_ns / 1000 * 1000.0
    whole = np.floor(read)
    return whole.astype(np.int64) + (read - whole >= 0.5)


def _texts(values: Int64, in_ns: bool) -> list[str]:
    """Microseconds as text."""
    return [_microseconds(value) if in_ns else str(value) for value in values.tolist()]


def _microseconds(time_ns: int) -> str:
    sign, time_ns = ("-", -time_ns) if time_ns < 0 else ("", time_ns)
    return f"{sign}{time_ns // 1000}.{time_ns % 1000:03d}"


def _head(kind: str, name: str, process: int, thread: int) -> str:
    """All of an event that comes before its time."""
    return f'"ph": "{kind}", "cat": "{CATEGORY}", "name": {_json(name)}, "pid": {process}, "tid": {thread}, "ts": '


def _notes(label: Label) -> str:
    return f', "args": {_json(dict(label.notes))}' if label.notes else ""


def _metadata(name: str, process: int, thread: int, args: dict[str, object]) -> bytes:
    return f'"ph": "M", "name": "{name}", "pid": {process}, "tid": {thread}, "args": {_json(args)}'.encode()


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
