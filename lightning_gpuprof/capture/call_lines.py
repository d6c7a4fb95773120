"""The lines at which the user's functions called, from the tree of a window that torch keeps in memory."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
import torch

from lightning_gpuprof.model.trace.call_lines import CALL_LINES, CallLines, without_instance
from lightning_gpuprof.model.user_code import is_user_code

_OPERATORS = ("aten::", "autograd::")
"""Operators that are not looked into; ranges are."""
_OURS = "lightning_gpuprof/capture/torch_tracer.py("
_END_BYTES = 256

_Calls = dict[tuple[str, tuple[str, ...]], tuple[int, ...]]


def read_call_lines(roots: Iterable[Any], *, limit_s: float, now: Callable[[], float] = perf_counter) -> CallLines:
    """Read the first calls of a window, as many as the time allows: steps repeat what those before them called.

    Args:
        roots: ``experimental_event_tree()`` of a window with stacks.
        limit_s: Most time, except for the last function that is looked at.
        now: A clock.

    Returns:
        Of functions of user code. What was called in the same order at different lines is left out.
    """
    end_s = now() + limit_s
    kinds = torch._C._profiler._EventType
    python = frozenset((kinds.PyCall, kinds.PyCCall))

    def calls_among(events: Iterable[Any]) -> list[tuple[Any, str]]:
        found: list[tuple[Any, str]] = []
        for event in events:
            name = event.name
            if name.startswith(_OPERATORS):
                continue
            if event.tag in python:
                found.append((event, name))
            else:
                found.extend(calls_among(event.children))
        return found

    is_users: dict[str, bool] = {}
    lines_of: _Calls = {}
    contradictory = set()
    waiting = [(event, event.name) for event in roots if event.tag in python]
    waiting.reverse()
    while waiting and now() < end_s:
        event, name = waiting.pop()
        if _OURS in name or not (called := calls_among(event.children)):
            continue
        waiting.extend(reversed(called))
        if name not in is_users:
            is_users[name] = is_user_code(name)
        if not is_users[name]:
            continue
        key = name, tuple(without_instance(one) for _, one in called)
        lines = tuple(_line(one, name) for one, _ in called)
        if lines_of.setdefault(key, lines) != lines:
            contradictory.add(key)
    return _numbered({key: lines for key, lines in lines_of.items() if key not in contradictory})


def _line(call: Any, function: str) -> int:
    """The line that called, 0 where it is not one of this function."""
    caller = call.extra_fields.caller
    of_function = function.startswith(caller.file_name) and function.endswith(f": {caller.function_name}")
    return int(caller.line_number) if of_function else 0


def _numbered(lines_of: _Calls) -> CallLines:
    numbers: dict[str, int] = {}

    def number(name: str) -> int:
        return numbers.setdefault(name, len(numbers))

    calls = tuple(
        (number(function), tuple(map(number, called)), lines) for (function, called), lines in lines_of.items()
    )
    return CallLines(names=tuple(numbers), calls=calls)


def add_call_lines(path: Path, lines: CallLines) -> None:
    """Put the lines behind the events of a trace that torch wrote.

    Args:
        path: Plain JSON; stays as it was if this fails.
        lines: What to add.

    Raises:
        OSError: The file does not end as a JSON object does, or the disk is full.
    """
    text = f',\n"{CALL_LINES}": '.encode() + msgspec.json.encode(lines) + b"}\n"
    with path.open("r+b", buffering=0) as file:
        begin = max(0, file.seek(0, os.SEEK_END) - _END_BYTES)
        file.seek(begin)
        end = file.read()
        close = begin + end.rstrip().rfind(b"}")
        if not end.rstrip().endswith(b"}"):
            raise OSError(f"{path.name} does not end as a trace does")
        try:
            file.seek(close)
            if file.write(text) != len(text):
                raise OSError(f"the lines of calls did not fit behind {path.name}")
        except OSError:
            file.truncate(close)
            file.seek(close)
            file.write(b"}")
            raise
