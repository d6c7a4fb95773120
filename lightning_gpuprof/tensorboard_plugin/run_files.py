"""Which of a run's files may be read, how large they are and when they changed."""

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from lightning_gpuprof import __version__
from lightning_gpuprof.errors import ReportError

REPORT = "report.json"
FACTS_ENDING = ".facts.json"
MAX_ENTRIES = 10_000


@dataclass(frozen=True, kw_only=True)
class SeenFile:
    """A file as it was when the folder was looked at."""

    path: Path
    size_bytes: int
    changed_ns: int
    """Unix time."""


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """What a report is made from."""

    folder: Path
    journals: tuple[SeenFile, ...]
    """Lowest rank first."""
    report: SeenFile | None
    facts: tuple[SeenFile, ...]

    @property
    def report_is_current(self) -> bool:
        """Whether ``report.json`` was written after the last line of every journal."""
        return self.report is not None and all(j.changed_ns <= self.report.changed_ns for j in self.journals)

    @property
    def changed_ns(self) -> int:
        """When anything was written last."""
        return max((file.changed_ns for file in self._all()), default=0)

    @property
    def size_bytes(self) -> int:
        """What has to be read for a report."""
        used = [self.report] if self.report is not None and self.report_is_current else [*self.journals, *self.facts]
        return sum(file.size_bytes for file in used)

    @property
    def version(self) -> str:
        """Another one as soon as any of the files, or this package, changes."""
        seen = [__version__, *(f"{f.path.name}|{f.size_bytes}|{f.changed_ns}" for f in self._all())]
        return hashlib.sha256("\n".join(seen).encode("utf-8", "surrogateescape")).hexdigest()[:20]

    def _all(self) -> tuple[SeenFile, ...]:
        return (*self.journals, *((self.report,) if self.report else ()), *self.facts)


def is_journal(name: str) -> bool:
    """Whether a file of this name is taken for one rank's journal, as :mod:`lightning_gpuprof.run_folder` does."""
    return name.startswith("rank") and name.endswith(".jsonl")


def look(folder: Path, root: Path) -> RunFiles:
    """Look at the files of a run.

    Args:
        folder: Of the run.
        root: The log directory, resolved; what leads out of it is not read.

    Returns:
        Sizes and times of change as they are now: journals by rank, facts by name; ``report`` is None without
        ``report.json``.

    Raises:
        ReportError: The folder cannot be read, or a file in it is none or leads out of the log directory.
    """
    journals, facts, report = [], [], None
    try:
        if not folder.resolve().is_relative_to(root):
            raise ReportError("the run's folder has become a link that leads out of the log directory")
        with os.scandir(folder) as entries:
            for number, entry in enumerate(entries):
                if number >= MAX_ENTRIES:
                    raise ReportError(f"the folder holds more than {MAX_ENTRIES:,} files")
                if is_journal(entry.name):
                    journals.append(_seen(entry, root))
                elif entry.name == REPORT:
                    report = _seen(entry, root)
                elif entry.name.endswith(FACTS_ENDING):
                    facts.append(_seen(entry, root))
    except OSError as error:
        raise ReportError(f"the run's folder cannot be read: {error.strerror or error}") from error
    except RuntimeError as error:  # Path.resolve of a link to itself, before Python 3.13
        raise ReportError("the run's folder cannot be read: a link in it leads to itself") from error
    journals.sort(key=lambda file: (len(file.path.name), file.path.name))
    facts.sort(key=lambda file: file.path.name)
    return RunFiles(folder=folder, journals=tuple(journals), report=report, facts=tuple(facts))


def _seen(entry: os.DirEntry[str], root: Path) -> SeenFile:
    path = Path(entry.path)
    if entry.is_symlink() and not path.resolve().is_relative_to(root):
        raise ReportError(f"{entry.name} is a link that leads out of the log directory: it is not followed")
    found = entry.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ReportError(f"{entry.name} is not a regular file")
    return SeenFile(path=path, size_bytes=found.st_size, changed_ns=found.st_mtime_ns)
