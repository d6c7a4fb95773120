"""From a Kineto trace file to a :class:`Trace`: the columns of everything that was recorded in a window."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from lightning_gpuprof.errors import TraceError
from lightning_gpuprof.trace.chunks import BLOCK_BYTES, Pieces
from lightning_gpuprof.trace.columns import ColumnBuilder, Spans
from lightning_gpuprof.trace.compression import GZIP_ERRORS, open_json
from lightning_gpuprof.trace.events import AnyDocument, ExactEvent, Loose, decode, decode_one_by_one
from lightning_gpuprof.trace.repair import repaired

How = Literal["stream", "whole", "repaired", "one by one"]
"""How a trace was read: in pieces; at once; at once after a repair of its text; so, and each event alone."""

_BEGIN_BYTES = 64
_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_AGAIN = "Record the window again, or give another trace."
_WHAT_TO_GIVE = "Give a *.pt.trace.json or *.pt.trace.json.gz file written by torch.profiler."


@dataclass(frozen=True, kw_only=True)
class Trace:
    """All spans of a trace in columns. Times are nanoseconds on the trace's clock.

    Device work is in ``kernel``, ``memcpy`` and ``memset``; launches and other driver calls in ``runtime``; operators
    in ``cpu_op``; ranges that the user or torch named in ``annotation``.
    """

    kernel: Spans
    memcpy: Spans
    memset: Spans
    runtime: Spans
    cpu_op: Spans
    python_function: Spans
    annotation: Spans
    names: tuple[str, ...]
    """The texts that :attr:`Spans.name` counts; likewise below."""
    threads: tuple[str, ...]
    """``(process, thread)`` as text."""
    devices: tuple[str, ...]
    events: int
    """Entries of the file, of all kinds, readable or not."""
    bytes_json: int
    """Size of the JSON, decompressed."""
    base_time_ns: int | None
    """Unix time of the trace clock's zero; None if the file does not say, then its clock mostly is Unix time."""
    how: How
    unreadable: int = 0
    """Entries that are no events."""

    @property
    def device_work(self) -> Spans:
        """Kernels, then copies, then memsets."""
        return Spans.joined([self.kernel, self.memcpy, self.memset])

    @staticmethod
    def read(path: str | os.PathLike[str], *, block_bytes: int = BLOCK_BYTES) -> Trace:
        """Read a trace, plain or gzip.

        Args:
            path: The file; its name does not matter.
            block_bytes: Bytes of JSON that are in memory at a time.

        Returns:
            The trace. A trace without steps, operators or GPU is valid.

        Raises:
            TraceError: The file is missing, a folder, empty, cut off, broken, or not a Kineto trace.
        """
        file = Path(path)
        try:
            return _read(file, block_bytes)
        except FileNotFoundError:
            raise TraceError(f"{file}: there is no such file. {_WHAT_TO_GIVE}") from None
        except IsADirectoryError:
            found = sorted(f.name for f in file.iterdir() if ".json" in f.suffixes and "trace" in f.name)
            hint = f"Give one of its traces: {', '.join(found[:5])}." if found else _WHAT_TO_GIVE
            raise TraceError(f"{file}: this is a folder. {hint}") from None
        except EOFError:
            raise TraceError(
                f"{file}: the gzip file is cut off, its writer was stopped or is not done yet. {_AGAIN}"
            ) from None
        except GZIP_ERRORS as error:
            raise TraceError(f"{file}: the gzip file is broken ({error}). {_AGAIN}") from None
        except OSError as error:
            raise TraceError(f"{file}: cannot be read ({error.strerror or error}).") from None
        except OverflowError:
            raise TraceError(f"{file}: a time in the trace does not fit 64-bit nanoseconds. {_AGAIN}") from None


def _read(file: Path, block_bytes: int) -> Trace:
    with open_json(file) as stream:
        _refuse_other_formats(file, stream.read(_BEGIN_BYTES))
    try:
        return _read_stream(file, block_bytes)
    except _NOT_JSON:
        pass  # cut in the wrong place, or wrong in itself: the ways below tell
    with open_json(file) as stream:
        text = stream.read()
    try:
        return _built([decode(text)], len(text), "whole")
    except _NOT_JSON:
        pass
    size = len(text)
    text = repaired(text)
    try:
        return _built([decode(text)], size, "repaired")
    except _NOT_JSON:
        pass
    try:
        document, unreadable = decode_one_by_one(text)
    except _NOT_JSON as error:
        raise _explained(file, text, error) from None
    if unreadable and not document.events:
        raise TraceError(f"{file}: holds a list of other things than trace events. {_WHAT_TO_GIVE}")
    return _built([document], size, "one by one", unreadable)


def _read_stream(file: Path, block_bytes: int) -> Trace:
    builder = ColumnBuilder()
    base_time: Loose = None
    exact = False
    with open_json(file) as stream:
        pieces = Pieces(stream, block_bytes=block_bytes)
        for piece in pieces:
            document = decode(piece, exact=exact)
            # a file whose times need every digit needs them to its end
            exact = exact or any(isinstance(event, ExactEvent) for event in document.events[:1])
            builder.add(document.events)
            base_time = document.base_time
    return _trace(builder, base_time, pieces.bytes_read, "stream")


def _built(documents: list[AnyDocument], bytes_json: int, how: How, unreadable: int = 0) -> Trace:
    builder = ColumnBuilder()
    for document in documents:
        builder.add(document.events)
    return _trace(builder, documents[-1].base_time, bytes_json, how, unreadable)


def _trace(builder: ColumnBuilder, base_time: Loose, bytes_json: int, how: How, unreadable: int = 0) -> Trace:
    return Trace(
        kernel=builder.table("kernel"),
        memcpy=builder.table("memcpy"),
        memset=builder.table("memset"),
        runtime=builder.table("runtime"),
        cpu_op=builder.table("cpu_op"),
        python_function=builder.table("python_function"),
        annotation=builder.table("annotation"),
        names=tuple(builder.names.texts),
        threads=tuple(builder.threads.texts),
        devices=tuple(builder.devices.texts),
        events=builder.events + unreadable,
        bytes_json=bytes_json,
        base_time_ns=int(base_time) if isinstance(base_time, int) else None,
        how=how,
        unreadable=unreadable,
    )


def _refuse_other_formats(file: Path, begin: bytes) -> None:
    """Tell by the first bytes, so that a large file of another kind is not read to its end."""
    text = begin.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text and len(begin) < _BEGIN_BYTES:
        raise TraceError(f"{file}: the file is empty, its writer was stopped before it wrote. {_AGAIN}")
    if text and text[:1] not in (b"{", b"["):
        raise TraceError(f"{file}: is not JSON, it begins with {text[:12]!r}. {_WHAT_TO_GIVE}")


def _explained(file: Path, text: bytes, error: Exception) -> TraceError:
    if "truncated" in str(error):
        return TraceError(f"{file}: the JSON is cut off after {len(text)} bytes, its writer was stopped. {_AGAIN}")
    if isinstance(error, msgspec.ValidationError):
        return TraceError(f"{file}: is JSON without a list 'traceEvents', not a Kineto trace. {_WHAT_TO_GIVE}")
    return TraceError(f"{file}: cannot be read as JSON ({error}). {_AGAIN}")
