"""The tree of modules: which path of modules each call of a module has, and what was called in which."""

from functools import cached_property

import numpy as np

from lightning_gpuprof.model.trace.attribution import MODULE
from lightning_gpuprof.trace.analyses.joins.grouped import groups_of
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.nesting import Nesting, take_or_absent
from lightning_gpuprof.trace.tables import ABSENT, Int32, Int64, Rows, Spans, summed


class ModulePaths:
    """The modules that were called, each under those that called it.

    Their calls are the ranges that our own windows have, else those that torch recorded with stacks. A module that is
    called again in a backward pass (activation checkpointing) has nothing around it there; it counts under the path
    that it was called on first.

    Args:
        linked: The trace.
    """

    def __init__(self, linked: LinkedTrace) -> None:
        self._linked = linked
        self._calls: Spans = linked.trace.module_range
        if not len(self._calls):
            frames = linked.trace.python_function
            self._calls = frames.where(linked.named(frames, lambda name: name.startswith(MODULE)))
        self._nesting = Nesting(self._calls.start_ns, self._calls.end_ns, self._calls.thread)
        self._whole_names: list[str] = []
        self._names: list[str] = []
        self._parents: list[int] = []
        self._number: dict[tuple[int, int], int] = {}

    @property
    def recorded(self) -> bool:
        """Whether the trace holds calls of modules."""
        return bool(len(self._calls))

    @property
    def names(self) -> tuple[str, ...]:
        """The innermost module of each path: ``Linear_0``; of our ranges without the name of the module around it."""
        self._path_of_call  # noqa: B018 - finds the paths
        return tuple(self._names)

    @property
    def whole_names(self) -> tuple[str, ...]:
        """The same, with the names of the modules around it where the trace has them: ``encoder.layers.0``."""
        self._path_of_call  # noqa: B018
        return tuple(self._whole_names)

    @property
    def parents(self) -> tuple[int, ...]:
        """The path without its innermost module, :data:`ABSENT` for the outermost module; before the path itself."""
        self._path_of_call  # noqa: B018
        return tuple(self._parents)

    def at(self, time_ns: Int64, thread: Int32, *, since_ns: Int64 | None = None) -> Rows:
        """The path of the innermost module that was being called at each moment.

        Args:
            time_ns: n moments.
            thread: Number of the thread at each.
            since_ns: Calls that began before these n moments do not count.

        Returns:
            n indices into :attr:`names`, :data:`ABSENT` where no module was being called.
        """
        call = self._nesting.innermost(time_ns, thread)
        if since_ns is not None:
            call[take_or_absent(self._calls.start_ns, call) < since_ns] = ABSENT
        return take_or_absent(self._path_of_call, call)

    def host_ns(self) -> tuple[Int64, Int64, Int64]:
        """Of each path: how often it was called, for how long, and for how long outside of the modules in it."""
        path, count = self._path_of_call, len(self._names)
        own_ns = summed(path, self._nesting.exclusive_ns, count)
        return np.bincount(path, minlength=count), summed(path, self._calls.duration_ns, count), own_ns

    @cached_property
    def _path_of_call(self) -> Rows:
        calls, around = self._calls, self._nesting.parent
        path: Rows = np.full(len(calls), ABSENT, np.intp)
        on_main = calls.thread == self._linked.main_thread
        for chosen in (on_main, ~on_main):
            self._number_paths(np.flatnonzero(chosen), around[chosen], path)
        return path

    def _number_paths(self, rows: Rows, around: Rows, path: Rows) -> None:
        """Give the modules of some threads their paths, level by level from the outermost."""
        # the module around each one is on the same thread, so it is among these rows
        known = {name: number for (_, name), number in reversed(self._number.items())}
        todo = np.ones(len(rows), np.bool_)
        level = todo & (around == ABSENT)
        while level.any():
            parent = take_or_absent(path, around[level])
            name = self._calls.name[rows[level]]
            pairs = groups_of(parent, name)
            numbers = [
                self._path(p, n, known)
                for p, n in zip(parent[pairs.first].tolist(), name[pairs.first].tolist(), strict=True)
            ]
            path[rows[level]] = np.array(numbers, np.intp)[pairs.of_row]
            todo &= ~level
            level = todo & (take_or_absent(path, around) > ABSENT)

    def _path(self, parent: int, name: int, known: dict[int, int]) -> int:
        if parent == ABSENT and name in known:
            return known[name]
        number = self._number.setdefault((parent, name), len(self._names))
        if number == len(self._names):
            whole = self._linked.trace.names[name].removeprefix(MODULE)
            self._names.append(whole if parent == ABSENT else whole.removeprefix(f"{self._whole_names[parent]}."))
            self._whole_names.append(whole)
            self._parents.append(parent)
        return number
