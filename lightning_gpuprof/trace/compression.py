"""Streams the JSON of a trace file, plain or gzip, and compresses a plain one."""

import gzip
import os
import threading
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO, cast

_GZIP_MAGIC = b"\x1f\x8b"
_COPY_BYTES = 1 << 20


def fastest_gzip() -> type[gzip.GzipFile]:
    """Isal's reader and writer of gzip (0.8 to 1.6 GB/s) if it is installed, else that of the standard library."""
    try:
        from isal.igzip import IGzipFile
    except ImportError:
        return gzip.GzipFile
    return cast("type[gzip.GzipFile]", IGzipFile)


def _error_of_isal() -> type[Exception]:
    try:
        from isal.igzip_lib import IsalError
    except ImportError:
        return zlib.error
    return cast("type[Exception]", IsalError)


GZIP_ERRORS: tuple[type[Exception], ...] = (EOFError, gzip.BadGzipFile, zlib.error, _error_of_isal())
"""What a broken gzip file raises while it is read, by isal or the standard library."""
READ_ERRORS: tuple[type[Exception], ...] = (OSError, *GZIP_ERRORS)
"""What reading a file may raise."""


BOMB_BYTES = 1 << 30
BOMB_RATIO = 200
"""A file that unpacks to more than both is refused: traces compress 10 to 40 times, gzip can at most 1032 times."""


_BLOCKS_AHEAD = 2
_MAX_AHEAD = 8 << 20
"""Larger blocks are not read ahead: who asks for one wants all there is, and would have to wait for two more."""


class BombError(Exception):
    """A compressed file that unpacks to far more than any trace does."""


@contextmanager
def open_json(path: Path, *, gzip_file: type[gzip.GzipFile] | None = None) -> Iterator[BinaryIO]:
    """Open a trace; whether it is compressed is read from its first bytes, not by its name.

    Args:
        path: The file.
        gzip_file: Class that reads gzip; the fastest by default.

    Yields:
        The JSON's bytes, decompressed, to be read until the end of the ``with``.

    Raises:
        OSError: The file cannot be opened.
    """
    with path.open("rb") as file, open_json_of(file, gzip_file=gzip_file) as stream:
        yield stream


@contextmanager
def open_json_of(file: BinaryIO, *, gzip_file: type[gzip.GzipFile] | None = None) -> Iterator[BinaryIO]:
    """The same for a file that is open already, can be sought, and stays open.

    Compressed text is unpacked some blocks ahead on a thread of its own.

    Args:
        file: Open for reading bytes.
        gzip_file: Reader of gzip; None for the fastest that is installed.

    Yields:
        The file itself, at its start, if it is not compressed; else what can only be read, from start to end.
    """
    compressed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    file.seek(0)
    if not compressed:
        yield file
        return
    with (gzip_file or fastest_gzip())(fileobj=file, mode="rb") as stream:
        packed = file.seek(0, os.SEEK_END)
        file.seek(0)
        ahead = _ReadAhead(stream, max(BOMB_BYTES, BOMB_RATIO * packed))
        try:
            yield cast(BinaryIO, ahead)
        finally:
            ahead.close()


def is_gzip(path: Path) -> bool:
    """Whether a file is compressed, by its first bytes.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        return file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC


class _ReadAhead:
    """Unpacks the next blocks while the last one is worked on; the first sets how large the blocks are.

    Unpacking does not hold the GIL, neither in isal nor in zlib, but it needs it between two blocks,
    and who works on a block rarely gives it away before it waits for the next. So two are asked for: the thread passes
    one on and begins the other in the same moment.
    """

    def __init__(self, stream: gzip.GzipFile, most: int) -> None:
        self._stream = stream
        self._left = most
        self._ahead: deque[int] = deque()
        """Sizes of the blocks that the thread was asked for and that nobody has taken."""
        self._asked: SimpleQueue[int] = SimpleQueue()
        self._read: SimpleQueue[bytes | BaseException] = SimpleQueue()
        # a pool of threads would import a sixth as much again as the reader
        self._thread = threading.Thread(target=self._work, name="gpuprof-gunzip", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._asked.put(0)
        self._thread.join()

    def _work(self) -> None:
        while size := self._asked.get():
            try:
                self._read.put(self._stream.read(size))
            except BaseException as error:  # goes to the one that reads
                self._read.put(error)

    def read(self, size: int = -1) -> bytes:
        """The next bytes; less than ``size`` only at the end, more where a larger block was unpacked ahead."""
        parts = []
        missing = size
        while self._ahead and (size < 0 or missing > 0):
            parts.append(self._next())
            missing -= len(parts[-1])
        if not self._ahead and (size < 0 or missing > 0):  # the thread is at rest
            parts.append(self._stream.read(size if size < 0 else missing))
            missing -= len(parts[-1])
        if 0 < size <= _MAX_AHEAD and missing <= 0:
            while len(self._ahead) < _BLOCKS_AHEAD:
                self._ahead.append(size)
                self._asked.put(size)
        block = parts[0] if len(parts) == 1 else b"".join(parts)
        self._left -= len(block)
        if self._left < 0:
            raise BombError
        return block

    def _next(self) -> bytes:
        self._ahead.popleft()
        found = self._read.get()
        if isinstance(found, BaseException):
            raise found
        return found


def compress(source: Path, target: Path, *, gzip_file: type[gzip.GzipFile] | None = None) -> None:
    """Compress a file at level 1; the target appears complete or not at all, and the source stays.

    Args:
        source: The plain file.
        target: The compressed file, replaced if it exists.
        gzip_file: Class that writes gzip; the fastest by default.

    Raises:
        OSError: A file cannot be read or written.
    """
    import shutil  # with all of its archive formats, which nobody needs who reads

    writer = gzip_file or fastest_gzip()
    with (
        source.open("rb") as plain,
        replacing(target) as file,
        writer(filename="", mode="wb", compresslevel=1, fileobj=file) as packed,
    ):
        shutil.copyfileobj(plain, packed, _COPY_BYTES)


@contextmanager
def replacing(target: Path) -> Iterator[BinaryIO]:
    """A new file under a temporary name in the target's folder, renamed to the target if all went well.

    Raises:
        OSError: The file cannot be written.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # the source may be deleted next: the data must be there after a power cut
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
