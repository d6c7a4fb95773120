"""Draws a Table for the terminal: as wide as that is, no number cut, columns without room named below it."""

from typing import Any

import msgspec
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from lightning_gpuprof.model.phases import COMPUTE_PHASES, STEP_PARTS
from lightning_gpuprof.sinks import plain, tables
from lightning_gpuprof.sinks.console import MIN_BAR, Bar

BAR_CELLS = 20
NAME_CELLS = 16
"""A column of text keeps so many, or as many as its longest; columns of numbers are left out before it gives way."""
WIDER = "a wider terminal"
_GAP = 2

_COMPUTE = frozenset((*COMPUTE_PHASES, *STEP_PARTS.values()))


def draw(table: tables.Table, width: int | None = None, *, way_out: str = WIDER) -> RenderableType:
    """Draw a table.

    Args:
        table: The table; one without rows becomes its sentence.
        width: Columns of the terminal, where it is to take fewer than there are. Of what does not fit, bars are left
            out first, then columns of numbers from the right.
        way_out: What shows the columns that are left out.

    Returns:
        Made for the width of the console that prints it.
    """
    if not table.rows:
        return Text(table.absent, style="dim")
    return _Drawing(table, width, way_out)


class _Drawing(msgspec.Struct, frozen=True):
    table: tables.Table
    width: int | None
    way_out: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width if self.width is None else min(self.width, options.max_width)
        kept = _fitting_columns(self.table, width)
        shown = self.table.only(kept)
        drawn = RichTable(
            box=SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            padding=(0, 1, 0, 0),
            header_style="dim",
            show_header=any(column.title or column.unit for column in shown.columns),
        )
        rooms = _widths(shown, width)
        for column, room in zip(shown.columns, rooms, strict=True):
            drawn.add_column(_heading(column), justify="right" if column.numeric else "left", width=room)
        ellipsis = "..." if options.ascii_only else "…"
        for row in shown.rows:
            drawn.add_row(*(_rendered_cell(*of, ellipsis) for of in zip(shown.columns, row, rooms, strict=True)))
        yield drawn
        if left_out := [_heading(c) for i, c in enumerate(self.table.columns) if i not in kept and not c.bar]:
            yield Text(f"not shown: {', '.join(left_out)}; use {self.way_out}", style="dim")


def _fitting_columns(table: tables.Table, width: int) -> list[int]:
    """The columns that there is room for; the first one always stays."""
    kept = list(range(len(table.columns)))
    while len(kept) > 1 and sum(_min_width(table, index) + _GAP for index in kept) - _GAP > width:
        bars = [index for index in kept if table.columns[index].bar]
        numeric = [index for index in kept[1:] if table.columns[index].numeric]
        kept.remove((bars or numeric[-1:] or kept[-1:])[0])
    return kept


def _widths(table: tables.Table, width: int) -> list[int]:
    """Cells of each column; what the least leaves goes to titles of numbers first, then to text, then to bars."""
    cells = [_min_width(table, index) for index in range(len(table.columns))]
    left = width - sum(cells) - _GAP * (len(cells) - 1)
    for wanted in (
        {i: cell_len(_heading(column)) for i, column in enumerate(table.columns) if column.numeric},
        {i: _longest(table, i) for i, column in enumerate(table.columns) if not column.numeric and not column.bar},
        {i: BAR_CELLS for i, column in enumerate(table.columns) if column.bar},
    ):
        while left > 0 and (short := [i for i, most in wanted.items() if cells[i] < most]):
            for index in short[:left]:
                cells[index] += 1
                left -= 1
    cells[0] = min(cells[0], width)
    return cells


def _min_width(table: tables.Table, index: int) -> int:
    """Cells below which a column cannot be read."""
    column = table.columns[index]
    if column.bar:
        return MIN_BAR
    word = max(map(cell_len, _heading(column).split(" ")))
    if column.numeric:
        return max(word, *(cell_len(row[index].text) for row in table.rows))
    longest_word = max(cell_len(word) for row in table.rows for word in row[index].text.split(" "))
    return max(word, min(_longest(table, index), NAME_CELLS), min(longest_word, column.word_cells))


def _longest(table: tables.Table, index: int) -> int:
    return max(cell_len(_heading(table.columns[index])), *(cell_len(row[index].text) for row in table.rows))


def _heading(column: tables.Column[Any]) -> str:
    return f"{column.title} {column.unit}".strip()


def _rendered_cell(column: tables.Column[Any], cell: tables.Cell, room: int, ellipsis: str) -> RenderableType:
    """A cell; text wraps at its spaces, and a word without room loses its middle: both ends tell names apart."""
    if column.bar:
        return Bar(cell.ratio or 0.0, BAR_CELLS, "blue" if cell.key in _COMPUTE else "yellow")
    if column.numeric:
        return Text(cell.text, no_wrap=True)
    return Text(" ".join(plain.shorten(word, room, ellipsis) for word in cell.text.split(" ")), overflow="fold")
