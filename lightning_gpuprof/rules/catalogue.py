"""All rules with what each finds, from the heads of their files: lists and completion import no rule."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lightning_gpuprof import rules as own_rules
from lightning_gpuprof.installed import Installed
from lightning_gpuprof.rules.files import ENTRY_POINTS, modules_of

if TYPE_CHECKING:
    from collections.abc import Iterator

OF_OTHERS = "Of other packages"
"""In the place of a family."""

_DOCSTRING = re.compile(r'r?"""(.*?)"""', re.DOTALL)
_PAGE = "\n## What it means\n"
"""A heading that the docstring of every built-in rule has, and that of no other module."""


class Listed(NamedTuple):
    """A rule in the list of all: its id, its family in a word, and what it finds in a sentence."""

    rule: str
    family: str
    finds: str


def catalogue() -> list[Listed]:
    """All rules in order of their ids; only those that other packages have added are imported."""
    found = {one.rule: one for one in _own()}
    if points := Installed().entry_points(ENTRY_POINTS):
        from lightning_gpuprof.rules.discovery import discover  # every rule: only where a package adds some
        from lightning_gpuprof.rules.pages import sentence

        for rule in discover(entry_points=points).rules:
            found.setdefault(rule.id, Listed(rule.id, OF_OTHERS, sentence(rule)))
    return [found[rule] for rule in sorted(found)]


def families(rules: list[Listed]) -> dict[str, list[Listed]]:
    """The same by family, the built-in ones first."""
    found: dict[str, list[Listed]] = {}
    for one in sorted(rules, key=lambda one: (one.family == OF_OTHERS, one.family, one.rule)):
        found.setdefault(one.family, []).append(one)
    return found


def _own() -> Iterator[Listed]:
    titles: dict[Path, str] = {}
    for _, file in modules_of(own_rules):
        page = _docstring(file)
        if _PAGE in page:
            if file.parent not in titles:
                titles[file.parent] = _docstring(file.parent / "__init__.py").partition(": ")[0]
            finds = " ".join(page.partition("\n\n")[0].split())
            yield Listed(file.stem.replace("_", "-"), titles[file.parent], finds)


def _docstring(file: Path) -> str:
    found = _DOCSTRING.match(file.read_text(encoding="utf-8"))
    return found[1] if found else ""
