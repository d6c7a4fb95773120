"""Tables on a narrow terminal: columns are left out before names become unreadable."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from lightning_gpuprof.sinks.tables import Cell, Column, Table
from lightning_gpuprof.sinks.terminal_table import draw, fitted

COLUMNS = (
    Column(title="kernel"),
    Column(title="", bar=True),
    *(Column(title=f"number {n}", unit="ms", numeric=True) for n in range(8)),
)
ROWS = tuple(
    (Cell(text=f"a_kernel_of_a_long_name_{row}"), Cell(text="", ratio=0.5), *(Cell(text="1,234.5") for _ in range(8)))
    for row in range(3)
)
TABLE = Table(title="t", columns=COLUMNS, rows=ROWS, absent="none")


def drawn(width: int) -> str:
    stream = StringIO()
    Console(file=stream, width=width, color_system=None).print(draw(TABLE, width))
    return stream.getvalue()


@pytest.mark.parametrize("width", range(20, 161, 7))
def test_numbers_are_shown_whole_and_names_with_both_ends(width: int) -> None:
    shown = drawn(width)
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown
    for row, cells in enumerate(ROWS):
        (line,) = (line for line in shown.splitlines() if line.split(" ")[0].endswith(f"_{row}"))
        assert line.startswith("a_kern")
        assert line.count("1,234.5") == sum(column.numeric for column in fitted(TABLE, width).columns)
        assert width < 150 or cells[0].text in line


def test_names_of_several_words_wrap_between_them() -> None:
    cell = Cell(text="resnet50_of_a_rather_long_file_name.py(46): <module>")
    table = Table(title="t", columns=(Column(title="line"),), rows=((cell,),), absent="none")
    stream = StringIO()
    Console(file=stream, width=30, color_system=None).print(draw(table, 30))
    assert [line.strip() for line in stream.getvalue().splitlines()[-2:]] == [
        "resnet50_of_a_..._name.py(46):",
        "<module>",
    ]


def test_bars_go_first_then_numbers_from_the_right() -> None:
    titles = [column.title for column in fitted(TABLE, 70).columns]
    assert titles == ["kernel", *(f"number {n}" for n in range(len(titles) - 1))]
    assert fitted(TABLE, 500) == TABLE
    assert [column.title for column in fitted(TABLE, 5).columns] == ["kernel"]
    assert all(len(row) == len(titles) for row in fitted(TABLE, 70).rows)
