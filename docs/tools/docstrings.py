"""Renders the docstrings of classes, fields and functions as Markdown.

Read from the text of the modules, because Python keeps no docstrings of fields, and so that torch is not imported.
"""

import ast
import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_SECTIONS = ("Args", "Returns", "Raises", "Yields")
_ROLE = re.compile(r":[a-z]+:`~?([^`]+)`")
_CODE = re.compile(r"(`[^`]+`)")
_FACTORY = re.compile(r"^(?:msgspec\.)?field\(default_factory=(?:lambda: )?(.+)\)$")
_SILENT_BASES = ("Protocol", "Exception", "msgspec.Struct")
WIDTH = 100


@dataclass(frozen=True, kw_only=True)
class FieldDoc:
    """A field of a class."""

    name: str
    type: str
    default: str | None
    text: str


@dataclass(frozen=True, kw_only=True)
class FunctionDoc:
    """A function or method: its signature as it is written, and its docstring."""

    name: str
    parameters: tuple[str, ...]
    returns: str
    text: str
    kind: str = ""
    """``property``, ``classmethod`` or empty."""


@dataclass(frozen=True, kw_only=True)
class ClassDoc:
    """A class with what is public in it."""

    name: str
    text: str
    bases: tuple[str, ...]
    """Without those that say nothing to a reader."""
    fields: tuple[FieldDoc, ...]
    methods: tuple[FunctionDoc, ...]
    init: FunctionDoc | None


@cache
def _tree(module: str) -> ast.Module:
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


def class_doc(module: str, name: str) -> ClassDoc:
    """A class of a module.

    Raises:
        LookupError: The module has none of this name.
    """
    node = next((n for n in _tree(module).body if isinstance(n, ast.ClassDef) and n.name == name), None)
    if node is None:
        raise LookupError(f"{module} has no class {name}")
    functions = [n for n in node.body if isinstance(n, ast.FunctionDef)]
    init = next((f for f in functions if f.name == "__init__"), None)
    fields = _fields(node.body) + (_fields(init.body) if init else [])
    return ClassDoc(
        name=name,
        text=_docstring(node),
        bases=tuple(base for base in map(ast.unparse, node.bases) if base not in _SILENT_BASES),
        fields=tuple(field for field in fields if not field.name.startswith("_")),
        methods=tuple(_function(f) for f in functions if not f.name.startswith("_") and ast.get_docstring(f)),
        init=_function(init) if init else None,
    )


def function_doc(module: str, name: str) -> FunctionDoc:
    """A function of a module.

    Raises:
        LookupError: The module has none of this name.
    """
    node = next((n for n in _tree(module).body if isinstance(n, ast.FunctionDef) and n.name == name), None)
    if node is None:
        raise LookupError(f"{module} has no function {name}")
    return _function(node)


def public_names(module: str) -> list[str]:
    """Public classes and functions of a module with a docstring, as they stand in it."""
    kinds = (ast.ClassDef, ast.FunctionDef)
    return [n.name for n in _tree(module).body if isinstance(n, kinds) and n.name[0] != "_" and ast.get_docstring(n)]


def is_class(module: str, name: str) -> bool:
    """Whether a name of a module is a class, and not a function."""
    return any(isinstance(n, ast.ClassDef) and n.name == name for n in _tree(module).body)


def _fields(body: list[ast.stmt]) -> list[FieldDoc]:
    """Annotated names, ``self.`` before them or not, with the text right after each."""
    found = []
    for node, following in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign):
            continue
        target = node.target
        name = target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""
        kind = ast.unparse(node.annotation)
        text = _text_of(following)
        if not name or kind.startswith("ClassVar") or (isinstance(target, ast.Attribute) and not text):
            continue
        default = None if node.value is None else _FACTORY.sub(r"\1", ast.unparse(node.value))
        found.append(FieldDoc(name=name, type=kind, default=default, text=markdown(text)))
    return found


def _text_of(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return inspect.cleandoc(node.value.value)
    return ""


def _docstring(node: ast.ClassDef | ast.FunctionDef) -> str:
    return ast.get_docstring(node) or ""


def _function(node: ast.FunctionDef) -> FunctionDoc:
    kinds = [ast.unparse(decorator) for decorator in node.decorator_list]
    kind = next((k for k in ("property", "classmethod", "staticmethod") if k in kinds or f"cached_{k}" in kinds), "")
    return FunctionDoc(
        name=node.name,
        parameters=tuple(_parameters(node.args, skip_first=kind != "staticmethod")),
        returns=ast.unparse(node.returns) if node.returns else "",
        text=_docstring(node),
        kind=kind,
    )


def _parameters(arguments: ast.arguments, *, skip_first: bool) -> list[str]:
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    shown = [_parameter(a, d) for a, d in zip(plain, defaults, strict=True)]
    if skip_first and plain and plain[0].arg in ("self", "cls"):
        shown = shown[1:]
    if arguments.kwonlyargs:
        shown.append("*" if arguments.vararg is None else f"*{arguments.vararg.arg}")
        shown += [_parameter(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return shown


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg
    if argument.annotation is not None:
        text += f": {ast.unparse(argument.annotation)}"
    if default is not None:
        text += f" = {ast.unparse(default)}" if argument.annotation is not None else f"={ast.unparse(default)}"
    return text


def one_line(function: FunctionDoc, name: str) -> str:
    """The call as it is annotated."""
    if function.kind == "property":
        return f"{name}: {function.returns}"
    return f"{name}({', '.join(function.parameters)}){_returns(function)}"


def signature(function: FunctionDoc, name: str) -> str:
    """The call in a code block, one argument per line where it is long."""
    call = one_line(function, name)
    if len(call) > WIDTH:
        lines = "".join(f"    {parameter},\n" for parameter in function.parameters)
        call = f"{name}(\n{lines}){_returns(function)}"
    return f"```python no-run\n{call}\n```\n"


def _returns(function: FunctionDoc) -> str:
    return f" -> {function.returns}" if function.returns and function.name != "__init__" else ""


def described(text: str) -> str:
    """A Google-style docstring as Markdown: its sections become lists of names and meanings.

    Args:
        text: As :func:`ast.get_docstring` gives it.
    """
    parts = re.split(rf"^({'|'.join(_SECTIONS)}):\n", text, flags=re.MULTILINE)
    pieces = [_with_code(parts[0].strip())]
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        pieces.append(_section(title, body))
    return "\n\n".join(piece for piece in pieces if piece) + "\n"


def _section(title: str, body: str) -> str:
    if title in ("Returns", "Yields"):
        return f"**{title}:** {markdown(inspect.cleandoc(chr(10) + body))}"
    return f"**{title}:**\n\n" + bullets([(f"`{name}`", meaning) for name, meaning in _entries(body).items()])


def _entries(body: str) -> dict[str, str]:
    """Name -> meaning of a section's entries."""
    found = {}
    for entry in re.split(r"\n(?=\S)", inspect.cleandoc("\n" + body)):
        name, _, meaning = entry.partition(":")
        found[name.strip()] = markdown(" ".join(meaning.split()))
    return found


def split_arguments(text: str) -> tuple[str, dict[str, str]]:
    """A docstring without its ``Args:``, and these: name -> meaning."""
    found = re.search(r"^Args:\n((?:    .*\n?|\n)*)", text, re.MULTILINE)
    if found is None:
        return text, {}
    return (text[: found.start()] + text[found.end() :]).strip(), _entries(found[1].rstrip())


def _with_code(text: str) -> str:
    """Paragraphs, and the indented blocks after ``::`` as code."""
    pieces = []
    for paragraph in re.split(r"\n\n(?! )", text):
        head, mark, block = paragraph.partition("::\n\n")
        if mark:
            pieces.append(f"{markdown(head)}:\n\n```python no-run\n{inspect.cleandoc(block)}\n```")
        else:
            pieces.append(markdown(paragraph))
    return "\n\n".join(pieces)


def markdown(text: str) -> str:
    """Prose of a docstring: roles and double backticks become code, what looks like a tag does not become one."""
    text = _ROLE.sub(lambda found: f"`{found[1].rpartition('.')[2]}`", text).replace("``", "`")
    pieces = _CODE.split(text)
    return "".join(piece if piece.startswith("`") else piece.replace("<", "&lt;") for piece in pieces)


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table; each cell is one line.

    Args:
        heads: Titles of the columns.
        rows: Markdown, as many cells as titles.
    """
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def bullets(rows: Sequence[tuple[str, str]]) -> str:
    """A Markdown list of names and what they are; a name without a meaning stands by itself.

    Args:
        rows: Name and meaning, both Markdown.
    """
    return "\n".join("- " + " ".join((f"{name}: {text}" if text else name).split()) for name, text in rows)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
