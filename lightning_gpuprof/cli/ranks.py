"""``gpuprof ranks``: which rank of a job fails, hangs or is late, from the job's folder, also while it runs."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_gpuprof.cli import source
from lightning_gpuprof.cli.command import Command, print_json
from lightning_gpuprof.errors import ArgumentError, ReportError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightning_gpuprof.model.job_ranks import JobRanks

EVERY_S = 5.0
"""Between two looks; a rank writes as often."""
QUIET_S = 60.0
"""For which no rank may write before a job is over of which that is only likely. Heuristic."""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "dir",
        metavar="DIR",
        type=source.path_or_address,
        help="folder of a run: the profiler's own, or one above it; or an address (s3://bucket/runs)",
    )
    parser.add_argument("--json", action="store_true", help="print the same, and all ranks, as JSON")
    parser.add_argument("--watch", action="store_true", help=f"look again every {EVERY_S:.0f} s until the job is over")


def _run(options: Namespace) -> int:
    if options.watch and isinstance(options.dir, str):
        raise ArgumentError("--watch", options.dir, "be used with a folder", "Run gpuprof ranks again instead.")
    with source.looked_at(options.dir) as (folder, name):
        if not source.has_journal(folder):
            raise ReportError(f"{name} contains a report but no journal: copy the {source.JOURNALS} of its ranks there")
        if options.watch:
            watch(folder, lambda job: _show(job, options))
        else:
            from lightning_gpuprof.job_ranks import job_ranks  # analysis and rules: not for --help

            _show(job_ranks(folder, name=name), options)
    return 0


def watch(folder: Path, show: Callable[[JobRanks], None], sleep: Callable[[float], object] = time.sleep) -> None:
    """Show the ranks of a job again and again until no rank goes on.

    Where that is only likely, because nothing has been written for long, until nothing was written meanwhile either:
    clocks of hosts may differ.

    Args:
        folder: Of the job.
        show: Called with what each look finds.
        sleep: Waits so many seconds.

    Raises:
        JournalError: No journal that has been written to can be read, or all are empty and old.
    """
    from lightning_gpuprof.job_ranks import job_ranks  # as above
    from lightning_gpuprof.model.job_ranks import GONE_S

    before, quiet_s, has_said = None, 0.0, False
    while True:
        written = _written(folder)
        quiet_s = quiet_s + EVERY_S if written == before else 0.0
        before = written
        if any(size for size, _ in written.values()) or all(
            time.time() - at_s > GONE_S for _, at_s in written.values()
        ):
            job = job_ranks(folder)
            show(job)
            likely = any(one.state in ("silent", "hanging") for one in job.ranks)
            if job.is_over and (not likely or quiet_s >= QUIET_S):
                return
        elif not has_said:
            print(f"gpuprof: {folder} has only empty journals: waiting for the ranks to write", file=sys.stderr)
            has_said = True
        sleep(EVERY_S)


def _written(folder: Path) -> dict[str, tuple[int, float]]:
    """Size and time of each journal."""
    found: dict[str, tuple[int, float]] = {}
    for file in folder.glob(source.JOURNALS):
        with suppress(OSError):  # a dangling link, or deleted since
            of_file = file.stat()
            found[file.name] = of_file.st_size, of_file.st_mtime
    return found


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
        "Shows which ranks of a job failed, were killed, hang or are late, and what that costs.\n"
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
