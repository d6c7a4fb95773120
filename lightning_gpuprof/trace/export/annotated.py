"""Copies a trace file and adds the rows of an analysis on top, for Perfetto and chrome://tracing."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from lightning_gpuprof.errors import TraceError
from lightning_gpuprof.trace.compression import READ_ERRORS, fastest_gzip, open_json, replacing
from lightning_gpuprof.trace.export.derived_tracks import queue_tracks, slice_tracks
from lightning_gpuprof.trace.export.event_text import CATEGORY, NO_MARKS, CounterTrack, Label, Marks, track_events
from lightning_gpuprof.trace.export.splice import spliced
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace
from lightning_gpuprof.trace.repair import repaired
from lightning_gpuprof.trace.tables import extent_ns

_FIRST_FREE_PROCESS = 1 << 22
"""Linux gives processes smaller numbers (``PID_MAX_LIMIT``), and Kineto gives GPUs those from 0 on."""


def write_annotated(
    source: Path,
    target: Path,
    linked: LinkedTrace,
    *,
    counters: Sequence[CounterTrack] = (),
    findings: Sequence[Label] = (),
) -> None:
    """Copy a trace and add a process ``gpuprof`` on top: phases, and per device what it did and why it was idle.

    Nothing that was recorded changes. Text that is no JSON (see :func:`repaired`) is copied as it was understood.

    Args:
        source: The trace, plain or gzip.
        target: The annotated trace, replaced if it exists; gzip if its name ends in ``.gz``.
        linked: What was read from ``source``.
        counters: Further values over time.
        findings: What is said of the trace, as instants at its start.

    Raises:
        TraceError: The source cannot be read, is no JSON, is no longer what was read, or has such rows already; or the
            target cannot be written.
    """
    if linked.trace.how == "nsys":
        raise TraceError(f"{source}: rows can only be added to a JSON trace. Open the report itself in nsys-ui.")
    if CATEGORY in linked.trace.categories:
        raise TraceError(f"{source}: is already annotated. Give the recorded trace.")
    trace = linked.trace
    begin = extent_ns((trace.runtime, trace.cpu_op, trace.annotation, trace.device_work))
    marks = Marks(labels=tuple(findings), start_ns=begin[0]) if begin is not None else NO_MARKS
    events = track_events(slice_tracks(linked), (*queue_tracks(linked), *counters), _free_process(trace), marks)
    try:
        with _text_of(source, linked.trace) as stream, replacing(target) as file, _packed(file, target) as packed:
            for block in spliced(stream, events):
                packed.write(block)
    except TraceError as error:
        raise TraceError(f"{source}: {error}") from None
    except READ_ERRORS as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise TraceError(f"cannot write {target} from {source}: {reason}.") from error


@contextmanager
def _text_of(source: Path, trace: Trace) -> Iterator[BinaryIO]:
    with open_json(source) as stream:
        if trace.how in ("repaired", "one by one"):
            yield io.BytesIO(repaired(stream.read()))
        else:
            yield stream


@contextmanager
def _packed(file: BinaryIO, target: Path) -> Iterator[BinaryIO]:
    if target.suffix != ".gz":
        yield file
        return
    with fastest_gzip()(filename="", mode="wb", compresslevel=1, fileobj=file) as packed:
        yield cast(BinaryIO, packed)


def _free_process(trace: Trace) -> int:
    """A number that no process of the trace has."""
    taken = {thread.partition("/")[0] for thread in trace.threads}
    number = _FIRST_FREE_PROCESS
    while str(number) in taken:
        number += 1
    return number
