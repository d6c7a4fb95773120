"""The arguments and lines that a change sets, adds or removes."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.journal import Value

_ENVIRONMENT = re.compile(r"(export )?[A-Z][A-Z0-9_]*=")
_GLOBAL_STATEMENTS = ("torch.set_", "torch.backends.")
"""Lines that hold for the whole process, wherever they are."""


class NotPlacedError(Exception):
    """There is no place for a piece, or more than one; the text says so in one line."""


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """Keyword arguments of one call."""

    call: str
    values: Mapping[str, str]
    """By name, as code."""
    before: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What the run had, as code, of those that are known."""

    @property
    def snippet(self) -> tuple[str, ...]:
        """To put in by hand."""
        return (f"{self.call}(..., {', '.join(f'{name}={code}' for name, code in self.values.items())})",)


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A callback that goes."""

    call: str

    @property
    def snippet(self) -> tuple[str, ...]:
        """What to remove by hand."""
        return (f"- {self.call}(...)",)


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of code."""

    line: str

    @property
    def snippet(self) -> tuple[str, ...]:
        """To put in by hand."""
        return (self.line,)


class Statement(Line):
    """It holds for the whole process; another value for the same setting is replaced."""


class Compiled(Line):
    """``model = torch.compile(model, ...)`` before the fit."""


class Removed(Line):
    """A statement that goes."""

    @property
    def snippet(self) -> tuple[str, ...]:
        """What to remove by hand."""
        return (f"- {self.line}",)


class ByHand(msgspec.Struct, frozen=True, kw_only=True):
    """Lines whose place only the author knows."""

    lines: tuple[str, ...]
    why: str

    @property
    def snippet(self) -> tuple[str, ...]:
        """To put in by hand."""
        return self.lines


Piece = Arguments | LeftOut | Statement | Compiled | Removed | ByHand


def pieces(change: Change) -> tuple[Piece, ...]:
    """What a change consists of, arguments first."""
    found: list[Piece] = []
    if change.arguments:
        values, before = _code(change.arguments), _code(change.before)
        found.append(Arguments(call=change.call, values=values, before=before))
    found += _of_lines(change)
    return tuple(found)


def _code(values: Mapping[str, Value]) -> dict[str, str]:
    return {name: code_of(value) for name, value in values.items()}


def code_of(value: Value) -> str:
    """A value as code, strings in double quotes."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    return repr(value)


def _of_lines(change: Change) -> Iterator[Piece]:
    removed, by_hand = list(change.remove), []
    for line in change.add:
        piece = _added(line, removed)
        if piece is None:
            by_hand.append(line)
            continue
        removed = [old for old in removed if not _same_setting(old, line)]
        yield piece
    left = [] if by_hand else [piece for line in removed if (piece := _removed(line))]
    yield from left
    if by_hand or len(left) < len(removed):
        yield ByHand(lines=(*(f"- {line}" for line in removed), *by_hand), why=_why_by_hand(removed, by_hand, change))


def _why_by_hand(removed: Sequence[str], added: Sequence[str], change: Change) -> str:
    if any(_ENVIRONMENT.match(line) for line in (*removed, *added)):
        return "it is an environment variable: set it where the run is started"
    at = f"{change.file}:{change.line}" if change.file and change.line else "your own code"
    return f"it changes {at} in a way that depends on what the code does"


def _added(line: str, removed: Sequence[str]) -> Piece | None:
    node = statement(line)
    if node is None or _ENVIRONMENT.match(line) or "#" in line:
        return None
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
        compiled = dotted(node.value.func) == "torch.compile" and isinstance(node.targets[0], ast.Name)
        return Compiled(line=line) if compiled else None
    target = setting(node)
    if target.startswith(_GLOBAL_STATEMENTS):
        return Statement(line=line)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _are_keywords(node.value):
        old = next((_keywords(other) for other in removed if _same_setting(other, line)), {})
        return Arguments(call=target, values=_keywords(line), before=old)
    return None


def _removed(line: str) -> Piece | None:
    node = statement(line)
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return None
    if _is_ellipsis(node.value.args) and not node.value.keywords:
        return LeftOut(call=dotted(node.value.func))
    return Removed(line=line) if dotted(node.value.func).startswith("torch.cuda.") and not node.value.args else None


def _same_setting(old: str, new: str) -> bool:
    before, after = statement(old), statement(new)
    return before is not None and after is not None and bool(setting(before)) and setting(before) == setting(after)


def setting(node: ast.stmt) -> str:
    """What a statement calls or assigns to, dotted; empty for others."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return dotted(node.value.func)
    return dotted(node.targets[0]) if isinstance(node, ast.Assign) and len(node.targets) == 1 else ""


def statement(line: str) -> ast.stmt | None:
    """The line parsed; None if it is not one statement."""
    try:
        body = ast.parse(line).body
    except SyntaxError:
        return None
    return body[0] if len(body) == 1 else None


def dotted(node: ast.expr) -> str:
    """A name with its attributes, as it is written; empty for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := dotted(node.value)):
        return f"{owner}.{node.attr}"
    return ""


def _is_ellipsis(arguments: Sequence[ast.expr]) -> bool:
    return len(arguments) == 1 and isinstance(arguments[0], ast.Constant) and arguments[0].value is ...


def _are_keywords(call: ast.Call) -> bool:
    named = bool(call.keywords) and all(keyword.arg for keyword in call.keywords)
    return named and (not call.args or _is_ellipsis(call.args)) and dotted(call.func)[:1].isupper()


def _keywords(line: str) -> dict[str, str]:
    node = statement(line)
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return {}
    found = {keyword.arg: ast.get_source_segment(line, keyword.value) for keyword in node.value.keywords}
    return {name: code for name, code in found.items() if name and code}
