"""Where rules are: the modules of families with their files, and the entry points of others; nothing is imported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

ENTRY_POINTS = "lightning_gpuprof.rules"
"""Group under which other packages name their rule classes."""


def modules_of(package: ModuleType) -> Iterator[tuple[str, Path]]:
    """Name and file of the modules of families, which are the packages in a package; nothing is imported."""
    for folder in map(Path, package.__path__):
        for file in sorted(folder.glob("*/[!_]*.py")):
            yield f"{package.__name__}.{file.parent.name}.{file.stem}", file
