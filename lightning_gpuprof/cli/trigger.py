"""``gpuprof trigger``: asks a running job for a trace window by touching a file in its folder."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

import msgspec

from lightning_gpuprof.capture.triggers import TRIGGER_FILE
from lightning_gpuprof.cli import source
from lightning_gpuprof.cli.command import Command, print_json
from lightning_gpuprof.cli.runs_below import header_of, runs_below
from lightning_gpuprof.errors import ReportError
from lightning_gpuprof.model.journal import Footer, Header
from lightning_gpuprof.model.pid_space import is_running
from lightning_gpuprof.model.run_folders import own_folders

_TAIL_BYTES = 65_536
"""A footer is shorter than this."""
_NAMED = 5
"""Unfinished runs that a message names."""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR", type=Path, help="folder of a run: the profiler's own, or one above it")
    parser.add_argument("--json", action="store_true", help="print what was touched as JSON")


def _run(options: Namespace) -> int:
    folder = running_folder(options.dir)
    dead = _dead_ranks(folder)
    if len(dead) == len(_headers(folder)) > 0:
        gone = ", ".join(str(header.pid) for header in dead[:_NAMED]) + (", ..." if len(dead) > _NAMED else "")
        raise ReportError(
            f"{folder}: this run was killed or crashed (no process {gone} is on this host): only a running job can be "
            "traced"
        )
    trigger = folder / TRIGGER_FILE
    try:
        trigger.touch()
    except OSError as error:
        raise ReportError(f"{trigger} cannot be created ({error.strerror or error})") from error
    doubts = [
        f"no process {header.pid} is on this host: if rank {header.rank} was killed, there will be no trace"
        for header in dead
    ]
    if options.json:
        print_json({"folder": str(folder), "touched": str(trigger), "doubts": doubts})
        return 0
    print(
        f"touched {trigger}\n"
        "Each rank in trace.ranks looks for it about once a second and traces its next steps; several ranks start at "
        "the same step, some seconds later. Nothing is traced if trace is off, its limits are reached or another "
        "tracer is in use.\n"
        f"The trace appears as {folder / 'rank*.pt.trace.json.gz'}; `gpuprof report {options.dir}` shows what is in it."
    )
    for doubt in doubts:
        print(f"gpuprof: warning: {doubt}", file=sys.stderr)
    return 0


def running_folder(directory: Path) -> Path:
    """The folder of a run that goes on: the directory itself, ``gpuprof`` in it or beside it, or one below it.

    Raises:
        ReportError: There is no journal, all have ended, or more than one run goes on.
    """
    if not directory.is_dir():
        raise ReportError(f"there is no folder {directory}: name the folder of a run, such as lightning_logs/version_0")
    folders = [directory] if source.has_journal(directory) else own_folders(directory)
    folders = [folder for folder in folders if source.has_journal(folder)]
    folders = folders or [f for f in runs_below(directory, source.JOURNALS).folders if source.has_journal(f)]
    if not folders:
        raise ReportError(
            f"{directory} and its folders contain no journal ({source.JOURNALS}): name the folder that GpuProfiler "
            "writes, usually <log_dir>/gpuprof"
        )
    going_on = [folder for folder in folders if not _has_ended(folder)]
    going_on = [folder for folder in going_on if not _dead_ranks(folder)] or going_on
    if not going_on:
        ended = f"{folders[0]}: this run has" if len(folders) == 1 else f"{directory}: all {len(folders)} runs have"
        raise ReportError(f"{ended} ended: only a running job can be traced")
    if len(going_on) > 1:
        raise ReportError(
            f"{directory} contains {len(going_on)} unfinished runs; name one: {', '.join(map(str, going_on[:_NAMED]))}"
            + (", ..." if len(going_on) > _NAMED else "")
        )
    return going_on[0]


def _has_ended(folder: Path) -> bool:
    """Whether the journals of all ranks have their last line."""
    return all(_footer(journal) is not None for journal in folder.glob(source.JOURNALS))


def _footer(journal: Path) -> Footer | None:
    """The last line, if the run wrote one; the file is not read as a whole, because it may be large."""
    try:
        with journal.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            lines = file.read().splitlines()
        return msgspec.json.decode(lines[-1], type=Footer) if lines else None
    except OSError as error:
        raise ReportError(f"{journal} cannot be read ({error.strerror or error})") from error
    except msgspec.MsgspecError:
        return None


def _dead_ranks(folder: Path) -> list[Header]:
    return [header for header in _headers(folder) if is_running(header) is False]


def _headers(folder: Path) -> list[Header]:
    return [header for journal in sorted(folder.glob(source.JOURNALS)) if (header := header_of(journal))]


COMMAND = Command(
    description=(
        "Requests a trace window from a running job: touches the file `trigger` in its folder, which the run looks at\n"
        "about once a second, off the main thread. From the same host, `kill -USR2 PID` of the main process\n"
        "does the same, where the training script has no handler of its own for that signal."
    ),
    examples=(
        "gpuprof trigger lightning_logs/version_0",
        "gpuprof trigger runs/digits/version_3/gpuprof",
        "ssh node7 touch /scratch/run/gpuprof/trigger     the same by hand",
    ),
    add_arguments=_add_arguments,
    run=_run,
)
