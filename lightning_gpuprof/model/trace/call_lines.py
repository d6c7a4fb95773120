"""The lines at which functions of user code called, kept beside a window's events: torch has where they begin."""

import re

import msgspec

from lightning_gpuprof.model.trace.attribution import MODULE

CALL_LINES = "gpuprof_call_lines"
"""Beside a window's events: :class:`CallLines`."""

_INSTANCE = re.compile(r" at 0x[0-9a-fA-F]+(?=>$)|(?<=\w)_\d+$")


class CallLines(msgspec.Struct, kw_only=True, frozen=True):
    """What functions of user code called, and at which lines.

    A call is known by all that its function called, in order: two runs of a function that called the same at different
    lines are left out. Only the first part of a window is read, so a branch that calls the same as another one and was
    not taken there has the lines of the other.
    """

    names: tuple[str, ...]
    """Functions as the trace names them, :func:`without_instance`."""
    calls: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]
    """The function, what it called in order, both as positions in ``names``, and the line of each call; 0: unknown."""


def without_instance(name: str) -> str:
    """A function's name without what tells objects of a class apart: the address, or the number of a module."""
    return _INSTANCE.sub("", name) if name.startswith(("<", MODULE)) else name
