"""Resolves a path that a user named to a run's folder or its report."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_gpuprof.cli.runs_below import runs_below, start_ns
from lightning_gpuprof.errors import ReportError, redacted
from lightning_gpuprof.model.run_folders import REPORT_FILE, own_folders
from lightning_gpuprof.sinks.plain import name
from lightning_gpuprof.sinks.status_line import progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightning_gpuprof.model.report import Report
    from lightning_gpuprof.pipeline import Run

JOURNALS = "rank*.jsonl"
_WANTED = (".jsonl", ".summary.json", ".stacks.txt", ".facts.json", ".collectives.json", REPORT_FILE)
MAX_NAMED = 3
"""Runs in an error."""
_OF_FIT = re.compile(r".*gpuprof(-\d+)?")
"""Folders of other stages end with the stage's name."""


def path_or_address(text: str) -> Path | str:
    """What a user named: an address such as ``s3://bucket/runs`` stays text."""
    return text if "://" in text else Path(text)


@contextmanager
def looked_at(path: Path | str) -> Iterator[tuple[Path, str]]:
    """A run for a command that writes nothing: its folder, and how to name it; the copy of an address is removed.

    Raises:
        ReportError: As of :func:`run_folder`.
    """
    if isinstance(path, Path):
        folder = run_folder(path)
        yield folder, str(folder)
        return
    copy = _copied(path)
    try:
        folder = run_folder(copy)
        yield folder, "/".join([redacted(path).rstrip("/"), *folder.relative_to(copy).parts])
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def _copied(address: str) -> Path:
    """A new temporary folder with the journals, summaries, stacks, facts and reports of an address.

    Raises:
        ReportError: The address cannot be read, or holds none.
    """
    shown = name(redacted(address))
    into = Path(tempfile.mkdtemp(prefix="gpuprof-"))
    try:
        with progress(f"reading {shown}"):
            found = _copy_files(address, into)
    except Exception as error:  # whatever a file system raises
        shutil.rmtree(into, ignore_errors=True)
        why = redacted(f"{type(error).__name__}: {error}", address)
        raise ReportError(f"{shown} cannot be read ({why})") from None  # as that has the address
    if not found:
        into.rmdir()
        raise ReportError(f"{shown} contains no run: name what was given as dirpath, or a folder in it")
    return into


def _copy_files(address: str, into: Path) -> int:
    """Copy what of an address is wanted, with the times at which it was written; how many files that were."""
    there, root = import_module("fsspec.core").url_to_fs(address)
    found = [file for file in there.find(root) if file.endswith(_WANTED)]
    for file in found:
        target = into / file.removeprefix(root).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        there.get_file(file, str(target))
        with suppress(NotImplementedError):  # by file systems that do not keep it
            written_s = there.modified(file).timestamp()
            os.utime(target, (written_s, written_s))
    return len(found)


def run_folder(path: Path | str) -> Path:
    """The folder with a run's journal or report: the path, its report, ``gpuprof`` in or beside it, or a run below.

    Of several runs it is the newest ``fit``, or the newest of any stage; stderr says so. Of an address it is a copy,
    which stays there, as what is made goes into it.

    Raises:
        ReportError: There is no such folder, or no run in it.
    """
    if isinstance(path, str):
        copy = _copied(path)
        print(f"gpuprof: {name(redacted(path))} is copied to {copy}", file=sys.stderr)
        path = copy
    if not path.exists():
        raise ReportError(f"there is no folder {path}; {_runs_here()}")
    if path.name == REPORT_FILE and path.is_file():
        return path.parent
    if not path.is_dir():
        raise ReportError(f"{path} is not a folder: name the folder of a run")
    if _holds_run(path):
        return path
    inner = [folder for folder in own_folders(path) if _holds_run(folder)]
    if inner:
        found = sorted(inner, key=lambda folder: start_ns(folder, JOURNALS), reverse=True)
        searched = True
    else:
        with progress(f"looking for runs below {name(str(path))}"):
            below = runs_below(path, JOURNALS)
        found, searched = list(below.folders), below.all_searched
    if not found and any(path.glob("rank*.summary.json")):
        raise ReportError(
            f"{path} contains summaries of ranks, but no journal ({JOURNALS}): copy one rank's journal there, too"
        )
    if not found:
        raise ReportError(
            f"{path} contains neither a journal ({JOURNALS}) nor a {REPORT_FILE}: name the folder of a run"
        )
    if len(found) == 1 and searched:
        return found[0]
    counted = f"{len(found)} run{'' if len(found) == 1 else 's'}{'' if searched else ' or more'}"
    chosen = next((folder for folder in found if _OF_FIT.fullmatch(folder.name)), found[0])
    print(f"gpuprof: {path} contains {counted}; this is {chosen}, the newest", file=sys.stderr)
    return chosen


def _runs_here() -> str:
    """The runs that can be named here."""
    found = [
        os.path.relpath(run.parent if run.name == "gpuprof" else run)
        for run in runs_below(Path.cwd(), JOURNALS).folders
    ]
    if not found:
        return "there is no run below this folder either: name the folder of one, such as lightning_logs/version_0"
    more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    return f"run{'s' if len(found) > 1 else ''} here: {', '.join(found[:MAX_NAMED])}{more}"


def has_journal(folder: Path) -> bool:
    """Whether the folder's report can be made from measurements."""
    return any(folder.glob(JOURNALS))


def remake(folder: Path, rank: int | None = None) -> Report:
    """The report of a run's folder.

    Args:
        folder: A folder from :func:`run_folder`.
        rank: Whose report; None: the lowest one's.

    Returns:
        Made again from the journal, or read if there is only the report.

    Raises:
        GpuProfError: Journal or report cannot be read.
    """
    from lightning_gpuprof import pipeline  # analysis and rules: not for --help

    with progress(f"making the report of {name(str(folder))}"):
        return pipeline.load_report(folder, rank=rank)


def load_run(path: Path) -> Run:
    """The run that a path stands for: a report's file alone, or a run's folder, in which the journal counts.

    Raises:
        GpuProfError: There is neither, or it cannot be read.
    """
    from lightning_gpuprof import pipeline  # analysis and rules: not for --help

    found = path if path.is_file() else run_folder(path)
    with progress(f"making the report of {name(str(found))}"):
        return pipeline.load_run(found)


def _holds_run(folder: Path) -> bool:
    return folder.is_dir() and (has_journal(folder) or (folder / REPORT_FILE).is_file())
