"""``gpuprof report``: the report of a run on the terminal, as HTML and as JSON."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_gpuprof.cli import source
from lightning_gpuprof.cli.command import Command, path
from lightning_gpuprof.errors import ArgumentError, ReportError
from lightning_gpuprof.model.run_folders import FOLDER_PATTERN
from lightning_gpuprof.sinks.files import write_whole
from lightning_gpuprof.sinks.plain import name
from lightning_gpuprof.sinks.status_line import progress

if TYPE_CHECKING:
    from lightning_gpuprof.model.config import ReportKind
    from lightning_gpuprof.model.report import Report

_ALONE = ("prometheus", "lines", "otel", "flame")
"""Options that do one thing and print no report."""
TOP_FUNCTIONS = 10
"""Of another profiler's file, or so many files where it knows of no functions."""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "dir",
        metavar="DIR",
        type=source.path_or_address,
        help="folder of a run: the profiler's own or the logger's around it; or an address (s3://bucket/runs)",
    )
    parser.add_argument("--all", action="store_true", help="print all numbers instead of the first screen")
    parser.add_argument("--json", action="store_true", help="print the report as JSON and write nothing else")
    parser.add_argument("--rank", type=int, metavar="N", help="the report of rank N; nothing is written into DIR")
    parser.add_argument("--html", metavar="FILE", type=path, help="write the page here, not into DIR")
    parser.add_argument(
        "--prometheus", metavar="FILE", type=path, help="write the numbers here for node_exporter, and nothing else"
    )
    parser.add_argument(
        "--lines", metavar="FILE", type=path, help="print a .lprof or Scalene's JSON beside our lines, nothing else"
    )
    parser.add_argument(
        "--otel", action="store_true", help="send the numbers to OTEL_EXPORTER_OTLP_ENDPOINT, and do nothing else"
    )
    parser.add_argument(
        "--flame",
        metavar="FILE",
        type=path,
        help="write the sampled stacks for speedscope (.json) or as folded text (.folded), and nothing else",
    )


def _run(options: Namespace) -> int:
    _check(options)
    folder, page = source.run_folder(options.dir), options.html
    report = source.remake(folder, options.rank)
    if page is not None:
        from lightning_gpuprof.sinks import html  # as below: nobody else waits for it

        with progress(f"writing {name(str(page))}"):
            html.write(report, page, folder)
    if options.prometheus is not None:
        from lightning_gpuprof.sinks import prometheus

        write_whole(options.prometheus, prometheus.encode(report))  # the collector reads it at any time
        return 0
    if options.lines is not None:
        from lightning_gpuprof.analyze.other_lines import read_lines
        from lightning_gpuprof.sinks.line_tables import timed_note, timed_tables
        from lightning_gpuprof.sinks.trace_terminal import print_tables

        functions = read_lines(options.lines)
        if not functions:
            raise ReportError(f"{options.lines} holds no timed lines")
        print_tables(timed_tables(functions[:TOP_FUNCTIONS], report.lines))
        if said := timed_note(report):
            print(f"\n  {said}")
        return 0
    if options.flame is not None:
        write_whole(options.flame, _stacks(report, folded=options.flame.suffix == ".folded"))
        return 0
    if options.otel:
        from lightning_gpuprof.sinks import open_telemetry

        print(f"{open_telemetry.send(report)} values sent through OpenTelemetry")
        return 0
    if options.json:
        from lightning_gpuprof.sinks import json_report

        sys.stdout.write(json_report.encode(report).decode())
        return 0
    where = _rewrite(report, folder, with_page=page is None) if options.rank is None else {}
    if page is not None:
        where["HTML"] = str(page)
    # The logger's folder around ours also holds the scalars and the text.
    logs = folder.parent if folder.match(FOLDER_PATTERN) else folder
    if any(logs.glob("events.out.tfevents*")) or any(folder.glob("*.pt.trace.json.gz")):
        where["TensorBoard"] = f"tensorboard --logdir {logs}"
    if options.all:
        from lightning_gpuprof.sinks.terminal import print_report

        print_report(report, where=where)
    else:
        from lightning_gpuprof.sinks.terminal_screen import print_screen

        print_screen(report, folder, where=where)
    return 0


def _check(options: Namespace) -> None:
    """Refuse what would be left out without a word, and a file that no collector reads."""
    alone = next((name for name in _ALONE if getattr(options, name)), None)
    if alone is None:
        return
    others = [name for name in ("all", "json", "html", *_ALONE) if name != alone and getattr(options, name)]
    if others:
        raise ReportError(f"--{alone} and --{others[0]} cannot be used together: call gpuprof report once for each")
    if options.prometheus is not None and options.prometheus.suffix != ".prom":
        raise ArgumentError("--prometheus", str(options.prometheus), "end with .prom", "Collectors read no other file.")
    if options.flame is not None and options.flame.suffix not in (".json", ".folded"):
        way_out = "speedscope reads .json, flamegraph.pl .folded."
        raise ArgumentError("--flame", str(options.flame), "end with .json or .folded", way_out)


def _stacks(report: Report, *, folded: bool) -> bytes:
    """The sampled stacks of the steps as a file.

    Raises:
        ReportError: There are none.
    """
    import msgspec

    from lightning_gpuprof.sinks import stack_files

    if not report.stacks:
        raise ReportError("this run has no sampled stacks: it was too short to be sampled")
    if folded:
        return "".join(f"{line}\n" for line in stack_files.folded(report.stacks)).encode()
    return msgspec.json.encode(stack_files.speedscope_of(report.stacks))


def _rewrite(report: Report, folder: Path, *, with_page: bool) -> dict[str, str]:
    """Write the files in the folder again; one that cannot be written to is no reason not to print."""
    from lightning_gpuprof import pipeline  # analysis and rules: not for --help

    kinds: tuple[ReportKind, ...] = ("json", "html") if with_page else ("json",)
    try:
        with progress("writing the report's files"):
            return dict(pipeline.write_reports(report, folder, kinds))
    except ReportError as error:
        print(f"gpuprof: warning: {error}", file=sys.stderr)
        return {}


COMMAND = Command(
    description=(
        "Rebuilds report.json and report.html of a run from its journal and prints the result.\n"
        "Needs no GPU and neither torch nor Lightning."
    ),
    examples=(
        "gpuprof report lightning_logs/version_0",
        "gpuprof report lightning_logs/version_0 --all",
        "gpuprof report lightning_logs/version_0 --rank 3",
        "gpuprof report runs/digits/version_3/gpuprof --html /tmp/digits.html",
        "gpuprof report lightning_logs/version_0 --json | jq .verdict",
        "gpuprof report lightning_logs/version_0 --flame steps.speedscope.json",
        "gpuprof report lightning_logs/version_0 --prometheus /var/lib/node_exporter/textfile_collector/gpuprof.prom",
    ),
    add_arguments=_add_arguments,
    run=_run,
)
