"""Finds the runs below a folder, the last to start first; the search is bounded."""

import os
from collections import deque
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from lightning_gpuprof.model.journal import Header
from lightning_gpuprof.model.run_folders import REPORT_FILE

MAX_DEPTH = 8
MAX_FOLDERS = 5_000
_LONGEST_HEADER = 1 << 20
"""Bytes: a file that is no journal may have one line of gigabytes."""


class RunsBelow(msgspec.Struct, frozen=True, kw_only=True):
    """What was found."""

    folders: tuple[Path, ...]
    """The last to start first."""
    all_searched: bool
    """Whether no folder was left out; there may be more runs otherwise."""


def runs_below(root: Path, journals: str, most_folders: int = MAX_FOLDERS) -> RunsBelow:
    """Look for runs, near ones first; neither in hidden folders, nor behind links to folders, nor inside of runs.

    Args:
        root: An existing folder.
        journals: Pattern of the names of journals.
        most_folders: Looks into no more than so many.

    Returns:
        Folders of runs, the last to start first, and whether no folder was left out.
    """
    begun_ns: dict[Path, int] = {}
    waiting = deque([(root, 0)])
    searched, too_deep = 0, False
    while waiting and searched < most_folders:
        folder, depth = waiting.popleft()
        searched += 1
        inner, files = _list_folder(folder, journals)
        if (time_ns := _start_ns(files)) is not None:
            begun_ns[folder] = time_ns
        elif depth < MAX_DEPTH:
            waiting += [(one, depth + 1) for one in sorted(inner)]
        else:
            too_deep = too_deep or bool(inner)
    folders = sorted(begun_ns, key=lambda folder: (-begun_ns[folder], folder))
    return RunsBelow(folders=tuple(folders), all_searched=not waiting and not too_deep)


def start_ns(folder: Path, journals: str) -> int:
    """When a run began, in nanoseconds: making its report again does not make it newer.

    Args:
        folder: Of a run.
        journals: Pattern of the names of journals.

    Returns:
        Unix time; where no journal can be read, when the newest of its files was written. 0: it is no run.
    """
    return _start_ns(_list_folder(folder, journals)[1]) or 0


def _start_ns(files: list[Path]) -> int | None:
    """By the first line of a journal; where there is none to read, by the last change of a file. None: no run."""
    begun = [header.epoch_ns for file in files if file.name != REPORT_FILE and (header := header_of(file))]
    changed = [time_ns for file in files if (time_ns := _changed_ns(file)) is not None]
    return max(begun or changed, default=None)


def header_of(journal: Path) -> Header | None:
    """The first line of a journal; None: there is none to read."""
    try:
        with journal.open("rb") as opened:
            return msgspec.json.decode(opened.readline(_LONGEST_HEADER), type=Header)
    except (OSError, msgspec.DecodeError):
        return None


def _list_folder(folder: Path, journals: str) -> tuple[list[Path], list[Path]]:
    """Folders, and files that have the name of a journal or a report; of a folder that cannot be read, none."""
    inner: list[Path] = []
    files: list[Path] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                if entry.name == REPORT_FILE or fnmatchcase(entry.name, journals):
                    files.append(folder / entry.name)
            elif not entry.name.startswith("."):
                inner.append(folder / entry.name)
    return inner, files


def _changed_ns(file: Path) -> int | None:
    """When a journal or a report of ours was written last."""
    from lightning_gpuprof.sinks import json_report  # reads reports: not for --help

    with suppress(OSError):
        if file.is_file() and (file.name != REPORT_FILE or json_report.is_own(file)):
            return file.stat().st_mtime_ns
    return None
