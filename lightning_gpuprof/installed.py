"""Installed distributions and their entry points, from the names of their folders.

:mod:`importlib.metadata` imports a parser of e-mails for it and reads a file of each: a quarter of ``gpuprof doctor``.
"""

import contextlib
import os
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
        paths: Folders to look in; default: ``sys.path``. If there is an archive or an egg among them,
            importlib.metadata is asked.
    """

    def __init__(self, paths: Iterable[str] | None = None) -> None:
        self._folders: dict[str, tuple[str, Path]] = {}
        self._are_all_seen = True
        for path in sys.path if paths is None else paths:
            with contextlib.suppress(OSError, ValueError, TypeError):  # a folder that may not be entered; no path
                if os.path.isfile(path):  # noqa: PTH113  # a zip with packages; this one raises nothing
                    self._are_all_seen = False
                    continue
                for folder in Path(path).iterdir():
                    if found := _INFO.fullmatch(folder.name):
                        self._folders.setdefault(_normal(found["name"]), (found["version"], folder))
                    elif folder.suffix == ".egg-info" and (version := _noted_version(folder)):  # of a checkout
                        self._folders.setdefault(_normal(folder.stem), (version, folder))
                    elif folder.suffix in (".egg-info", ".egg"):
                        self._are_all_seen = False

    def version(self, distribution: str) -> str | None:
        """Version of a distribution; None if it is not installed."""
        found = self._folders.get(_normal(distribution))
        if found is not None or self._are_all_seen:
            return None if found is None else found[0]
        from importlib import metadata

        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(distribution)
        return None

    def entry_points(self, group: str) -> list[EntryPoint]:
        """All entry points of a group."""
        if not self._are_all_seen:
            from importlib import metadata

            return [EntryPoint(one.name, _object(one.value)) for one in metadata.entry_points(group=group)]
        return [point for _, folder in self._folders.values() for point in _entries(folder, group)]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _noted_version(folder: Path) -> str:
    """Empty if it is not known."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in (folder / "PKG-INFO").read_text(encoding="utf-8").splitlines():
            if line.startswith("Version: "):
                return line.removeprefix("Version: ").strip()
    return ""


def _entries(folder: Path, group: str) -> Iterator[EntryPoint]:
    try:
        lines = (folder / "entry_points.txt").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    section = ""
    for line in map(str.strip, lines):
        if line.startswith("["):
            section = line.strip("[]")
        elif section == group and "=" in line:
            name, _, value = line.partition("=")
            yield EntryPoint(name.strip(), _object(value))


def _object(value: str) -> str:
    """Without the extras that it is said to need."""
    return value.partition("[")[0].strip()
