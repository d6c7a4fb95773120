"""``gpuprof compare``: what changed between two runs, with an exit code for a CI gate."""

from __future__ import annotations

import math
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from lightning_gpuprof.cli import source
from lightning_gpuprof.cli.command import Command, names
from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.model.comparison import DEFAULT_METRICS, DEFAULT_THRESHOLD_RATIO, Outcome
from lightning_gpuprof.model.conditions import FIXED_GROUPS, FixedGroup
from lightning_gpuprof.sinks.files import write_whole
from lightning_gpuprof.sinks.plain import visible

EXIT_CODES: dict[Outcome, int] = {"improved": 0, "within noise": 0, "regressed": 1, "not comparable": 2}
"""A gate must not open because nothing could be compared."""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("before", metavar="A", type=Path, help="the earlier run: its folder or a report.json")
    parser.add_argument("after", metavar="B", type=Path, help="the later run: its folder or a report.json")
    parser.add_argument(
        "--allow",
        metavar="GROUPS",
        type=names,
        default=(),
        help=f"allow these to differ: {', '.join(FIXED_GROUPS)}; several with commas between",
    )
    parser.add_argument(
        "--threshold",
        metavar="SHARE",
        default=f"{DEFAULT_THRESHOLD_RATIO * 100:g}%",
        help="smallest change that counts, as a percentage or as a fraction",
    )
    parser.add_argument(
        "--metric",
        metavar="NAMES",
        type=names,
        default=(),
        help="what the outcome is based on: throughput, wall, step_time, p95, phase.NAME, memory.NAME; "
        f"several with commas between; default: {','.join(DEFAULT_METRICS)}",
    )
    parser.add_argument("--all", action="store_true", help="print all numbers instead of the first screen")
    parser.add_argument("--json", action="store_true", help="print the comparison as JSON")
    parser.add_argument(
        "--junit", metavar="FILE", type=Path, help="write JUnit XML for a CI system: one test case per measure"
    )
    parser.add_argument("--html", metavar="FILE", type=Path, help="write the comparison as a page that opens offline")


def _groups(given: Sequence[str]) -> tuple[FixedGroup, ...]:
    if unknown := [name for name in given if name not in FIXED_GROUPS]:
        raise ArgumentError("--allow", unknown[0], f"be one of {', '.join(FIXED_GROUPS)}")
    return tuple(group for group in FIXED_GROUPS if group in given)


def parse_share(text: str) -> float:
    """The share of ``--threshold``: 0.05 from ``5%``, ``5 %`` or ``0.05``.

    Raises:
        ArgumentError: It is no number, below 0, or 1 or more.
    """
    number, percent = text.strip(), text.strip().endswith("%")
    try:
        value = float(number.removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1:
        raise ArgumentError("--threshold", text, "be a share from 0% to below 100%, as 5% or 0.05")
    return value


def _run(options: Namespace) -> int:
    from lightning_gpuprof import pipeline  # analysis and rules: not for --help

    allow, threshold_ratio = _groups(options.allow), parse_share(options.threshold)  # before all reading
    comparison = pipeline.compare_runs(
        source.load_run(options.before),
        source.load_run(options.after),
        before_name=str(options.before),
        after_name=str(options.after),
        allow=allow,
        threshold_ratio=threshold_ratio,
        metrics=options.metric,
    )
    if options.json:
        from lightning_gpuprof.sinks import json_report

        sys.stdout.write(json_report.encode(comparison).decode())
    else:
        from lightning_gpuprof.sinks.comparison_text import print_comparison  # as below: nobody else waits for it

        print_comparison(comparison, everything=options.all)
    if options.junit is not None:
        from lightning_gpuprof.sinks import comparison_junit

        write_whole(options.junit, comparison_junit.render_junit(comparison, only=options.metric))
        _print_written("JUnit", options.junit)
    if options.html is not None:
        from lightning_gpuprof.sinks import comparison_html

        write_whole(options.html, comparison_html.render_html(comparison).encode())
        _print_written("HTML", options.html)
    return EXIT_CODES[comparison.outcome]


def _print_written(kind: str, written: Path) -> None:
    print(f"{kind}: {visible(str(written))}", file=sys.stderr)  # beside the JSON, and as gpuprof trace prints it


COMMAND = Command(
    description=(
        "Shows what changed from run A to run B: step time, samples/s, wall time, phases, kernels, memory, findings\n"
        "gone and new, and the gain that B achieved beside the one that A's findings predicted.\n\n"
        "Runs on other hardware, of another model or batch size are not comparable, unless --allow says that this\n"
        "is the change under test. Loaders, flags, versions and the like may differ, and are listed.\n\n"
        "exit codes: 0 improved or within noise, 1 regressed, 2 error or not comparable"
    ),
    examples=(
        "gpuprof compare runs/digits/version_0 runs/digits_fixed/version_0",
        "gpuprof compare baseline/report.json lightning_logs/version_7 --json",
        "gpuprof compare a100/report.json h100/report.json --allow hardware",
        "gpuprof compare baseline lightning_logs/version_7 --threshold 5% --junit gpuprof.xml --html compare.html",
    ),
    add_arguments=_add_arguments,
    run=_run,
)
