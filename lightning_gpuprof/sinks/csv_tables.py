"""Writes tables and result rows as CSV, for spreadsheets and scripts.

A text that begins as a formula does in spreadsheets (``=``, ``+``, ``-``, ``@``) gets an apostrophe before it: names of
kernels and files come from the program that was measured, and must not be run by whoever looks at the table.
"""

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.model import numbers
from lightning_gpuprof.sinks.files import make_folder, write_whole
from lightning_gpuprof.sinks.tables import Cell, Column, Table

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""First characters; some programs skip the last three before they look for the others."""

_NUMBER = re.compile(r"[-+]?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?(e[-+]?\d+)?( ?%)?")
_NAME_LIMIT = 80


def write_csv(tables: Sequence[Table], folder: Path) -> list[Path]:
    """Write each table to a file of its own, with the numbers as people read them: rounded, and with one unit a column.

    The unit stands behind a column's title. Bars are left out. A number that is not known is an empty cell, and
    thousands are not separated. A table without rows has its header only.

    Args:
        tables: Any tables; several may have the same title.
        folder: Where the files go; made if it is missing.

    Returns:
        The files, in the tables' order: ``idle_time.csv`` for the title ``Idle time``. Those that exist are replaced.

    Raises:
        ReportError: A file cannot be written.
    """
    make_folder(folder)
    paths: list[Path] = []
    taken: set[str] = set()
    for table in tables:
        path = folder / f"{_free_name(table.title, taken)}.csv"
        kept = [index for index, column in enumerate(table.columns) if not column.bar]
        rows = ([_cell_text(row[index], table.columns[index]) for index in kept] for row in table.rows)
        _write(path, [_header(table.columns[index]) for index in kept], rows)
        paths.append(path)
    return paths


def write_rows_csv(rows: Sequence[msgspec.Struct], path: Path) -> None:
    """Write results of one kind with every digit they have.

    Args:
        rows: Structs of one class. Their fields' names, which end in the unit, are the header. None is an empty cell;
            a list, tuple, mapping or struct inside of one is written as JSON. Without rows the file is empty, as
            its columns are not known.
        path: The file, replaced if it exists.

    Raises:
        ArgumentError: The rows are of several classes.
        ReportError: The file cannot be written.
    """
    kinds = list(dict.fromkeys(type(row) for row in rows))
    if len(kinds) > 1:
        found = ", ".join(kind.__name__ for kind in kinds)
        raise ArgumentError("rows", found, "all be of one class")
    fields = [field.name for kind in kinds for field in msgspec.structs.fields(kind)]
    _write(path, fields, ([raw(getattr(row, field)) for field in fields] for row in rows))


def write_all_rows_csv(results: msgspec.Struct, folder: Path) -> list[Path]:
    """Write every list of rows in some results, each to a file of its own, with every digit that they have.

    Args:
        results: Structs in structs; lists of structs in them are rows.
        folder: Where the files go; made if it is missing.

    Returns:
        The files: ``kernels.savings.csv`` for the rows of ``results.kernels.savings``. Empty lists have none.

    Raises:
        ReportError: A file cannot be written.
    """
    make_folder(folder)
    paths = []
    for name, rows in _lists(results, ()):
        paths.append(folder / f"{name}.csv")
        write_rows_csv(rows, paths[-1])
    return paths


def _lists(results: msgspec.Struct, names: tuple[str, ...]) -> Iterable[tuple[str, Sequence[msgspec.Struct]]]:
    for field in results.__struct_fields__:
        value = getattr(results, field)
        if isinstance(value, msgspec.Struct):
            yield from _lists(value, (*names, field))
        elif isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
            yield ".".join((*names, field)), value


def _write(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text)  # lines end as RFC 4180 has it; with another end, csv leaves a return in a name bare
    if header:
        writer.writerow([harmless(title) for title in header])
        writer.writerows(rows)
    write_whole(path, text.getvalue().encode("utf-8", "backslashreplace"))


def _header(column: Column[Any]) -> str:
    # spreadsheets take a file for their system's old encoding, which has µ elsewhere
    return f"{column.title} ({column.unit})".replace("µ", "u") if column.unit else column.title


def _cell_text(cell: Cell, column: Column[Any]) -> str:
    if column.numeric:
        if cell.text == numbers.ABSENT:
            return ""
        if _NUMBER.fullmatch(cell.text):
            return cell.text.replace(",", "")
    return harmless(cell.text)


def raw(value: object) -> str:
    """A value with every digit it has; empty for None, JSON for what is neither number nor text."""
    if value is None:
        return ""
    if isinstance(value, str):
        return harmless(value)
    if isinstance(value, float):
        return repr(value)  # as many digits as make it differ from every other float
    return msgspec.json.encode(value).decode()


def harmless(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    if text.startswith(_FORMULA) and text != numbers.ABSENT and not _NUMBER.fullmatch(text):
        return f"'{text}"
    return text


def _free_name(title: str, taken: set[str]) -> str:
    """A file's name for a title, in small ASCII letters; the second of a name gets a ``_2``."""
    ascii_title = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    name = re.sub(r"[^a-z0-9]+", "_", ascii_title).strip("_")[:_NAME_LIMIT].strip("_") or "table"
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    taken.add(free)
    return free
