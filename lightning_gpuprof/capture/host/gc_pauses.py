"""Records the pauses of the garbage collector with start, length and generation.

What is called inside a collection is made of functions written in C alone. That is not only cheap (2 us a collection,
nothing that grows): where Python code runs, the interpreter handles pending signals, and what a handler raises inside
a callback of the collector is printed and forgotten. A callback in Python loses Ctrl-C pressed during a collection.
"""

from __future__ import annotations

import contextlib
import gc
import operator
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

_MAX_MARKS = 1 << 12
"""About 800 collections between two looks; older ones are lost, and their number is known."""


@dataclass(frozen=True, kw_only=True)
class Pause:
    """One collection: no Python code of this process ran meanwhile."""

    start_ns: int
    duration_ns: int
    generation: int


class _Marks(deque[Any]):
    """Takes what the collector says at a collection's end, as ``setattr(marks, phase, info)`` gives it."""

    start = property(None, operator.is_)  # type: ignore[arg-type]  # any function in C of two arguments: does nothing
    stop = property(None, deque.append)


class GcPauses:
    """Notes the garbage collector's pauses from :meth:`begin` to :meth:`end`.

    Forked processes inherit the callbacks; there they note up to the same number of collections that nobody asks for.

    Args:
        callbacks: The collector's list of callbacks.
        now: The run's clock in ns; a function in C for what the module's docstring says.
        most_marks: Numbers that are kept between two looks, five for a collection.
    """

    def __init__(
        self,
        callbacks: list[Any] = gc.callbacks,
        now: Callable[[], int] = time.perf_counter_ns,
        most_marks: int = _MAX_MARKS,
    ) -> None:
        self._callbacks = callbacks
        self._marks = _Marks(maxlen=most_marks)
        # ``next(ticks)`` reads the clock and appends what it shows. The collector calls with two arguments, phase and
        # info, and of the functions in C that take two only those that compare call something with one: so there are
        # two numbers for each call, 0.2 us apart.
        ticks = zip(map(self._marks.append, iter(now, None)))
        self._clock_mark = partial(max, key=partial(next, ticks))
        self._end_mark = partial(setattr, self._marks)

    def begin(self) -> None:
        """Listen to the collector."""
        self._callbacks += [self._clock_mark, self._end_mark]

    def end(self) -> None:
        """Listen no more; callbacks of others stay as they are, also if somebody has taken ours out already."""
        for own in (self._clock_mark, self._end_mark):
            with contextlib.suppress(ValueError):
                self._callbacks.remove(own)

    def take(self) -> list[Pause]:
        """Collections that ended since the last look, the oldest first."""
        return list(self._whole())

    def _whole(self) -> Iterator[Pause]:
        # Another thread may collect meanwhile, which drops the oldest where there are too many. ``list`` itself sets
        # off no collection while it goes through the marks; ``tuple`` may.
        for _ in range(sum(isinstance(mark, dict) for mark in list(self._marks))):
            marks: list[int] = []
            try:
                mark = self._marks.popleft()
                while not isinstance(mark, dict):
                    marks.append(mark)
                    mark = self._marks.popleft()
            except IndexError:
                return
            if len(marks) >= 4 and isinstance(mark.get("generation"), int):  # the oldest may have lost its beginning
                start_ns, end_ns = marks[-4], marks[-2]
                yield Pause(start_ns=start_ns, duration_ns=end_ns - start_ns, generation=mark["generation"])
