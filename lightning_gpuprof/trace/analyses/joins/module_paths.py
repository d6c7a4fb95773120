"""The tree of modules: which path of modules each call of a Python function runs in."""

from functools import cached_property

import numpy as np

from lightning_gpuprof.trace.analyses.joins.grouped import groups_of
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.nesting import nearest, take_or_absent
from lightning_gpuprof.trace.tables import ABSENT, Rows

_MODULE = "nn.Module: "
"""Before a module's class and number: ``nn.Module: Linear_0`` is the first ``Linear`` that the trace met."""


class ModulePaths:
    """The modules that were called, each under those that called it.

    A module that is called anew in a backward pass (activation checkpointing) has nothing around it there; it counts
    under the path that it was called on first.

    Args:
        linked: The trace.
    """

    def __init__(self, linked: LinkedTrace) -> None:
        self._linked = linked
        self._frames = linked.trace.python_function
        self._names: list[str] = []
        self._parents: list[int] = []
        self._number: dict[tuple[int, int], int] = {}

    @property
    def recorded(self) -> bool:
        """Whether the trace holds calls of modules."""
        return bool((self._path_of_frame > ABSENT).any())

    @property
    def names(self) -> tuple[str, ...]:
        """The innermost module of each path: ``Linear_0``."""
        self._path_of_frame  # noqa: B018 - finds the paths
        return tuple(self._names)

    @property
    def parents(self) -> tuple[int, ...]:
        """The path without its innermost module, :data:`ABSENT` for the outermost module; before the path itself."""
        self._path_of_frame  # noqa: B018
        return tuple(self._parents)

    def of_frames(self, frame: Rows) -> Rows:
        """The path of the innermost module at or around each call of a Python function, else :data:`ABSENT`."""
        return take_or_absent(self._path_of_frame, frame)

    @cached_property
    def _path_of_frame(self) -> Rows:
        is_module = self._linked.named(self._frames, lambda name: name.startswith(_MODULE))
        path: Rows = np.full(len(self._frames), ABSENT, np.intp)
        if not is_module.any():
            return path
        innermost = nearest(self._linked.frames.parent, is_module)
        rows = np.flatnonzero(is_module)
        around = take_or_absent(innermost, self._linked.frames.parent[rows])
        on_main = self._frames.thread[rows] == self._linked.main_thread
        for chosen in (on_main, ~on_main):
            self._number_paths(rows[chosen], around[chosen], path)
        return take_or_absent(path, innermost)

    def _number_paths(self, rows: Rows, around: Rows, path: Rows) -> None:
        """Give the modules of some threads their paths, level by level from the outermost."""
        # the module around each one is on the same thread, so it is among these rows
        known = {name: number for (_, name), number in reversed(self._number.items())}
        todo = np.ones(len(rows), np.bool_)
        level = todo & (around == ABSENT)
        while level.any():
            parent = take_or_absent(path, around[level])
            name = self._frames.name[rows[level]]
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
            self._names.append(self._linked.trace.names[name].removeprefix(_MODULE))
            self._parents.append(parent)
        return number
