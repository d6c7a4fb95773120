"""``gpuprof ranks``: which rank of a job fails, hangs or is late, from the job's folder, also while it runs."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_gpuprof.cli import source
from lightning_gpuprof.cli.command import Command, print_json
from lightning_gpuprof.errors import ReportError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightning_gpuprof.model.job_ranks import JobRanks

EVERY_S = 5.0
"""Between two looks; a rank writes as often."""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR", type=Path, help="folder of a run: the profiler's own, or one above it")
    parser.add_argument("--json", action="store_true", help="print the same, and all ranks, as JSON")
    parser.add_argument("--watch", action="store_true", help=f"look again every {EVERY_S:.0f} s until the job is over")


def _run(options: Namespace) -> int:
    folder = source.run_folder(options.dir)
    if not source.has_journal(folder):
        raise ReportError(f"{folder} holds a report but no journal ({source.JOURNALS}): copy those of the ranks there")
    if options.watch:
        watch(folder, lambda job: _show(job, options))
    else:
        from lightning_gpuprof import pipeline  # analysis and rules: not for --help

        _show(pipeline.job_ranks(folder), options)
    return 0


def watch(folder: Path, show: Callable[[JobRanks], None], sleep: Callable[[float], object] = time.sleep) -> None:
    """Show the ranks of a job again and again until no rank goes on.

    Args:
        folder: Of the job.
        show: Called with what each look finds.
        sleep: Waits so many seconds.

    Raises:
        JournalError: No journal that has been written to can be read.
    """
    from lightning_gpuprof import pipeline  # as above

    is_over = False
    while not is_over:
        if any(file.stat().st_size for file in folder.glob(source.JOURNALS)):
            job = pipeline.job_ranks(folder)
            show(job)
            is_over = job.is_over
        if not is_over:
            sleep(EVERY_S)


def _show(job: JobRanks, options: Namespace) -> None:
    from lightning_gpuprof.sinks import ranks_screen

    if options.json:
        print_json(job)
        sys.stdout.flush()
        return
    if options.watch and sys.stdout.isatty():
        sys.stdout.write("\x1b[H\x1b[J")
    ranks_screen.print_screen(job)


COMMAND = Command(
    description=(
        "Says of all ranks of a job which have failed, were killed, hang or are late, and what that costs.\n"
        "Reads the job's folder only, while it runs or later; needs no GPU and neither torch nor Lightning."
    ),
    examples=(
        "gpuprof ranks $SCRATCH/gpuprof/1234",
        "gpuprof ranks $SCRATCH/gpuprof/1234 --watch",
        "gpuprof ranks lightning_logs/version_0 --json | jq -r .answer",
    ),
    add_arguments=_add_arguments,
    run=_run,
)
