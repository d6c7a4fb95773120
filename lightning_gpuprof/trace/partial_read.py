"""The second half of a big trace is read in a process of its own, while this one reads the first.

What the other process read comes through a pipe, pickled. It is a fresh process where the one that reads may have
threads and a GPU; a command of ours has neither and is copied.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import msgspec

from lightning_gpuprof.trace.chunks import Pieces
from lightning_gpuprof.trace.columns import ColumnBuilder
from lightning_gpuprof.trace.compression import is_gzip, open_json
from lightning_gpuprof.trace.copied_process import in_a_copy
from lightning_gpuprof.trace.events import AnyDocument, EventDecoder
from lightning_gpuprof.trace.times import InexactTimesError

TWO_FROM_BYTES = 128 << 20
"""JSON from which a second process saves more time than its start costs, 0.2 s."""
TWO_BY_FORK_FROM_BYTES = 20 << 20
"""The same of one that is a copy of this."""

_FIRST_SHARE_PLAIN = 0.52
_FIRST_SHARE_GZIP = 0.6
_FIRST_SHARE_COPIED = 0.54
_LEAST_FIRST_SHARE = 0.2
_BUSY_BYTES = 18 << 20
"""Of the JSON, by this process: more where the other starts later, as a fresh one does, or unpacks a compressed file
from its begin; less where this one has other work first: imports, in which it could read so many bytes."""
_START = f"import sys; sys.path = list(filter(None, sys.path)); from {__name__} import main; main()"
"""Not ``-m``: what is defined in a main module cannot be unpickled here. Nothing is imported from the folder that
this runs in: traces may lie there beside anything."""
_RATIO_MIN = 3
"""No JSON trace compresses less; where the size that gzip notes modulo 4 GiB says so, it has wrapped around."""


class PartialRead(NamedTuple):
    """What one process read."""

    builder: ColumnBuilder
    document: AnyDocument | None
    """What is around the events; None if the other half holds it."""
    bytes_json: int


def read_part(path: Path, *, frames: bool, block_bytes: int, begin: int = 0, stop: int | None = None) -> PartialRead:
    """Read the events of a file in pieces, all or those of one half.

    Args:
        path: The file.
        frames: Whether calls of Python functions are read.
        block_bytes: Bytes of JSON in memory at a time.
        begin: Offset in the JSON from which on events are taken.
        stop: Offset up to which; None for the end.

    Returns:
        Without a document if it stopped before the end of the JSON.

    Raises:
        msgspec.DecodeError: A piece is not JSON.
        OSError: The file cannot be read; further :data:`GZIP_ERRORS`.
        OverflowError: A time does not fit.
    """
    with open_json(path) as stream:
        pieces = Pieces(stream, block_bytes=block_bytes, begin=begin, stop=stop)
        builder, document = add_all(pieces, frames=frames)
    return PartialRead(builder, None if pieces.ended_early else document, pieces.bytes_read)


def add_all(pieces: Pieces, *, frames: bool) -> tuple[ColumnBuilder, AnyDocument | None]:
    """Columns of all pieces, and the document of the last one.

    Args:
        pieces: Pieces of the JSON.
        frames: Whether calls of Python functions are read.

    Returns:
        The columns, and the document without its events; None if there was no piece.
    """
    builder = ColumnBuilder(frames=frames)
    decoder = EventDecoder(frames=frames)
    document: AnyDocument | None = None
    with _gc_paused():
        for piece in pieces:
            document = add(builder, decoder, piece)
    return builder, document


@contextmanager
def _gc_paused() -> Iterator[None]:
    """Lists of events hold no cycles; looking for some takes a quarter of the time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def add(builder: ColumnBuilder, decoder: EventDecoder, text: bytes | bytearray) -> AnyDocument:
    """Take one piece.

    Args:
        builder: Takes the events.
        decoder: Decodes them.
        text: One piece, whole events only.

    Returns:
        The document around the events, which are not kept in it.
    """
    document = decoder.decode(text)
    try:
        builder.add(document.events)
    except InexactTimesError:
        decoder.exact = True  # a file whose times need every digit needs them to its end
        document = decoder.decode(text)
        builder.add(document.events)
    return msgspec.structs.replace(document, events=[])


def size_of_json(path: Path) -> int:
    """Bytes of JSON in a file as far as known without reading it; only a guess if it is compressed."""
    size = path.stat().st_size
    if not is_gzip(path) or size < 8:
        return size
    with path.open("rb") as file:
        file.seek(-4, os.SEEK_END)
        noted = int.from_bytes(file.read(4), "little")
    while noted < _RATIO_MIN * size:
        noted += 1 << 32
    return noted


def read_in_two(
    path: Path,
    size_json: int,
    *,
    frames: bool,
    block_bytes: int,
    fork: bool = False,
    meanwhile: Callable[[], None] | None = None,
) -> PartialRead | None:
    """Read a file in two processes.

    Args:
        path: The file.
        size_json: See :func:`size_of_json`; only what is halved depends on it.
        frames: Whether calls of Python functions are wanted.
        block_bytes: Bytes of JSON in memory at a time, in each process.
        fork: The second process may be a copy of this one, see :meth:`Trace.read`.
        meanwhile: What this process does first, once the other has started.

    Returns:
        As of the whole file; None if the second process failed, which says nothing about the file.

    Raises:
        msgspec.DecodeError: As :func:`read_part`, of the first half, and what else it raises.
    """
    if fork:
        busy = _BUSY_BYTES / max(1, size_json) if meanwhile else 0.0
        share = max(_LEAST_FIRST_SHARE, _FIRST_SHARE_COPIED - busy)
    else:
        share = _FIRST_SHARE_GZIP if is_gzip(path) else _FIRST_SHARE_PLAIN
    middle = max(1, int(size_json * share))
    start = _copied_process if fork else _fresh_process
    with start(path, middle, frames=frames, block_bytes=block_bytes) as pickled:
        if pickled is None:
            return None
        if meanwhile is not None:
            with suppress(Exception):  # it is called again where it is needed, and fails there
                meanwhile()
        first = read_part(path, frames=frames, block_bytes=block_bytes, stop=middle)
        if first.document is not None:  # the guess of the size was far too large
            return first
        try:
            second = pickle.load(pickled)
        except (EOFError, pickle.UnpicklingError):
            return None
    if not isinstance(second, PartialRead) or second.document is None:
        return None
    first.builder.absorb(second.builder)
    return PartialRead(first.builder, second.document, second.bytes_json)


def _copied_process(
    path: Path, middle: int, *, frames: bool, block_bytes: int
) -> AbstractContextManager[BinaryIO | None]:
    return in_a_copy(partial(read_part, path, frames=frames, block_bytes=block_bytes, begin=middle))


@contextmanager
def _fresh_process(path: Path, middle: int, *, frames: bool, block_bytes: int) -> Iterator[BinaryIO | None]:
    """What a process of its own reads of the second half; it ends with the context. None if none could be started."""
    import subprocess  # for big traces only

    package_parent = str(Path(__file__).resolve().parents[2])
    paths = [package_parent, os.environ.get("PYTHONPATH", "")]
    try:
        process = subprocess.Popen(
            # an interpreter inside of another program may not know its own file
            [sys.executable or "", "-c", _START, str(path.resolve()), str(middle), str(int(frames)), str(block_bytes)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )
    except OSError:
        yield None
        return
    try:
        yield cast("BinaryIO", process.stdout)
    finally:
        process.kill()
        with process:  # closes the pipe and waits
            pass


def main() -> None:
    """Read the second half that the command line names."""
    path, begin, frames, block_bytes = sys.argv[1:]
    half = read_part(Path(path), frames=frames == "1", block_bytes=int(block_bytes), begin=int(begin))
    pickle.dump(half, sys.stdout.buffer, protocol=pickle.HIGHEST_PROTOCOL)
