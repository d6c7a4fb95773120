"""Where the user's code calls what makes its loaders and its Trainer, read from source and compiled code."""

from __future__ import annotations

import ast
import dis
import linecache
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from types import CodeType, FrameType, FunctionType

from lightning_gpuprof.model.phases import STAGES
from lightning_gpuprof.model.shown_code import shown_code

MAX_LINES = 30
"""A call that goes on for longer is not looked through to its end."""

_LOADER_METHODS = frozenset({"train_dataloader", "val_dataloader", "test_dataloader", "predict_dataloader"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_FRAMEWORKS = frozenset({"lightning", "pytorch_lightning", "torch", "builtins"})
_TRAINER_FILE = ("trainer", "trainer.py")
"""Where ``fit`` is. As in lightning 2.4 to 2.6, both packages."""


@dataclass(frozen=True, kw_only=True)
class Place:
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


@dataclass(frozen=True, kw_only=True)
class StageCall:
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
        """What it is given. None: nothing.

        Args:
            keyword: Its name.
            position: Its place among those without a name, from 0.
        """
        named = next((one.value for one in self.call.keywords if one.arg == keyword), None)
        return named or next(iter(self.call.args[position : position + 1]), None)

    def made(self, value: ast.expr | None, name: str) -> Place | None:
        """The call by its name that makes a value: itself, or what its variable is set to.

        Args:
            value: Of the call's parts.
            name: Of what is called.

        Returns:
            None if that is no such call, or not the only thing that the variable is set to.
        """
        maker = self._set_to(value.id) if isinstance(value, ast.Name) else value
        if not isinstance(maker, ast.Call) or ast.unparse(maker.func).rpartition(".")[2] != name:
            return None
        return _place(self.file, maker.lineno, name)

    def _set_to(self, variable: str) -> ast.AST | None:
        found = next((values for scope in self.scopes if (values := list(_values(scope, variable)))), [])
        return found[0] if len(found) == 1 else None


def stage_call(frame: FrameType | None) -> StageCall | None:
    """The call in the user's code by which a stage runs.

    Args:
        frame: Of what the stage has called.

    Returns:
        None if a library calls it, or where its source cannot be read.

    Raises:
        SyntaxError: The source is not what runs.
    """
    while frame is not None and not _is_stage(frame):
        frame = frame.f_back
    caller = None if frame is None else frame.f_back
    if caller is None or _is_of_framework(str(caller.f_globals.get("__name__"))):
        return None
    file, line = caller.f_code.co_filename, caller.f_lineno
    tree = ast.parse("".join(linecache.getlines(file)))
    around = [node for node in ast.walk(tree) if _holds(node, line)]
    calls = [node for node in around if isinstance(node, ast.Call) and _names_stage(node.func)]
    functions = [node for node in around if isinstance(node, _FUNCTIONS)]
    return StageCall(file=file, scopes=(*reversed(functions), tree), call=calls[-1]) if calls else None


def _is_stage(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_name in STAGES and PurePath(code.co_filename).parts[-2:] == _TRAINER_FILE


def _is_of_framework(module: str) -> bool:
    return module.partition(".")[0] in _FRAMEWORKS


def _holds(node: ast.AST, line: int) -> bool:
    return isinstance(node, (ast.Call, *_FUNCTIONS)) and node.lineno <= line <= (node.end_lineno or node.lineno)


def _names_stage(called: ast.expr) -> bool:
    return isinstance(called, ast.Attribute) and called.attr in STAGES


def _values(scope: ast.AST, variable: str) -> Iterator[ast.AST]:
    """What sets a variable, outside of functions and classes in the scope: values, and arguments of the scope."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.arguments):
            yield from (one for one in ast.walk(node) if isinstance(one, ast.arg) and one.arg == variable)
        elif isinstance(node, ast.Assign) and any(ast.unparse(target) == variable for target in node.targets):
            yield node.value
        elif not isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
            yield from _values(node, variable)


def first_call(owner: type, method: str, name: str) -> Place | None:
    """The first call by its name in a method, or else in another one of the same class.

    Compiled code says which names it uses, so that only the lines of the call itself are read. None: the class has no
    such call.

    Args:
        owner: The class; those that it derives from are searched, too, but not Lightning's.
        method: Is searched first; methods that make other loaders are not.
        name: Of what is called.
    """
    codes = [code for code in _methods(owner) if code.co_name == method or code.co_name not in _LOADER_METHODS]
    for code in sorted(codes, key=lambda code: code.co_name != method):
        if name not in code.co_names:
            continue
        starts, line = dict(dis.findlinestarts(code)), code.co_firstlineno
        for instruction in dis.get_instructions(code):
            line = starts.get(instruction.offset) or line
            if instruction.argval == name:
                return _place(code.co_filename, line, name)
    return None


def _methods(owner: type) -> Iterator[CodeType]:
    for one in owner.__mro__:
        if not _is_of_framework(one.__module__):
            yield from (found.__code__ for found in vars(one).values() if isinstance(found, FunctionType))


def _place(file: str, line: int, name: str) -> Place:
    return Place(file=_shown(file), line=line, text=_call(file, line, name))


def _shown(file: str) -> str:
    folder = os.path.join(os.getcwd(), "")  # noqa: PTH109, PTH118 - no file is touched
    return file.removeprefix(folder)


def _call(file: str, line: int, name: str) -> str:
    lines = linecache.getlines(file)[line - 1 : line - 1 + MAX_LINES]
    _, found, rest = "".join(lines).partition(f"{name}(")
    closes = [place for place, character in enumerate(rest) if character == ")"]
    for end in closes:
        try:
            return shown_code(ast.unparse(ast.parse(found + rest[: end + 1], mode="eval")))
        except SyntaxError:
            continue
    return ""
