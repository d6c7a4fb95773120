"""A rich console that writes plain text to whatever is not a terminal."""

import os
import re
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

_HELD = "\ue000"
"""Stands for a space at which no line may end, until the text is written: rich breaks lines at every kind of space.
Text of others cannot hold it, see :func:`~lightning_gpuprof.sinks.plain.visible`."""
_BEFORE_UNIT = re.compile(
    r"(?<=\d) (?=(?:%|[KMGT]?i?B(?:/s)?|[mµn]?s(?:/step)?|min|h|W|k?J|MHz|(?:samples|steps|events|kernels|CPUs)\b))"
)
_COMMAND = re.compile(r"\bgpuprof [a-z-]+(?: (?:--?[\w-]*(?:[ =][\w./-]+)?|\S*/\S+|\S+\.py|[A-Z]+\b))*")
"""In a sentence: the options and paths behind it, not what is said of it."""
_LONGEST_HELD = 45
"""Characters: a longer command may not fit in the narrowest column of text."""
_PADDING = re.compile(r" (?=(?: |\x1b\[[0-9;]*m)*$)")


def keep_together(text: str) -> str:
    """The text with numbers held to their units, separators to what they follow, and commands whole.

    For :func:`print_to`. A command that is folded cannot be copied.
    """
    text = _BEFORE_UNIT.sub(_HELD, text).replace(" · ", f"{_HELD}· ")
    return _COMMAND.sub(
        lambda found: found[0].replace(" ", _HELD) if len(found[0]) <= _LONGEST_HELD else found[0], text
    )


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


def is_terminal(stream: object) -> bool:
    """Whether what is written there is read at once by a person; a stream of the user's own may not say so."""
    asks = getattr(stream, "isatty", None)
    return asks is not None and bool(asks())


def terminal_width(file: IO[str] | None = None) -> int:
    """Columns that a table can take, at least 60: of the terminal, or what ``COLUMNS`` says; elsewhere 100."""
    stream = sys.stdout if file is None else file
    if is_terminal(stream) or os.environ.get("COLUMNS", "").isdigit():
        return max(MIN_WIDTH, Console(file=stream).width)
    return MAX_WIDTH


def make_console(file: IO[str] | None, width: int | None = None) -> Console:
    """A console for a stream: no escape sequences unless it is a terminal.

    ``NO_COLOR`` leaves them out there, too; ``FORCE_COLOR`` writes them also elsewhere; of both, ``NO_COLOR`` counts
    (as https://no-color.org and https://force-color.org have it: set to anything but nothing).

    Args:
        file: The stream; None is standard output.
        width: Columns; None takes those of :func:`terminal_width`, at most 100.

    Returns:
        A new one that takes text as it is: without markup, emoji codes and highlighting.
    """
    stream = sys.stdout if file is None else file
    interactive = is_terminal(stream)
    forced = bool(os.environ.get("FORCE_COLOR"))
    capable = interactive and os.environ.get("TERM") != "dumb"
    styled = (forced or capable) and not os.environ.get("NO_COLOR")
    return Console(
        file=stream,
        width=min(MAX_WIDTH, terminal_width(stream)) if width is None else width,
        force_terminal=styled,
        color_system=("auto" if capable else "standard") if styled else None,
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
        width: Columns; None takes those of :func:`terminal_width`, at most 100. Only commands may be longer.
    """
    console = make_console(file, width)
    with console.capture() as capture:
        console.print(renderable, crop=False)  # a command is one line, however long
    lines = capture.get().replace(_HELD, " ").splitlines()
    text = "".join(_PADDING.sub("", line) + "\n" for line in lines)
    console.file.write(text.encode(console.encoding, errors="replace").decode(console.encoding))
    console.file.flush()
