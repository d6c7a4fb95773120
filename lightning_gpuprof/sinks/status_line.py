"""A line of a terminal that each new sentence overwrites."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TextIO

LATER_S = 2.0
"""What takes no longer than this shows no progress."""
EVERY_S = 0.5
_DEFAULT_COLUMNS = 80


class StatusLine:
    """The last line of a terminal. It is written over and never scrolls; :meth:`clear` leaves nothing of it.

    Only returns and spaces are used, which the simplest terminal understands.

    Args:
        stream: A terminal.
        columns: Its width now.
    """

    def __init__(self, stream: TextIO, columns: Callable[[], int] | None = None) -> None:
        self._stream = stream
        self._columns = columns or self._terminal_columns
        self._shown = 0

    @classmethod
    def on_terminal(cls, stream: TextIO | None = None) -> StatusLine | None:
        """A line on the error stream, or on another one; None where that is no terminal."""
        stream = sys.stderr if stream is None else stream
        try:
            return cls(stream) if stream is not None and stream.isatty() else None
        except (ValueError, AttributeError):  # the stream is closed, or one of the user's that does not say
            return None

    def show(self, text: str) -> None:
        """Write over what is there; what the terminal has no room for is cut."""
        room = max(1, self._columns() - 1)  # in the last column some terminals go to the next line
        text, cells = (text[:room], min(len(text), room)) if text.isascii() else _cut(text, room)
        self._write("\r" + text + " " * (self._shown - cells))
        self._shown = cells

    def clear(self) -> None:
        """Leave an empty line with the cursor at its begin."""
        if self._shown:
            self._write("\r" + " " * self._shown + "\r")
            self._shown = 0

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _terminal_columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _DEFAULT_COLUMNS
        except (OSError, ValueError):
            return _DEFAULT_COLUMNS


def _cut(text: str, room: int) -> tuple[str, int]:
    """A text of at most so many cells, and its cells: some letters take two."""
    from rich.cells import cell_len, set_cell_size  # not in the main process: its texts are ASCII

    text = set_cell_size(text, min(room, cell_len(text)))
    return text, cell_len(text)


@contextlib.contextmanager
def progress(
    what: str, *, line: StatusLine | None = None, later_s: float = LATER_S, every_s: float = EVERY_S
) -> Iterator[None]:
    """Say what goes on and for how long already, once it has taken two seconds; nothing where there is no terminal.

    Args:
        what: Goes on, such as ``reading trace.json``.
        line: Where; None is the error stream, if that is a terminal.
        later_s: Nothing is shown before.
        every_s: Between two writes.

    Yields:
        Nothing; at the end the line is cleared.
    """
    line = StatusLine.on_terminal() if line is None else line
    if line is None:
        yield
        return
    over = threading.Event()
    begin = time.monotonic()

    def report() -> None:
        wait_s = later_s
        with contextlib.suppress(OSError, ValueError):  # the terminal has gone
            while not over.wait(wait_s):
                line.show(f"gpuprof: {what}, {time.monotonic() - begin:.0f} s")
                wait_s = every_s
            line.clear()

    reporter = threading.Thread(target=report, name="gpuprof-progress", daemon=True)
    with contextlib.suppress(RuntimeError):  # the system gives no more threads
        reporter.start()
    try:
        yield
    finally:
        over.set()
        if reporter.ident is not None:
            reporter.join(1.0)  # a terminal that was stopped must not stop us
