"""Docstrings of public functions: what several arguments are, what is raised, and what a None means.

ruff holds the names of arguments (D417).
"""

import ast
from collections.abc import Iterator

import pytest
from doc_blocks import ROOT
from lightning.pytorch import Callback

PACKAGE = ROOT / "lightning_gpuprof"
MODULES = sorted(PACKAGE.rglob("*.py"))


def is_rule(node: ast.ClassDef) -> bool:
    """Its methods are those of its base, which says what they are given; its page is the module's docstring."""
    assigned = [name for one in node.body if isinstance(one, ast.Assign) for name in one.targets]
    return "id" in [name.id for name in assigned if isinstance(name, ast.Name)]


def says_what_is_returned(node: ast.FunctionDef, docstring: str) -> bool:
    """A yes or no is said by its first line; so is what a fixture of a ``with`` or a fault hands on."""
    returned = "None" if node.returns is None else ast.unparse(node.returns)
    if returned in ("None", "NoReturn", "Self") or (returned == "bool" and docstring.startswith("Whether ")):
        return True
    return "Returns:" in docstring or "Yields:" in docstring


def missing_sections(body: list[ast.stmt], within: str = "") -> Iterator[str]:
    """Public functions without ``Args:`` for two or more arguments, without a word on what they raise themselves, or on
    the None that they may return; and what has no docstring at all, as ruff lets it pass in the folders of rules.
    """
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not is_rule(node):
            yield from missing_sections(node.body, f"{within}{node.name}.")
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            docstring = ast.get_docstring(node) or ""
            if not docstring and not any(isinstance(one, ast.Name) for one in node.decorator_list):
                yield f"{within}{node.name}: what it does"
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            named = [one for one in arguments if one.arg not in ("self", "cls")]
            of_lightning = hasattr(Callback, node.name)  # Lightning says what its hooks are given
            if len(named) > 1 and "Args:" not in docstring and not of_lightning:
                yield f"{within}{node.name}: Args"
            if len(named) > 1 and not says_what_is_returned(node, docstring) and not of_lightning:
                yield f"{within}{node.name}: Returns"
            raises = any(isinstance(one, ast.Raise) and one.exc is not None for one in ast.walk(node))
            if raises and "raises" not in docstring.lower():
                yield f"{within}{node.name}: Raises"
            may_be_none = node.returns is not None and ast.unparse(node.returns).endswith("| None")
            if may_be_none and docstring and "None" not in docstring:
                yield f"{within}{node.name}: when it is None"


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
        "class A:\n  def e(self): pass\n"
        f'  def f(self, a, b):\n    """Do."""\n  def g(self, a):\n    """Do."""\n    raise ValueError\n'
        f"def h(a, *, b):\n    {said}\n"
        'def i() -> int | None:\n    """Number of steps."""\n'
        'def j() -> int | None:\n    """Number of steps; None: not known."""'
    )
    assert list(missing_sections(ast.parse(text).body)) == [
        "A.e: what it does",
        "A.f: Args",
        "A.g: Raises",
        "i: when it is None",
    ]
