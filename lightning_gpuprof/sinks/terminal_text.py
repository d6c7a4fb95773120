"""Titles, paragraphs and labelled text as the terminal shows them."""

from collections.abc import Mapping, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lightning_gpuprof.model.finding import Severity
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.console import keep_together

SEVERITY_STYLES: Mapping[Severity, str] = {"critical": "bold red", "warning": "yellow", "info": "cyan"}


def title(text: str) -> RenderableType:
    """Over a part, with an empty line before it."""
    return Text(f"\n{text}", style="bold")


def indented(renderable: RenderableType) -> RenderableType:
    """A part under its title."""
    return Padding(renderable, (0, 0, 0, 2))


def sentence_text(text: str, style: str = "") -> Text:
    """A sentence whose numbers stay with their units where it wraps.

    Args:
        text: The sentence.
        style: A style of rich.

    Returns:
        For :func:`~lightning_gpuprof.sinks.console.print_to`, which turns the characters that hold words together into
        spaces.
    """
    return Text(keep_together(text), style=style)


def labelled(label: str, text: str, style: str = "") -> RenderableType:
    """A label and a text that wraps beside it, not under it.

    Args:
        label: The label.
        text: What stands beside it.
        style: A style of rich for the text.

    Returns:
        Indented, the label dim.
    """
    return indented(grid([(Text(label, style="dim"), sentence_text(text, style))]))


def command(label: str, text: str) -> RenderableType:
    """A label and a command on one line, however long: a command that is folded cannot be copied.

    Args:
        label: What the command is for.
        text: The command.

    Returns:
        One line, indented, the label dim.
    """
    return Text.assemble("  ", (label, "dim"), f" {text}", no_wrap=True, overflow="ignore")


def diff_lines(lines: Sequence[str]) -> list[RenderableType]:
    """Lines of code that each begin with their sign; those that are too long are cut."""
    styles = {"-": "red", "+": "green"}
    return [
        Text(f"    {plain.visible(line)}", style=styles.get(line[:1], ""), no_wrap=True, overflow="ellipsis")
        for line in lines
    ]


def bullet(text: str) -> RenderableType:
    """A sentence of a list."""
    return grid([(Text("-"), sentence_text(text))])


def grid(rows: Sequence[Sequence[Text]], gap: int = 1) -> RenderableType:
    """Rows under each other without lines: the first cell stays whole, the others wrap.

    Args:
        rows: At least one; all have as many cells.
        gap: Columns between two cells.

    Returns:
        A table of rich, not wider than its text.
    """
    found = Table.grid(padding=(0, gap, 0, 0))
    found.add_column(no_wrap=True)
    for _ in rows[0][1:]:
        found.add_column(overflow="fold")
    for row in rows:
        found.add_row(*row)
    return found
