"""Docstrings of public functions: what several arguments are, and what is raised. ruff holds the names (D417)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from doc_blocks import ROOT
from lightning.pytorch import Callback

PACKAGE = ROOT / "lightning_gpuprof"
UNDOCUMENTED = ("rules/*/",)
"""Rules: their methods are those of the base, which says what it gives them."""

MODULES = sorted(
    path
    for path in PACKAGE.rglob("*.py")
    if not any(path.relative_to(PACKAGE).match(f"{folder}*.py") for folder in UNDOCUMENTED)
)


def missing_sections(body: list[ast.stmt], within: str = "") -> Iterator[str]:
    """Public functions without ``Args:`` for two or more arguments, or without ``Raises:`` for their own ``raise``."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from missing_sections(node.body, f"{within}{node.name}.")
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            docstring = ast.get_docstring(node) or ""
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            named = [one for one in arguments if one.arg not in ("self", "cls")]
            of_lightning = hasattr(Callback, node.name)  # Lightning says what its hooks are given
            if len(named) > 1 and "Args:" not in docstring and not of_lightning:
                yield f"{within}{node.name}: Args"
            raises = any(isinstance(one, ast.Raise) and one.exc is not None for one in ast.walk(node))
            if raises and "Raises" not in docstring:
                yield f"{within}{node.name}: Raises"


@pytest.mark.parametrize("room", sorted({path.relative_to(PACKAGE).parts[0] for path in MODULES}))
def test_functions_say_what_their_arguments_are_and_what_they_raise(room: str) -> None:
    found = {
        str(path.relative_to(PACKAGE)): names
        for path in MODULES
        if path.relative_to(PACKAGE).parts[0] == room
        and (names := list(missing_sections(ast.parse(path.read_text(encoding="utf-8")).body)))
    }
    assert not found, "a section is missing"


def test_a_function_without_them_is_found() -> None:
    said = '"""Do.\n\n    Args:\n        a: One.\n        b: Two.\n    """'
    text = (
        f'class A:\n  def f(self, a, b):\n    """Do."""\n  def g(self, a):\n    """Do."""\n    raise ValueError\n'
        f"def h(a, *, b):\n    {said}"
    )
    assert list(missing_sections(ast.parse(text).body)) == ["A.f: Args", "A.g: Raises"]
