"""Times functions that the user named line by line, with line_profiler (optional)."""

import difflib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.model.line_times import FunctionTimes, of_line_profiler

_NAME = re.compile(r"[\w.]+:[\w.]+")
_RUNS_LATER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_WAY_OUT = 'Write "package.module:function", "package.module:Class.method" or "__main__:Net.training_step".'


def check_names(lines: object) -> tuple[str, ...]:
    """Check the ``lines`` argument.

    Raises:
        ArgumentError: It is no list of names of functions, or line_profiler is not installed.
    """
    if isinstance(lines, str) or not isinstance(lines, Sequence):
        raise ArgumentError("lines", lines, "be a list of functions", _WAY_OUT)
    for name in lines:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ArgumentError("lines", name, "name functions", _WAY_OUT)
    if lines and importlib.util.find_spec("line_profiler") is None:
        hint = "Or: pip install 'lightning-gpuprof[lines]'"
        raise ArgumentError("lines", list(lines), "be left out without line_profiler", hint)
    return tuple(lines)


class LineTimer:
    """Wraps the functions while a stage goes on.

    Calls in other processes, such as DataLoader workers, are not timed, nor those by a name that another module has
    imported. ``torch.compile`` breaks its graph at a timed function.

    Args:
        names: As :func:`check_names` takes them.
        warn: Called once with what cannot be timed.
    """

    def __init__(self, names: Sequence[str], warn: Callable[[str], object]) -> None:
        self._names = names
        self._warn = warn
        self._profiler: Any = None
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        """Owner, attribute, what it was and what stands there."""
        self._code: dict[str, tuple[str, int]] = {}
        """File and first line of each function that is timed."""
        self._looked: dict[int, tuple[CodeType, dict[int, tuple[int, int]]]] = {}
        """By the code's id, as its hash takes long: line -> looks at it, and those of them off the CPU."""

    def begin(self) -> None:
        """From now on their lines are timed."""
        monitoring: Any = getattr(sys, "monitoring", None)  # since Python 3.12
        if monitoring is not None and monitoring.get_tool(monitoring.PROFILER_ID) is not None:
            self._warn("another profiler is in use: no lines are timed")
            return
        from line_profiler import LineProfiler

        self._profiler = LineProfiler()
        failed = []
        for name in self._names:
            try:
                self._wrap(name)
            except Exception as error:  # what an attribute of somebody's code raises
                failed.append(f"{name} is not timed: {error}")
        if failed:
            self._warn("; ".join(failed))

    def _wrap(self, name: str) -> None:
        module, _, path = name.partition(":")
        owner = _loaded(module)
        *outer, attribute = path.split(".")
        for part in outer:
            owner = _part(owner, part)
        found = inspect.getattr_static(_part_owner(owner, attribute), attribute)
        function = found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
        if not inspect.isfunction(function):
            kind = "a class: name one of its methods" if inspect.isclass(found) else "no Python function"
            raise LookupError(f"{attribute} is {kind}")
        inner = inspect.unwrap(function)
        if not inspect.isfunction(inner):
            inner = function
        if inner.__code__.co_flags & ~function.__code__.co_flags & _RUNS_LATER:
            raise LookupError(f"{attribute} runs after its decorator has returned")
        self._profiler.add_function(inner)
        wrapped = self._profiler.wrap_callable(found)
        setattr(owner, attribute, wrapped)
        self._replaced.append((owner, attribute, found, wrapped))
        code = inner.__code__  # as line_profiler has just replaced it
        self._code[name] = (code.co_filename, code.co_firstlineno)
        self._looked[id(code)] = code, {}

    def look(self, innermost: FrameType, is_off_cpu: bool) -> None:
        """Note the lines that the main thread is in: its CPU clock at each would cost five times what timing it does.

        Args:
            innermost: The main thread's frame.
            is_off_cpu: Whether it is asleep, or waits for something.
        """
        frame: FrameType | None = innermost
        while frame is not None:
            if found := self._looked.get(id(frame.f_code)):
                _, lines = found
                looks, off_cpu = lines.get(frame.f_lineno, (0, 0))
                lines[frame.f_lineno] = looks + 1, off_cpu + is_off_cpu
            frame = frame.f_back

    def end(self) -> None:
        """The functions are as they were, unless somebody else has replaced them. Safe to call twice."""
        while self._replaced:
            owner, attribute, found, wrapped = self._replaced.pop()
            if vars(owner).get(attribute) is wrapped:
                setattr(owner, attribute, found)

    def times(self) -> tuple[FunctionTimes, ...]:
        """What the functions took so far, those that ran, by time."""
        if self._profiler is None:
            return ()
        stats = self._profiler.get_stats()
        looks = {(code.co_filename, code.co_firstlineno): lines for code, lines in self._looked.values()}
        return tuple(of_line_profiler(stats.timings, stats.unit, looks))

    def never_called(self) -> list[str]:
        """Names of functions that are timed and that nobody called so far."""
        if self._profiler is None:
            return []
        ran = {(file, line) for (file, line, _), rows in self._profiler.get_stats().timings.items() if rows}
        return [name for name, code in self._code.items() if code not in ran]


def _loaded(name: str) -> Any:
    """A module that the program has imported, or the script that it is; importing a script would run it once more.

    Raises:
        LookupError: There is none.
    """
    main = sys.modules["__main__"]
    if name not in sys.modules and Path(getattr(main, "__file__", None) or "").stem == name:
        return main
    if name not in sys.modules:
        raise LookupError(f"{name} is not imported in this process")
    return sys.modules[name]


def _part(owner: Any, name: str) -> Any:
    """What an owner calls so.

    Raises:
        LookupError: It has nothing of that name.
    """
    if not hasattr(owner, name):
        near = difflib.get_close_matches(name, dir(owner), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise LookupError(f"{getattr(owner, '__name__', owner)} has no {name}{hint}")
    return getattr(owner, name)


def _part_owner(owner: Any, name: str) -> Any:
    """The owner, where it is itself what defines the name.

    Raises:
        LookupError: It inherits it, or has nothing of that name.
    """
    _part(owner, name)
    if name not in vars(owner):
        definer = next((one for one in getattr(owner, "__mro__", ()) if name in vars(one)), None)
        known = f": name {definer.__module__}:{definer.__qualname__}.{name}" if definer is not None else ""
        raise LookupError(f"{owner.__name__} inherits {name}{known}")
    return owner
