"""Installed distributions and their entry points, from names of folders.

:mod:`importlib.metadata` imports the parser of e-mails and reads whole files for it: a third of ``gpuprof doctor``.
"""

import contextlib
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_INFO = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-[^/]*)?\.(?:dist|egg)-info")


class EntryPoint(NamedTuple):
    """What a distribution offers to others under a name."""

    name: str
    value: str

    def load(self) -> object:
        """Import it."""
        return pkgutil.resolve_name(self.value)


class Installed:
    """What can be imported; of a distribution that is there twice, the first one counts.

    Args:
        paths: Folders to look in; those that are none are left out.
    """

    def __init__(self, paths: Iterable[str] = sys.path) -> None:
        self._folders: dict[str, tuple[str, Path]] = {}
        for path in paths:
            with contextlib.suppress(OSError):
                for folder in Path(path).iterdir():
                    if found := _INFO.fullmatch(folder.name):
                        self._folders.setdefault(_normal(found["name"]), (found["version"], folder))

    def version(self, distribution: str) -> str | None:
        """Version of a distribution; None if it is not installed."""
        found = self._folders.get(_normal(distribution))
        return None if found is None else found[0]

    def entry_points(self, group: str) -> list[EntryPoint]:
        """All entry points of a group."""
        return [point for _, folder in self._folders.values() for point in _entries(folder, group)]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _entries(folder: Path, group: str) -> Iterator[EntryPoint]:
    try:
        lines = (folder / "entry_points.txt").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    section = ""
    for line in map(str.strip, lines):
        if line.startswith("["):
            section = line.strip("[]")
        elif section == group and "=" in line:
            name, _, value = line.partition("=")
            yield EntryPoint(name.strip(), value.partition("[")[0].strip())
