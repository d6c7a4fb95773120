"""Where the user's code calls what makes its loaders and its Trainer, read from source and compiled code.

A wrong place is worse than none: what is not the only one that it can be has none.
"""

from __future__ import annotations

import ast
import dis
import linecache
import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import CodeType, FrameType, FunctionType

import msgspec

from lightning_gpuprof.capture.call_sites import UserCode, is_stage
from lightning_gpuprof.model.shown_code import shown_code

MAX_LINES = 30
"""A call that goes on for longer is not looked through to its end."""
MAX_SOURCE_LINES, MAX_SOURCE_CHARACTERS = 2_000, 100_000
"""A longer file is not parsed: the main thread waits for it, 0.1 s for 1,000 lines on a slow machine."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.ClassDef, ast.Lambda)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A call in the user's code."""

    file: str
    """From the working directory on, if it is below that."""
    line: int
    """From 1."""
    text: str
    """The call in one line, without what may be secret; empty if it cannot be read."""

    @property
    def shown(self) -> str:
        """``train.py:42``."""
        return f"{self.file}:{self.line}"


class StageCall(msgspec.Struct, frozen=True, kw_only=True):
    """The user's call of ``fit`` or another stage, with the code that it stands in."""

    file: str
    scopes: tuple[ast.AST, ...]
    """What the call is in, the innermost function first, the module last."""
    call: ast.Call

    @property
    def trainer(self) -> ast.expr | None:
        """What its ``fit`` is called of. None: it is called as no method."""
        return self.call.func.value if isinstance(self.call.func, ast.Attribute) else None

    def argument(self, keyword: str, position: int) -> ast.expr | None:
        """What it is given.

        Args:
            keyword: Its name.
            position: Its place among those without a name, from 0.

        Returns:
            The expression; None: nothing, or what that is cannot be seen in the call.
        """
        named = next((one.value for one in self.call.keywords if one.arg == keyword), None)
        placed = self.call.args[: position + 1]
        if named is not None or len(placed) <= position or any(isinstance(one, ast.Starred) for one in placed):
            return named
        return placed[position]

    def made(self, value: ast.expr | None, name: str) -> Place | None:
        """The call by its name that makes a value: itself, or what its variable is set to.

        Args:
            value: Of the call's parts.
            name: Of what is called.

        Returns:
            None if that is no such call, or not the only thing that the variable is set to.
        """
        maker = self._set_to(value.id) if isinstance(value, ast.Name) else value
        if not isinstance(maker, ast.Call) or _called(maker) != name:
            return None
        return Place(file=_shown(self.file), line=maker.lineno, text=_text(maker, name))

    def _set_to(self, variable: str) -> ast.expr | None:
        if variable in _shared_names(self.scopes[-1]):
            return None
        found = next((nodes for scope in self.scopes if (nodes := list(_bindings(scope, variable)))), [])
        return _value(found[0]) if len(found) == 1 else None


def stage_call(frame: FrameType | None) -> StageCall | None:
    """The call in the user's code by which a stage runs.

    Args:
        frame: Of what the stage has called.

    Returns:
        None if a library calls it, where its source cannot be read or is not what runs, and where several calls on the
        same lines could be it.
    """
    while frame is not None and not is_stage(frame.f_code):
        frame = frame.f_back
    caller = None if frame is None else frame.f_back
    if frame is None or caller is None or not _is_users(caller.f_code.co_filename):
        return None
    code = caller.f_code
    tree = _tree_of(code.co_filename)
    if tree is None:
        return None
    around = list(_around(tree, caller.f_lineno))
    functions = [node for node in around if isinstance(node, _FUNCTIONS)]
    calls = _outermost(
        [node for node in around if isinstance(node, ast.Call) and _called(node) == frame.f_code.co_name]
    )
    if len(calls) != 1 or not isinstance(calls[0].func, ast.Attribute) or not _is_code_of(functions[-1:], code):
        return None
    return StageCall(file=code.co_filename, scopes=(*reversed(functions), tree), call=calls[0])


def _is_users(file: str) -> bool:
    """Not a library's, nor code that is in no file; cells of IPython are the user's."""
    if file.startswith("<"):
        return file.startswith("<ipython-input")
    try:
        return bool(_user_code(os.getcwd()).shown_path(file))  # noqa: PTH109 - as a key
    except OSError:  # the folder was deleted
        return False


@lru_cache(maxsize=1)
def _user_code(_folder: str) -> UserCode:
    return UserCode.of_this_process()


def _tree_of(file: str) -> ast.Module | None:
    """None: there is no source, it is too long, or it is no Python."""
    lines = linecache.getlines(file)
    if not lines or len(lines) > MAX_SOURCE_LINES:
        return None
    source = "".join(lines)
    return None if len(source) > MAX_SOURCE_CHARACTERS else _parsed(file, source)


@lru_cache(maxsize=4)
def _parsed(_file: str, source: str) -> ast.Module | None:
    """None: not to be parsed, which is remembered as well."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _around(node: ast.AST, line: int) -> Iterator[ast.AST]:
    """What stands around a line, each before what is in it."""
    for child in ast.iter_child_nodes(node):
        begin = getattr(child, "lineno", line)
        if begin <= line <= (getattr(child, "end_lineno", None) or line):
            yield child
            yield from _around(child, line)


def _outermost(calls: list[ast.Call]) -> list[ast.Call]:
    """Without those that stand in an earlier one: of its arguments, or of what it is called of."""
    found: list[ast.Call] = []
    for call in calls:
        if not any(call in ast.walk(outer) for outer in found):
            found.append(call)
    return found


def _is_code_of(innermost: Sequence[ast.AST], code: CodeType) -> bool:
    """Whether it is the innermost function's, or else the module's: not a lambda's, nor of a file that was edited."""
    for function in innermost:
        if isinstance(function, _FUNCTIONS):
            first = min(node.lineno for node in (function, *function.decorator_list))
            return (function.name, first) == (code.co_name, code.co_firstlineno)
    return code.co_name == "<module>"


def _called(call: ast.Call) -> str:
    """The last part of the name of what is called; nothing if it has no name."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _text(call: ast.Call, name: str) -> str:
    """The call by its plain name; nothing if it is nested too deeply."""
    try:
        return shown_code(ast.unparse(ast.Call(func=ast.Name(id=name), args=call.args, keywords=call.keywords)))
    except RecursionError:
        return ""


@lru_cache(maxsize=4)
def _shared_names(tree: ast.AST) -> frozenset[str]:
    """Variables that a function sets outside of itself."""
    shared = (node.names for node in ast.walk(tree) if isinstance(node, (ast.Global, ast.Nonlocal)))
    return frozenset(name for names in shared for name in names)


def _bindings(parent: ast.AST, variable: str) -> Iterator[ast.AST]:
    """What sets a variable: an assignment, or whatever else has the name, outside of functions and classes in it."""
    for node in ast.iter_child_nodes(parent):
        if _bound(node) == variable:
            yield parent
        if not isinstance(node, _SCOPES):
            yield from _bindings(node, variable)


def _bound(node: ast.AST) -> str | None:
    """The variable that is set or deleted here: also an argument, an import, a pattern, a caught error, a function."""
    if isinstance(node, ast.Name):
        return None if isinstance(node.ctx, ast.Load) else node.id
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.alias):
        return node.asname or node.name.partition(".")[0]
    name: str | None = getattr(node, "name", None) or getattr(node, "rest", None)
    return name


def _value(binding: ast.AST) -> ast.expr | None:
    """What an assignment to a single variable sets it to. None: it is another one, or something else."""
    if isinstance(binding, ast.AnnAssign) or (isinstance(binding, ast.Assign) and len(binding.targets) == 1):
        return binding.value
    return None


def only_call(owner: type, method: str, name: str) -> Place | None:
    """The call by its name in a method, and in those of the same class that it uses.

    Compiled code says which names it uses, so that only the lines of the call itself are read.

    Args:
        owner: The class; those that it derives from are searched, too.
        method: Is searched first.
        name: Of what is called.

    Returns:
        Where it is; None: there is no such call in the user's code, or more than one.
    """
    codes = list(_reached(owner, method))
    found = {(code.co_filename, line): calls for code in codes for line, calls in _calls(code, name)}
    if list(found.values()) != [1]:
        return None
    ((file, line),) = found
    return Place(file=_shown(file), line=line, text=_call(file, line, name))


def _reached(owner: type, method: str) -> Iterator[CodeType]:
    """The user's code of a method, of those that it names, and so on, with the functions in them."""
    names, seen = [method], {method}
    for name in names:
        for code in _run(owner, name):
            yield code
            new = [one for one in code.co_names if one not in seen]
            names += new
            seen.update(new)


def _run(owner: type, method: str) -> Iterator[CodeType]:
    """What a call of a method runs; also that of the next class if it asks for its ``super``."""
    for one in owner.__mro__:
        found = vars(one).get(method)
        function = getattr(found, "__func__", found)
        if not isinstance(function, FunctionType):
            continue
        if not _is_users(function.__code__.co_filename):
            return
        codes = list(_nested(function.__code__))
        yield from codes
        if not any("super" in code.co_names for code in codes):
            return


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _nested(inner)


def _calls(code: CodeType, name: str) -> Iterator[tuple[int, int]]:
    """Lines that use a name, and how often they call it, which is once where the source is gone."""
    starts, line, lines = dict(dis.findlinestarts(code)), code.co_firstlineno, linecache.getlines(code.co_filename)
    for instruction in dis.get_instructions(code):
        line = starts.get(instruction.offset) or line
        if instruction.argval == name:
            calls = len(_opening(name).findall("".join(lines[line - 1 : line]))) if lines else 1
            if calls:
                yield line, calls


def _opening(name: str) -> re.Pattern[str]:
    return re.compile(rf"\b{name}\(")


def _shown(file: str) -> str:
    folder = os.path.join(os.getcwd(), "")  # noqa: PTH109, PTH118 - no file is touched
    return file.removeprefix(folder)


def _call(file: str, line: int, name: str) -> str:
    text = "".join(linecache.getlines(file)[line - 1 : line - 1 + MAX_LINES])
    begin = _opening(name).search(text)
    rest = text[begin.start() :] if begin else ""
    for end in (place for place, character in enumerate(rest) if character == ")"):
        try:
            return shown_code(ast.unparse(ast.parse(rest[: end + 1], mode="eval")))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return ""
