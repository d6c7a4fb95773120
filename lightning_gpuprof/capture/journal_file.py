"""Writes the journal's lines in a thread of its own, so that a disk that hangs holds up nothing but itself.

The file is opened unbuffered, so that a forked DataLoader worker has no second copy of unwritten text, and each
write ends with a newline, so that a kill costs at most the lines that were being written.
"""

import errno
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

MAX_WAITING_BYTES = 32 * 2**20
"""What may wait for a disk that hangs: the last 300,000 steps with 35 slots, a million with 10."""
WRITE_BYTES = 2**20


def open_journal(path: Path) -> BinaryIO:
    """Create a journal file; raises FileExistsError rather than touch an earlier one, OSError if it cannot be made."""
    return open(path, "xb", buffering=0)


class Line(NamedTuple):
    """One record as text, with its newline."""

    text: bytes
    steps: int = 0
    """Steps in it."""
    vital: bool = False
    """Needed to read the others: left out last."""


@dataclass(eq=False, repr=False)
class JournalFile:
    """Appends lines to a file in the background; what waits is bounded, and the oldest goes first."""

    file: BinaryIO
    """Opened unbuffered for appending."""
    _: KW_ONLY
    on_failure: Callable[[OSError], None]
    """Called once, from this thread or from :meth:`close`, when writing fails; from then on everything is dropped, so
    that memory stays bounded."""
    max_waiting_bytes: int = MAX_WAITING_BYTES
    """Of lines that the disk has not taken yet."""
    on_written: Callable[[], None] = lambda: None
    """Called in this thread when it has written lines, unless they are the last ones."""

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[Line] = deque()
        self._waiting_bytes = 0
        self._writing = False
        self._closing = False
        self._reported = False
        self._thread = threading.Thread(target=self._run, name="gpuprof-disk", daemon=True)
        self.failed = False
        self.steps_written = 0
        self.dropped_steps = 0
        self.dropped_lines = 0
        """Lines that were left out, those of the dropped steps among them."""
        self.cpu_s = 0.0
        """CPU time of the thread."""

    def start(self) -> None:
        """Begin to write."""
        if self._thread.ident is None:
            self._thread.start()

    def put(self, lines: Sequence[Line]) -> None:
        """Queue lines; never waits for the disk."""
        with self._changed:
            self._waiting.extend(lines)
            self._waiting_bytes += sum(len(line.text) for line in lines)
            if self.failed:
                self._drop_all()
            while self._waiting_bytes > self.max_waiting_bytes:
                self._drop_oldest()
            self._changed.notify_all()

    def sync(self, timeout_s: float) -> None:
        """Wait until nothing waits for the disk, at most so long."""
        with self._changed:
            self._changed.wait_for(lambda: self.failed or not (self._waiting or self._writing), timeout_s)

    def close(self, timeout_s: float) -> None:
        """Write what waits and close the file; if that takes longer than ``timeout_s``, the thread goes on alone."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is None:  # the system gave no more threads
            self.file.close()
            return
        self._thread.join(max(timeout_s, 0.0))
        if self._thread.is_alive():
            self._report(TimeoutError(errno.ETIMEDOUT, "the disk does not respond"))

    def fail(self, error: OSError) -> None:
        """Give up: nothing is written from now on."""
        with self._changed:
            self.failed = True
            self._drop_all()
            self._changed.notify_all()
        self._report(error)

    def _run(self) -> None:
        try:
            while lines := self._next():
                self._write(lines)
                if not self._closing:
                    self.on_written()
                self.cpu_s = time.thread_time()
        except OSError as error:
            self.fail(error)
        except Exception as error:  # a file that somebody closed, no memory
            self.fail(OSError(errno.EIO, f"{type(error).__name__}: {error}"))
        try:
            self.file.close()
        except OSError as error:
            self._report(error)

    def _next(self) -> list[Line]:
        """Lines to write now; waits for them. Empty when all is done."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing or self.failed)
            lines: list[Line] = []
            size = 0
            while self._waiting and size < WRITE_BYTES:
                lines.append(self._waiting.popleft())
                size += len(lines[-1].text)
            self._waiting_bytes -= size
            self._writing = bool(lines)
            return lines

    def _write(self, lines: list[Line]) -> None:
        text = b"".join([line.text for line in lines])
        written = 0
        try:
            while written < len(text):
                written += self.file.write(memoryview(text)[written:])
        finally:
            with self._changed:
                self._writing = False
                for line in lines:
                    written -= len(line.text)
                    if written >= 0:
                        self.steps_written += line.steps
                    else:
                        self._count_dropped(line)
                self._changed.notify_all()

    def _drop_oldest(self) -> None:
        """Leave out the oldest line that the others can be read without."""
        at = next((i for i, line in enumerate(self._waiting) if not line.vital), 0)
        line = self._waiting[at]
        del self._waiting[at]
        self._waiting_bytes -= len(line.text)
        self._count_dropped(line)

    def _drop_all(self) -> None:
        for line in self._waiting:
            self._count_dropped(line)
        self._waiting.clear()
        self._waiting_bytes = 0

    def _count_dropped(self, line: Line) -> None:
        self.dropped_steps += line.steps
        self.dropped_lines += 1

    def _report(self, error: OSError) -> None:
        if not self._reported:
            self._reported = True
            self.on_failure(error)
