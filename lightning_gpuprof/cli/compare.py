"""``gpuprof compare``: two runs flow in; what changed, and an exit code for a CI gate, flow out."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from jsonargparse import ArgumentParser, Namespace

from lightning_gpuprof.analyze.compare import compare
from lightning_gpuprof.cli import source
from lightning_gpuprof.cli.command import Command
from lightning_gpuprof.model.comparison import Outcome
from lightning_gpuprof.sinks.comparison_text import print_comparison

EXIT_CODES: dict[Outcome, int] = {"improved": 0, "within noise": 0, "regressed": 1, "not comparable": 2}
"""A gate must not open because nothing could be compared."""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("before", metavar="A", help="the earlier run: its folder or a report.json")
    parser.add_argument("after", metavar="B", help="the later run: its folder or a report.json")
    parser.add_argument("--json", action="store_true", help="print the comparison as JSON")


def _run(options: Namespace) -> int:
    return run(Path(options.before), Path(options.after), as_json=options.json)


def run(before: Path, after: Path, *, as_json: bool = False) -> int:
    """Compare two runs.

    Args:
        before: Folder or ``report.json`` of the earlier run.
        after: Folder or ``report.json`` of the later run.
        as_json: Print JSON for a program.

    Returns:
        0 for improved and within noise, 1 for regressed, 2 for not comparable.

    Raises:
        GpuProfError: A report cannot be read or made.
    """
    comparison = compare(source.load(before), source.load(after), before_name=str(before), after_name=str(after))
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(comparison), indent=1).decode() + "\n")
    else:
        print_comparison(comparison)
    return EXIT_CODES[comparison.outcome]


COMMAND = Command(
    name="compare",
    summary="hold a later run against an earlier one (exit code 1: slower)",
    description=(
        "Shows what changed from run A to run B: period, samples/s, wall time, phases, findings gone and new,\n"
        "and the gain that A's findings predicted against the one that B achieved.\n\n"
        "exit codes: 0 improved or within noise, 1 regressed, 2 error or not comparable"
    ),
    examples=(
        "gpuprof compare runs/digits/version_0 runs/digits_fixed/version_0",
        "gpuprof compare baseline/report.json lightning_logs/version_7 --json",
    ),
    add_arguments=_add_arguments,
    run=_run,
)
