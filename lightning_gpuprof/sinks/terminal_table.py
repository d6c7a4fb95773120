"""A Table flows in, its drawing for the terminal flows out."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from lightning_gpuprof.model.phases import COMPUTE_PHASES, STEP_PARTS
from lightning_gpuprof.sinks import tables
from lightning_gpuprof.sinks.console import Bar

BAR_CELLS = 20

_COMPUTE = frozenset((*COMPUTE_PHASES, *STEP_PARTS.values()))


def draw(table: tables.Table) -> RenderableType:
    """Draw a table; columns of numbers keep their width, bars and names give way.

    Args:
        table: The table; one without rows becomes its sentence.
    """
    if not table.rows:
        return Text(table.absent, style="dim")
    drawn = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for column in table.columns:
        drawn.add_column(
            f"{column.title} {column.unit}".strip(),
            justify="right" if column.numeric else "left",
            no_wrap=column.numeric,
            overflow="ellipsis" if column.numeric else "fold",
        )
    for row in table.rows:
        drawn.add_row(*(_drawn(column, cell) for column, cell in zip(table.columns, row, strict=True)))
    return drawn


def _drawn(column: tables.Column, cell: tables.Cell) -> RenderableType:
    if not column.bar:
        return Text(cell.text)
    return Bar(cell.ratio or 0.0, BAR_CELLS, "blue" if cell.key in _COMPUTE else "yellow")
