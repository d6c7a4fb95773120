"""A stream flows in, a rich console that writes plain text to whatever is not a terminal flows out."""

from __future__ import annotations

import os
import sys
from typing import IO

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style

MAX_WIDTH = 100
MIN_WIDTH = 60
MIN_BAR = 4

_EIGHTHS = " ▏▎▍▌▋▊▉"


class Bar:
    """A share as a bar of up to ``width`` cells; ``#`` where the stream cannot write blocks.

    Args:
        ratio: 0 to 1; values outside are cut.
        width: Cells of a full bar; a table that is too narrow takes some of them.
        style: Its colour.
    """

    def __init__(self, ratio: float, width: int, style: str) -> None:
        self.ratio = min(max(ratio, 0.0), 1.0)
        self.width = width
        self.style = style

    def text(self, ascii_only: bool) -> str:
        """The bar without padding; a share above zero is always seen."""
        return self._text(ascii_only, self.width)

    def _text(self, ascii_only: bool, width: int) -> str:
        if ascii_only:
            return "#" * max(round(self.ratio * width), 1 if self.ratio > 0 else 0)
        eighths = max(round(self.ratio * width * 8), 1 if self.ratio > 0 else 0)
        whole, rest = divmod(eighths, 8)
        return "█" * whole + (_EIGHTHS[rest] if rest else "")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(self.width, options.max_width)
        yield Segment(self._text(options.ascii_only, width).ljust(width), Style.parse(self.style))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(MIN_BAR, self.width), self.width)


def make_console(file: IO[str] | None, width: int | None = None) -> Console:
    """A console for a stream: no escape sequences unless it is a terminal, and none with ``NO_COLOR``.

    Args:
        file: The stream; None is standard output.
        width: Columns; None takes the terminal's, at most 100, and 100 elsewhere.
    """
    stream = sys.stdout if file is None else file
    interactive = stream.isatty()
    styled = interactive and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    if width is None:
        width = MAX_WIDTH
        if interactive:
            width = max(MIN_WIDTH, min(MAX_WIDTH, Console(file=stream).width))
    return Console(
        file=stream,
        width=width,
        force_terminal=styled,
        color_system="auto" if styled else None,
        no_color=not styled,
        force_jupyter=False,
        highlight=False,
        markup=False,
        emoji=False,
    )


def print_to(file: IO[str] | None, renderable: RenderableType, width: int | None = None) -> None:
    """Print; a character that the stream's encoding lacks becomes ``?`` instead of an error.

    Args:
        file: The stream; None is standard output.
        renderable: What to print.
        width: Columns; None takes the terminal's, at most 100, and 100 elsewhere.
    """
    console = make_console(file, width)
    with console.capture() as capture:
        console.print(renderable)
    lines = capture.get().splitlines()
    text = "".join(f"{line.rstrip()}\n" for line in lines)
    console.file.write(text.encode(console.encoding, errors="replace").decode(console.encoding))
    console.file.flush()
