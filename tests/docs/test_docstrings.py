"""Docstrings of public functions: what each argument is, where there are several. ruff holds the names (D417)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_blocks import ROOT

ROOMS = ("model", "capture", "trace", "cli")


def without_arguments(body: list[ast.stmt], within: str = "") -> Iterator[str]:
    """Public functions with two or more arguments whose docstring has no ``Args:``."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from without_arguments(node.body, f"{within}{node.name}.")
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            named = [one for one in arguments if one.arg not in ("self", "cls")]
            if len(named) > 1 and "Args:" not in (ast.get_docstring(node) or ""):
                yield within + node.name


@pytest.mark.parametrize("room", ROOMS)
def test_functions_with_several_arguments_say_what_each_is(room: str) -> None:
    found = {
        str(path.relative_to(ROOT)): names
        for path in sorted(Path(ROOT, "lightning_gpuprof", room).rglob("*.py"))
        if (names := list(without_arguments(ast.parse(path.read_text(encoding="utf-8")).body)))
    }
    assert not found, "an Args: section is missing"


def test_a_function_without_them_is_found() -> None:
    said = '"""Do.\n\n    Args:\n        a: One.\n        b: Two.\n    """'
    text = (
        f'class A:\n  def f(self, a, b):\n    """Do."""\n  def g(self, a):\n    """Do."""\ndef h(a, *, b):\n    {said}'
    )
    assert list(without_arguments(ast.parse(text).body)) == ["A.f"]
