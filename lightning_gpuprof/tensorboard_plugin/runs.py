"""Finds the runs under a log directory; the search is bounded and runs off the request."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lightning_gpuprof.sinks import json_report
from lightning_gpuprof.tensorboard_plugin.run_files import REPORT, is_journal

MAX_DEPTH = 12
MAX_FOLDERS = 50_000
MAX_RUNS = 2_000
RENEWED_AFTER_S = 4.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """A folder with a journal or a report."""

    name: str
    """Relative to the log directory, with ``/``; ``.`` is the directory itself."""
    folder: Path


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search found."""

    runs: Mapping[str, Run] = field(default_factory=dict)
    note: str = ""
    """Why there may be more; empty if all were found."""


class RunFolders:
    """The runs under a log directory, found again when a look at them is older than a few seconds.

    Args:
        root: The log directory, resolved.
        now: Seconds on a clock that only goes forward.
    """

    def __init__(self, root: Path, now: Callable[[], float] = time.monotonic) -> None:
        self.root = root
        self._now = now
        self._lock = threading.Lock()
        self._found = Found()
        self._searched_at: float | None = None
        self._under_way: threading.Event | None = None

    def found(self, wait_s: float, *, renewed: bool = False) -> Found:
        """What is known of the runs; a search that is due is begun.

        Args:
            wait_s: How long to wait for a search that is under way.
            renewed: Search now, however young the last look is.

        Returns:
            Of the last search that has ended; empty before the first one has.
        """
        with self._lock:
            done = self._under_way
            old = self._searched_at is None or self._now() - self._searched_at > RENEWED_AFTER_S
            if done is None and (old or renewed):
                done = self._under_way = threading.Event()
                threading.Thread(target=self._search, args=(done,), name="gpuprof-tab runs", daemon=True).start()
        if done is not None:
            done.wait(wait_s)
        return self._found

    def _search(self, done: threading.Event) -> None:
        try:
            self._found = search(self.root)
        finally:
            with self._lock:
                self._searched_at = self._now()
                self._under_way = None
            done.set()


def search(root: Path) -> Found:
    """Find the folders of runs below a resolved one; links are not followed: what they name in it is found anyway."""
    runs: dict[str, Run] = {}
    for number, (folder, names) in enumerate(_folders(root)):
        if number >= MAX_FOLDERS:
            return Found(runs=runs, note=f"Only the first {MAX_FOLDERS:,} folders of the log directory were searched.")
        if any(map(is_journal, names)) or (REPORT in names and json_report.is_own(folder / REPORT)):
            if len(runs) >= MAX_RUNS:
                return Found(runs=runs, note=f"The log directory holds more than {MAX_RUNS:,} runs.")
            # A name that is no text, as file systems allow, is written as escapes.
            name = os.fsencode(folder.relative_to(root).as_posix()).decode("utf-8", "backslashreplace")
            runs.setdefault(name, Run(name=name, folder=folder))
    return Found(runs=runs)


def _folders(root: Path) -> Iterator[tuple[Path, set[str]]]:
    """Each folder with the names of its files, parents first."""
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop()
        inner, names = [], set()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if not entry.name.startswith(".") and depth < MAX_DEPTH:
                            inner.append((folder / entry.name, depth + 1))
                    elif entry.name == REPORT or is_journal(entry.name):
                        names.add(entry.name)
        except OSError:
            continue
        yield folder, names
        waiting += sorted(inner, reverse=True)
