"""Where rules are: the modules of a package with their files, and the entry points of others; nothing is imported."""

from __future__ import annotations

import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

ENTRY_POINTS = "lightning_gpuprof.rules"
"""Group under which other packages name their rule classes."""


def modules_of(package: ModuleType) -> Iterator[tuple[str, Path]]:
    """The modules of a package and of those in it, each with its file; nothing is imported.

    Yields:
        Name and file.
    """
    for folder in map(Path, package.__path__):
        for info in pkgutil.iter_modules([str(folder)]):
            name = f"{package.__name__}.{info.name}"
            if info.ispkg:
                for inner in pkgutil.iter_modules([str(folder / info.name)]):
                    yield f"{name}.{inner.name}", folder / info.name / f"{inner.name}.py"
            else:
                yield name, folder / f"{info.name}.py"
