"""Writes each table of raw values as a CSV or Parquet file, whole or not at all."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.sinks.files import made_whole, make_folder

if TYPE_CHECKING:
    from lightning_gpuprof.model.data_table import DataTable, Values

Format = Literal["csv", "parquet"]
FORMATS: tuple[Format, ...] = get_args(Format)

_BLOCK_ROWS = 1 << 16


def write_tables(tables: Sequence[DataTable], folder: Path, form: Format) -> list[Path]:
    """Write each table to a file of its own, named after it.

    CSV is that of RFC 4180 in UTF-8: an empty cell is a value that was not measured, and text that a spreadsheet would
    run as a formula has an apostrophe before it. Parquet has typed columns and nulls.

    Args:
        tables: With names that differ.
        folder: Where the files go; made if it is missing.
        form: Parquet needs pyarrow, which is no dependency of this package.

    Returns:
        The files, in the tables' order. Those that exist are replaced.

    Raises:
        ArgumentError: Parquet is wanted, and pyarrow is not installed.
        ReportError: A file cannot be written.
    """
    write = _write_csv if form == "csv" else _parquet_writer()
    make_folder(folder)
    paths = [folder / f"{table.name}.{form}" for table in tables]
    for table, path in zip(tables, paths, strict=True):
        with made_whole(path) as temporary:
            write(table, temporary)
    return paths


def _write_csv(table: DataTable, path: Path) -> None:
    from lightning_gpuprof.sinks.csv_tables import harmless, raw  # not for a shell that completes names of formats

    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([harmless(name) for name in table.columns])
        for begin in range(0, len(table), _BLOCK_ROWS):
            block = [_as_list(values[begin : begin + _BLOCK_ROWS]) for values in table.columns.values()]
            writer.writerows([raw(value) for value in row] for row in zip(*block, strict=True))


def _as_list(values: Values) -> list[object]:
    return values if isinstance(values, list) else values.tolist()


def _parquet_writer() -> Callable[[DataTable, Path], None]:
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise ArgumentError(
            "--format", "parquet", "be csv, because pyarrow is not installed", "For parquet: pip install pyarrow."
        ) from None

    def write(table: DataTable, path: Path) -> None:
        parquet.write_table(arrow.table(dict(table.columns)), path)

    return write
