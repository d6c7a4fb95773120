"""Finds the Python files that a command runs, and the YAML that LightningCLI reads."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_CLASS_PATH = re.compile(r"class_path:\s*['\"]?([\w.]+)")
_INSTALLED = frozenset(("site-packages", "dist-packages", ".venv", "venv"))
_OURS = Path(__file__).resolve().parents[2]
"""The profiler itself, which is no part of the user's program where it is not installed but checked out."""


@dataclass(frozen=True, kw_only=True)
class Files:
    """What a patch may change."""

    sources: tuple[Path, ...] = ()
    """The script first, then what it imports, directly or not, of what is not installed."""
    config: Path | None = None


def files_of(program: Sequence[str]) -> Files:
    """The files of a program, as it is started in the current folder.

    Args:
        program: ``python train.py --config my.yaml``, ``python -m package.train``, ``torchrun train.py``; without a
            script in it there are none.
    """
    start, rest = _start(program)
    if start is None:
        return Files()
    roots = (start.parent, Path())
    config = _config(rest)
    found: dict[Path, Path] = {}
    waiting = [start]
    if config is not None:
        text = config.read_text(encoding="utf-8", errors="replace")
        waiting += [path for name in _CLASS_PATH.findall(text) for path in _modules(name.rpartition(".")[0], roots)]
    while waiting:
        path = waiting.pop(0)
        if (resolved := path.resolve()) in found:
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            if path is not start:  # it cannot have been imported
                continue
            tree = ast.Module([], [])
        found[resolved] = path
        waiting += [one for name in _imported(tree, path) for one in _modules(name, roots)]
    return Files(sources=tuple(found.values()), config=config)


def _start(program: Sequence[str]) -> tuple[Path | None, Sequence[str]]:
    for index, word in enumerate(program):
        if word.endswith(".py") and Path(word).is_file():
            return Path(word), program[index + 1 :]
        if word == "-m" and index + 1 < len(program):
            found = [*_modules(f"{program[index + 1]}.__main__", (Path(),)), *_modules(program[index + 1], (Path(),))]
            own = [path for path in found if path.name != "__init__.py"]
            if own:
                return own[0], program[index + 2 :]
    return None, ()


def _config(words: Sequence[str]) -> Path | None:
    """The last file counts: it is read over those before it."""
    given = [word.removeprefix("--config=") for word in words if word.startswith("--config=")]
    given += [after for word, after in itertools.pairwise(words) if word in ("--config", "-c")]
    return next((Path(word) for word in reversed(given) if Path(word).is_file()), None)


def _modules(name: str, roots: Sequence[Path]) -> list[Path]:
    """The files of a module and of the packages around it, in the first folder that has it."""
    parts = name.split(".")
    for root in roots:
        inner = root.joinpath(*parts)
        for path in (inner.with_name(f"{inner.name}.py"), inner / "__init__.py"):
            if name and path.is_file() and not _is_installed(path.resolve()):
                around = [root.joinpath(*parts[:depth], "__init__.py") for depth in range(1, len(parts))]
                return [path, *(one for one in around if one.is_file())]
    return []


def _is_installed(path: Path) -> bool:
    return bool(_INSTALLED & set(path.parts)) or path.is_relative_to(_OURS)


def _imported(tree: ast.Module, path: Path) -> Iterator[str]:
    """The names of all modules that a file may import, as from its folder where they are relative."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = path.resolve().parents[node.level - 1].relative_to(Path.cwd()) if _is_inside(node, path) else None
            module = ".".join([*(package.parts if package is not None else ()), *filter(None, [node.module])])
            yield module
            yield from (f"{module}.{one.name}" for one in node.names)


def _is_inside(node: ast.ImportFrom, path: Path) -> bool:
    """Whether an import is relative, to a package below the current folder."""
    return node.level > 0 and path.resolve().parents[node.level - 1].is_relative_to(Path.cwd())
