"""``gpuprof merge``: the folders of ranks that share no file system become one, which all other commands read."""

from __future__ import annotations

import os
import shutil
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_gpuprof.cli import source
from lightning_gpuprof.cli.command import Command, print_json
from lightning_gpuprof.errors import JournalError, ReportError
from lightning_gpuprof.model.numbers import counted
from lightning_gpuprof.sinks.files import made_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightning_gpuprof.model.rank_summary import RankSummary

_FILES = "rank*"
"""Journals, summaries, traces with their facts, stacks: each begins with the number of its rank."""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("dirs", metavar="DIR", nargs="+", type=Path, help="folders of one job, one per host")
    parser.add_argument("--into", metavar="FOLDER", type=Path, required=True, help="where all of their ranks go")
    parser.add_argument("--json", action="store_true", help="print the folder and its ranks as JSON")


def _run(options: Namespace) -> int:
    ranks = _merge([_ranks_folder(folder) for folder in options.dirs], options.into)
    if options.json:
        print_json({"folder": str(options.into), "ranks": sorted(ranks)})
        return 0
    world_size = next(iter(ranks.values())).world_size
    print(f"{len(ranks):,} of {counted(world_size, 'rank')} are in {options.into}: gpuprof ranks {options.into}")
    return 0


def _ranks_folder(path: Path) -> Path:
    """A folder to take ranks from: of a host only the summaries may have been copied."""
    return path if any(path.glob("rank*.summary.json")) else source.run_folder(path)


def _merge(folders: Sequence[Path], into: Path) -> dict[int, RankSummary]:
    """Put the files of all ranks into one folder: linked where that is possible, else copied; the ranks then in it.

    Raises:
        ReportError: Two folders have the same rank, or are of different jobs; no rank can be read; a file cannot be
            written.
    """
    files: dict[str, Path] = {}
    for file in (file for folder in folders for file in sorted(folder.glob(_FILES)) if file.is_file()):
        other = files.setdefault(file.name, file)
        if not other.samefile(file):
            raise ReportError(f"{other} and {file} belong to the same rank: name folders with different ranks")
    before = {folder: _ranks_in(folder) for folder in (into, *folders)}
    jobs = {one.job: folder for folder, ranks in before.items() for one in ranks.values()}
    if not jobs:
        raise ReportError(f"no rank in {', '.join(map(str, folders))} can be read: name folders with journals")
    if len(jobs) > 1:
        first, second, *_ = jobs.values()
        raise ReportError(f"{first} and {second} belong to different jobs or stages: name folders of one")
    try:
        into.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReportError(f"--into {into} cannot be created ({error.strerror or error})") from error
    for name, file in files.items():
        target = into / name
        if not (target.exists() and target.samefile(file)):
            with made_whole(target) as temporary:
                _link(file, temporary)
    return _ranks_in(into)


def _link(file: Path, target: Path) -> None:
    with suppress(OSError):
        os.link(file, target)
        return
    shutil.copy2(file, target)


def _ranks_in(folder: Path) -> dict[int, RankSummary]:
    from lightning_gpuprof.analyze.journal import read_journal  # numpy: not for --help
    from lightning_gpuprof.analyze.rank_summary import MOST_BYTES_WHILE_RUNNING, journals_in, left_by, summarise

    found: dict[int, RankSummary] = {}
    for rank, journal in journals_in(folder).items():
        with suppress(JournalError):
            found[rank] = left_by(journal) or summarise(read_journal(journal, MOST_BYTES_WHILE_RUNNING))
    return found


COMMAND = Command(
    description=(
        "Joins the run folders of hosts without a shared file system. Copy all of them to one machine first.\n"
        "Every other command reads the merged folder. Files are linked where possible, and nothing in DIR changes."
    ),
    examples=(
        "gpuprof merge host0/gpuprof host1/gpuprof --into job",
        "gpuprof merge host*/gpuprof --into job && gpuprof report job",
    ),
    add_arguments=_add_arguments,
    run=_run,
)
