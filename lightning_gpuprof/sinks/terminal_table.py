"""A Table flows in, its drawing for the terminal flows out."""

from __future__ import annotations

from dataclasses import replace

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from lightning_gpuprof.model.phases import COMPUTE_PHASES, STEP_PARTS
from lightning_gpuprof.sinks import plain, tables
from lightning_gpuprof.sinks.console import MIN_BAR, Bar

BAR_CELLS = 20
NAME_CELLS = 16
"""A column of names keeps so many, or as many as its longest; columns of numbers are left out before it gives way."""
_GAP = 2
_LEAST_WORD = 8

_COMPUTE = frozenset((*COMPUTE_PHASES, *STEP_PARTS.values()))


class _Words:
    """Text that wraps at its spaces; a word that the column has no room for loses its middle instead of being broken.

    Args:
        text: Of a cell.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(options.max_width, _LEAST_WORD)
        yield Text(" ".join(plain.shorten(word, room) for word in self.text.split(" ")), overflow="fold")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, Text(self.text))


def draw(table: tables.Table, width: int | None = None) -> RenderableType:
    """Draw a table; columns of numbers keep their width, bars and names give way.

    Args:
        table: The table; one without rows becomes its sentence.
        width: Columns of the terminal; what does not fit is left out, bars first, then columns of numbers from the
            right. None leaves nothing out.
    """
    if not table.rows:
        return Text(table.absent, style="dim")
    table = table if width is None else fitted(table, width)
    least = _widths(table, width)
    drawn = RichTable(
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="dim",
        show_header=any(column.title or column.unit for column in table.columns),
    )
    for index, column in enumerate(table.columns):
        drawn.add_column(
            f"{column.title} {column.unit}".strip(),
            justify="right" if column.numeric else "left",
            no_wrap=column.numeric,
            overflow="ellipsis" if column.numeric else "fold",
            min_width=None if column.bar else least[index],
            max_width=least[index] if column.bar and width is not None else None,
        )
    for row in table.rows:
        drawn.add_row(*(_drawn(column, cell) for column, cell in zip(table.columns, row, strict=True)))
    return drawn


def fitted(table: tables.Table, width: int) -> tables.Table:
    """The table without the columns that a narrow terminal has no place for; the first one always stays."""
    kept = list(range(len(table.columns)))
    while len(kept) > 1 and sum(_least(table, index) + _GAP for index in kept) > width:
        bars = [index for index in kept if table.columns[index].bar]
        numeric = [index for index in kept[1:] if table.columns[index].numeric]
        kept.remove((bars or numeric[-1:] or kept[-1:])[0])
    if len(kept) == len(table.columns):
        return table
    return replace(
        table,
        columns=tuple(table.columns[index] for index in kept),
        rows=tuple(tuple(row[index] for index in kept) for row in table.rows),
    )


def _widths(table: tables.Table, width: int | None) -> list[int]:
    """Cells that each column keeps; what is left of the terminal goes to names first, then to bars."""
    least = [_least(table, index) for index in range(len(table.columns))]
    left = 0 if width is None else width - sum(cells + _GAP for cells in least)
    for index, column in enumerate(table.columns):
        if not column.numeric and not column.bar:
            longest = max(len(row[index].text) for row in table.rows)
            more = max(0, min(longest - least[index], left))
            least[index] += more
            left -= more
    for index, column in enumerate(table.columns):
        if column.bar:
            least[index] = min(BAR_CELLS, least[index] + max(0, left))
    return least


def _least(table: tables.Table, index: int) -> int:
    """Cells below which a column cannot be read."""
    column = table.columns[index]
    if column.bar:
        return MIN_BAR
    title = f"{column.title} {column.unit}".strip()
    longest = max(len(row[index].text) for row in table.rows)
    if column.numeric:
        return max(longest, len(title))
    return min(max(longest, len(title)), NAME_CELLS)


def _drawn(column: tables.Column, cell: tables.Cell) -> RenderableType:
    if not column.bar:
        return Text(cell.text) if column.numeric else _Words(cell.text)
    return Bar(cell.ratio or 0.0, BAR_CELLS, "blue" if cell.key in _COMPUTE else "yellow")
