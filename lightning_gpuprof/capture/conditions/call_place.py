"""Where a class of the user's calls something: the file, the line and the call as it is written there."""

import ast
import dis
import linecache
import os
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType

from lightning_gpuprof.model.shown_code import shown_code

MAX_LINES = 30
"""A call that goes on for longer is not looked through to its end."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A call in the user's code."""

    file: str
    """From the working directory on, if it is below that."""
    line: int
    """From 1."""
    text: str
    """The call in one line, without what may be secret; empty if it cannot be read."""


def first_call(owner: type, method: str, name: str) -> Place | None:
    """The first call by its name in a method, or else in another one of the same class.

    Compiled code says which names it uses, so that only the lines of the call itself are read. None: the class has no
    such call.

    Args:
        owner: The class; those that it derives from are searched, too, but not Lightning's.
        method: Is searched first.
        name: Of what is called.
    """
    codes = list(_methods(owner))
    for code in sorted(codes, key=lambda code: code.co_name != method):
        if name not in code.co_names:
            continue
        starts, line = dict(dis.findlinestarts(code)), code.co_firstlineno
        for instruction in dis.get_instructions(code):
            line = starts.get(instruction.offset) or line
            if instruction.argval == name:
                return Place(file=_shown(code.co_filename), line=line, text=_call(code.co_filename, line, name))
    return None


def _methods(owner: type) -> Iterator[CodeType]:
    for one in owner.__mro__:
        if not one.__module__.startswith(("lightning", "pytorch_lightning", "torch", "builtins")):
            yield from (found.__code__ for found in vars(one).values() if isinstance(found, FunctionType))


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
