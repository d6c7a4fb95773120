"""One line that is written over, and progress on it."""

import io
import threading
from types import SimpleNamespace
from typing import TextIO, cast

import pytest

from lightning_gpuprof.sinks.status_line import StatusLine, progress
from terminal_screen import screen

PATIENCE_S = 30.0


class Terminal(io.StringIO):
    """Notes what is written and by whom, and lets a test wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.writers: set[str] = set()
        self.wrote = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.writers.add(threading.current_thread().name)
        done = super().write(text)
        self.wrote.set()
        return done


def test_a_shorter_text_leaves_nothing_of_a_longer_one() -> None:
    terminal = Terminal()
    line = StatusLine(terminal, lambda: 40)
    line.show("a rather long text")
    line.show("short")
    assert screen(terminal.getvalue()) == ["short"]
    line.clear()
    assert screen(terminal.getvalue()) == [""]
    assert terminal.getvalue().endswith("\r")
    assert "\n" not in terminal.getvalue()


@pytest.mark.parametrize("text", ["x" * 90, "日本語" * 30, "ä" * 90])
def test_no_text_reaches_the_last_column(text: str) -> None:
    from rich.cells import cell_len

    terminal = Terminal()
    line = StatusLine(terminal, lambda: 40)
    line.show(text)
    assert 38 <= cell_len(screen(terminal.getvalue())[0]) <= 39
    line.show("end")
    assert screen(terminal.getvalue()) == ["end"]


def test_what_is_no_terminal_gets_no_line() -> None:
    assert StatusLine.on_terminal(io.StringIO()) is None
    closed = io.StringIO()
    closed.close()
    assert StatusLine.on_terminal(closed) is None
    assert StatusLine.on_terminal(cast(TextIO, SimpleNamespace(write=print))) is None  # a stream of the user's own
    assert StatusLine.on_terminal(Terminal()) is not None


def test_progress_says_what_goes_on_and_leaves_nothing() -> None:
    terminal = Terminal()
    with progress("reading trace.json", line=StatusLine(terminal, lambda: 80), later_s=0.0, every_s=0.01):
        assert terminal.wrote.wait(PATIENCE_S)
    assert "gpuprof: reading trace.json, 0 s" in terminal.getvalue()
    assert screen(terminal.getvalue()) == [""]
    assert terminal.writers == {"gpuprof-progress"}


def test_what_is_quick_shows_no_progress() -> None:
    terminal = Terminal()
    with progress("reading trace.json", line=StatusLine(terminal, lambda: 80), later_s=PATIENCE_S):
        pass
    assert terminal.getvalue() == ""


def test_an_error_passes_through_progress_and_the_line_goes() -> None:
    terminal = Terminal()

    def fails() -> None:
        with progress("reading", line=StatusLine(terminal, lambda: 80), later_s=0.0):
            assert terminal.wrote.wait(PATIENCE_S)
            raise ValueError("as it was")

    with pytest.raises(ValueError, match="as it was"):
        fails()
    assert screen(terminal.getvalue()) == [""]


def test_a_terminal_that_is_gone_does_no_harm() -> None:
    terminal = Terminal()
    terminal.close()
    with progress("reading", line=StatusLine(terminal, lambda: 80), later_s=0.0):
        pass
