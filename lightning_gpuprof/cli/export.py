"""``gpuprof export``: a run's tables for other programs."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from lightning_gpuprof.cli import source
from lightning_gpuprof.cli.command import Command, path, print_json
from lightning_gpuprof.errors import JournalError
from lightning_gpuprof.model.numbers import counted
from lightning_gpuprof.sinks.data_files import FORMATS, write_tables
from lightning_gpuprof.sinks.status_line import progress

if TYPE_CHECKING:
    from lightning_gpuprof.analyze.journal import Journal
    from lightning_gpuprof.model.data_table import DataTable

DEFAULT_FOLDER = "export"
"""In the run's folder."""


class Written(msgspec.Struct, kw_only=True, frozen=True):
    """One table and its file."""

    table: str
    file: str
    rows: int
    columns: list[str]


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "dir", metavar="DIR", type=Path, help="folder of a run: the profiler's own or the logger's around it"
    )
    parser.add_argument("--format", choices=FORMATS, default="csv", help="parquet needs pyarrow")
    parser.add_argument("--output", metavar="FOLDER", type=path, help=f"write here, not into DIR/{DEFAULT_FOLDER}")
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")


def _run(options: Namespace) -> int:
    from lightning_gpuprof.analyze.data_tables import report_tables  # numpy: not for --help

    folder = source.run_folder(options.dir)
    with progress("reading the journals"):
        measured, problems = _measured(folder)
    for problem in problems:
        print(f"gpuprof: warning: {problem}", file=sys.stderr)
    tables = [*measured, *report_tables(source.remake(folder))]
    with progress("writing the tables"):
        files = write_tables(tables, options.output or folder / DEFAULT_FOLDER, options.format)
    written = [
        Written(table=table.name, file=str(file), rows=len(table), columns=list(table.columns))
        for table, file in zip(tables, files, strict=True)
    ]
    if options.json:
        print_json(written)
        return 0
    width = max(len(one.table) for one in written)
    for one in written:
        print(f"{one.table:{width}}  {counted(one.rows, 'row'):>14}  {one.file}")
    return 0


def _measured(folder: Path) -> tuple[list[DataTable], list[str]]:
    """The tables of all journals, and which of them cannot be read; no tables where there is only a report."""
    from lightning_gpuprof.analyze.data_tables import journal_tables
    from lightning_gpuprof.analyze.journal import read_journal

    journals: list[Journal] = []
    problems: list[str] = []
    for file in sorted(folder.glob(source.JOURNALS), key=lambda file: (len(file.name), file.name)):
        try:
            journals.append(read_journal(file))
        except JournalError as error:
            problems.append(str(error))
    if not journals:
        problems.append(f"{folder} has no readable journal: no tables of steps and samples")
    return journal_tables(journals) if journals else [], problems


COMMAND = Command(
    description=(
        "Writes everything measured, one table per file, with all digits: steps, devices, host,\n"
        "memory, input (all ranks), phases, callbacks, ledger, findings, evidence, windows, conditions.\n"
        "Column names end in the unit. What was not measured is an empty cell (CSV) or null (Parquet).\n"
        "Needs no GPU and neither torch nor Lightning."
    ),
    examples=(
        "gpuprof export lightning_logs/version_0",
        "gpuprof export runs/digits/version_3 --format parquet --output /tmp/digits",
        "python -c \"import pandas; print(pandas.read_csv('export/steps.csv').period_ms.describe())\"",
    ),
    add_arguments=_add_arguments,
    run=_run,
)
