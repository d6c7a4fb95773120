"""``gpuprof export``: a run's tables for other programs."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from lightning_gpuprof.cli import source
from lightning_gpuprof.cli.command import Command, path, print_json
from lightning_gpuprof.errors import ArgumentError, JournalError, ReportError
from lightning_gpuprof.model.numbers import counted
from lightning_gpuprof.sinks.data_files import FORMATS, write_tables
from lightning_gpuprof.sinks.files import make_folder
from lightning_gpuprof.sinks.status_line import progress

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lightning_gpuprof.analyze.journal_columns import Journal
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
    parser.add_argument(
        "--format",
        choices=(*FORMATS, "sqlite"),
        default="csv",
        help="parquet needs pyarrow; sqlite: the trace windows only, as nsys export writes them",
    )
    parser.add_argument("--events", action="store_true", help="also the single events of each trace window")
    parser.add_argument("--output", metavar="FOLDER", type=path, help=f"write here, not into DIR/{DEFAULT_FOLDER}")
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")


def _run(options: Namespace) -> int:
    from lightning_gpuprof.analyze.data_tables import report_tables  # numpy: not for --help

    folder = source.run_folder(options.dir)
    target = options.output or folder / DEFAULT_FOLDER
    if options.format == "sqlite":
        if options.events:
            raise ArgumentError("--events", True, "be left out for sqlite", "A database has the single events anyway.")
        return _show(_databases(folder, target), as_json=options.json)
    with progress("reading the journals"):
        measured, problems = _measured(folder)
    for problem in problems:
        print(f"gpuprof: warning: {problem}", file=sys.stderr)
    tables = [*measured, *report_tables(source.remake(folder)), *(_events(folder) if options.events else ())]
    with progress("writing the tables"):
        files = write_tables(tables, target, options.format)
    written = [
        Written(table=table.name, file=str(file), rows=len(table), columns=list(table.columns))
        for table, file in zip(tables, files, strict=True)
    ]
    return _show(written, as_json=options.json)


def _show(written: Sequence[Written], *, as_json: bool) -> int:
    if as_json:
        print_json(written)
        return 0
    width = max(len(one.table) for one in written)
    for one in written:
        print(f"{one.table:{width}}  {counted(one.rows, 'row'):>14}  {one.file}")
    return 0


def _traces(folder: Path) -> list[Path]:
    """The trace windows of a run.

    Raises:
        ReportError: It has none.
    """
    if not (found := sorted(folder.glob("[!.]*.pt.trace.json*"))):
        raise ReportError(f"{folder} has no trace window")
    return found


def _databases(folder: Path, target: Path) -> list[Written]:
    from lightning_gpuprof.trace.export.nsys_sqlite import write_nsys_sqlite
    from lightning_gpuprof.trace.reader import Trace

    make_folder(target)
    written = []
    for file in _traces(folder):
        with progress(f"writing {file.name} as a database"):
            name = file.name.partition(".pt.trace")[0]
            trace = Trace.read(file, frames=False)
            write_nsys_sqlite(trace, target / f"{name}.sqlite")
        tables = trace.device_work, trace.device_wait, trace.runtime, trace.annotation, trace.module_range, trace.cpu_op
        rows = sum(map(len, tables))
        written.append(Written(table=name, file=str(target / f"{name}.sqlite"), rows=rows, columns=[]))
    return written


def _events(folder: Path) -> Iterator[DataTable]:
    from lightning_gpuprof.trace.export.event_table import event_table
    from lightning_gpuprof.trace.reader import Trace

    for file in _traces(folder):
        with progress(f"reading {file.name}"):
            yield event_table(Trace.read(file), f"events_{file.name.partition('.pt.trace')[0]}")


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
        "gpuprof export lightning_logs/version_0 --format sqlite",
        "python -c \"import pandas; print(pandas.read_csv('export/steps.csv').period_ms.describe())\"",
    ),
    add_arguments=_add_arguments,
    run=_run,
)
