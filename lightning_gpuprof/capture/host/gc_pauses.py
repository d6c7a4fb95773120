"""Samples of the garbage collector's pauses: sums by generation, and each long pause by itself.

What is called inside a collection is made of functions written in C alone. That is not only cheap (2 µs a collection,
nothing that grows): where Python code runs, the interpreter handles pending signals, and what a handler raises inside
a callback of the collector is printed and forgotten. A callback in Python loses Ctrl-C pressed during a collection.
"""

import contextlib
import gc
import heapq
import operator
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

import msgspec

from lightning_gpuprof.capture.recorder import Reading
from lightning_gpuprof.model.host import LONG_PAUSE_S
from lightning_gpuprof.model.journal import Sample

_MAX_MARKS = 1 << 12
"""About 800 collections between two looks; older ones are lost, and their number is known."""


class Pause(msgspec.Struct, frozen=True, kw_only=True):
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
        # two numbers for each call, 0.2 µs apart.
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


_MAX_LONG = 4
"""Long pauses that are handed over one by one from one interval."""


def collections_so_far() -> Sequence[int]:
    """Collections by generation since the interpreter's start, by its own count."""
    return [int(each["collections"]) for each in gc.get_stats()]


_MAX_SAMPLES = 7200
"""In the time so far, as of the host."""


@dataclass(eq=False, repr=False)
class GcSampler:
    """Samples the pauses of Python's garbage collector, which stop the main thread whoever caused them.

    ============  =====================================================================================================
    subject       values
    ============  =====================================================================================================
    ``gc``        ``pause_ratio`` (share of the time), ``longest_s``; for each generation ``gen<N>_count``,
                  ``gen<N>_pause_s``, ``gen<N>_longest_s``: in the time since the sample before; ``lost_count``:
                  collections that were too many to be noted
    ``gc_pause``  a pause of 5 ms or more, at its start: ``pause_s``, ``generation``
    ============  =====================================================================================================
    """

    interval_s: float = 1.0
    """Seconds between two samples."""
    _: KW_ONLY
    pauses: GcPauses = field(default_factory=GcPauses)
    """Notes them."""
    collections: Callable[[], Sequence[int]] = collections_so_far
    """The interpreter's count of collections by generation."""

    name = "gc"

    def __post_init__(self) -> None:
        self._wanted_s = self.interval_s
        self._first_ns: int | None = None
        self._counted = 0
        self._last_ns: int | None = None

    def open(self) -> None:
        """Listen to the collector."""
        self._counted = sum(self.collections())
        self.pauses.begin()

    def sample(self, t_ns: int) -> Sequence[Reading]:
        """What happened since the sample before; nothing at the first."""
        last, self._last_ns = self._last_ns, t_ns
        self._first_ns = t_ns if self._first_ns is None else self._first_ns
        self.interval_s = max(self._wanted_s, (t_ns - self._first_ns) / 1e9 / _MAX_SAMPLES)
        pauses = self.pauses.take()
        counted = sum(self.collections())
        lost = counted - self._counted - len(pauses)
        self._counted = counted
        if last is None or t_ns <= last:
            return ()
        values = _values(pauses, (t_ns - last) / 1e9)
        if lost > 1:  # one may be under way
            values["lost_count"] = float(lost)
        long = [pause for pause in pauses if pause.duration_ns >= LONG_PAUSE_S * 1e9]
        return [
            Sample(source="host", subject="gc", t_ns=t_ns, values=values),
            *(
                Sample(
                    source="host",
                    subject="gc_pause",
                    t_ns=pause.start_ns,
                    values={"pause_s": round(pause.duration_ns / 1e9, 6), "generation": float(pause.generation)},
                )
                for pause in heapq.nlargest(_MAX_LONG, long, key=lambda pause: pause.duration_ns)
            ),
        ]

    def close(self) -> Sequence[Reading]:
        """Listen no more."""
        self.pauses.end()
        return ()


def _values(pauses: Sequence[Pause], elapsed_s: float) -> dict[str, float | None]:
    by_generation: Mapping[int, list[float]] = {
        generation: [pause.duration_ns / 1e9 for pause in pauses if pause.generation == generation]
        for generation in sorted({pause.generation for pause in pauses})
    }
    durations = [duration for several in by_generation.values() for duration in several]
    values: dict[str, float | None] = {
        "pause_ratio": round(sum(durations) / elapsed_s, 6),
        "longest_s": round(max(durations, default=0.0), 6),
    }
    for generation, several in by_generation.items():
        values[f"gen{generation}_count"] = float(len(several))
        values[f"gen{generation}_pause_s"] = round(sum(several), 6)
        values[f"gen{generation}_longest_s"] = round(max(several), 6)
    return values
