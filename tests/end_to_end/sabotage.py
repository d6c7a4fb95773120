"""A fault in a line of ours, once a thread has reached the line for the n-th time, and what it does to a run."""

import functools
import linecache
import os
import tempfile
import threading
import traceback
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from sabotage_runs import SCENARIOS, Outcome, play
from sabotage_safe_lines import can_fail, lines_that_can_raise, need_not_warn

import lightning_gpuprof

PACKAGE = str(Path(lightning_gpuprof.__file__).parent) + os.sep


class Place(NamedTuple):
    """A line of a function of ours in one kind of thread."""

    file: str
    """Relative to the package."""
    function: str
    line: int
    thread: str
    """``training``, or the name of a thread of ours."""

    @property
    def text(self) -> str:
        """The line as it is written."""
        return linecache.getline(PACKAGE + self.file, self.line).strip()

    @property
    def code(self) -> str:
        """Function and text of the line; stays the same when the line moves."""
        return f"{self.file} {self.function} {self.thread} {self.text}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function} [{self.thread}]: {self.text}"


def _thread() -> str:
    current = threading.current_thread()
    return "training" if current is threading.main_thread() else current.name


def _function(code: CodeType) -> str:
    return str(getattr(code, "co_qualname", code.co_name))  # Python 3.10 has no qualified name


class Recorder:
    """Counts how often each place is reached."""

    def __init__(self, rooms: tuple[str, ...]) -> None:
        self.counts: Counter[Place] = Counter()
        self._prefixes = tuple(PACKAGE + room for room in rooms)

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(self._prefixes):
            return None
        file, function, thread = code.co_filename.removeprefix(PACKAGE), _function(code), _thread()
        can_raise = lines_that_can_raise(code)

        def local(frame: FrameType, event: str, arg: object) -> Any:
            if event == "line" and frame.f_lineno in can_raise:
                self.counts[Place(file, function, frame.f_lineno, thread)] += 1
            return local

        return local


class Saboteur:
    """Raises at a place when it is reached for the n-th time.

    Args:
        place: Where.
        error: What.
        reach: At which of the times it is reached.
        again: Also every time after that.
    """

    def __init__(self, place: Place, error: BaseException, reach: int = 1, *, again: bool = False) -> None:
        self.place = place
        self.error = error
        self.left = reach
        self.strikes = 0
        self.inside: tuple[str, ...] = ()
        """The functions that were running when it struck, the innermost first."""
        self._again = again
        self._file = PACKAGE + place.file

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        if self.strikes and not self._again:
            return None
        if code.co_filename != self._file or _function(code) != self.place.function:
            return None
        return self._local if _thread() == self.place.thread else None

    def _local(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line" and frame.f_lineno == self.place.line:
            self.left -= 1
            if self.left == 0 or (self.left < 0 and self._again):
                self.strikes += 1
                self.inside = tuple(_function(called.f_code) for called, _ in traceback.walk_stack(frame))
                # A new one: its traceback would hold what the run let go of. The interpreter forgets a tracing
                # function that raises.
                raise type(self.error)(*self.error.args)
        return self._local


@functools.cache
def plain_outcome(name: str) -> Outcome:
    """Of a scenario without us."""
    with tempfile.TemporaryDirectory() as folder:
        return play(SCENARIOS[name], Path(folder), with_us=False)[0]


@functools.cache
def _reached(name: str) -> Counter[Place]:
    recorder = Recorder(("capture/", "callback.py"))
    for trace in (None, recorder):  # what is imported on the way is so already
        with tempfile.TemporaryDirectory() as folder:
            play(SCENARIOS[name], Path(folder), with_us=True, trace=trace)
    return recorder.counts


def places_of(name: str, *, training: bool = True) -> list[tuple[Place, int]]:
    """Places that a scenario reaches and none before it does, and how often; those that can fail."""
    names = list(SCENARIOS)
    known = {place for earlier in names[: names.index(name)] for place in _reached(earlier)}
    return [
        (place, count)
        for place, count in sorted(_reached(name).items())
        if place not in known and can_fail(place.text, place.function) and (place.thread == "training") is training
    ]


ERRORS: tuple[type[Exception], ...] = (RuntimeError, MemoryError, OSError, StopIteration)


def harm_of(name: str, place: Place, count: int, error: type[Exception] = RuntimeError) -> list[str]:
    """Sabotage a place in the middle of the times that it is reached; returns what is not as it is without us."""
    for reach in sorted({(count + 1) // 2, 1}, reverse=True):
        saboteur = Saboteur(place, error("sabotage"), reach)
        with tempfile.TemporaryDirectory() as folder:
            outcome, told = play(SCENARIOS[name], Path(folder), with_us=True, trace=saboteur)
        found = outcome.differences(plain_outcome(name))
        quiet = need_not_warn(place.file, place.function)
        if saboteur.strikes and not told and error is RuntimeError and not quiet:
            found.append("nobody was told")
        if len(told) > 3:
            found.append(f"told {len(told)} times: {told}")
        if found:
            return [f"{error.__name__} at {place}: {text}" for text in found]
        if saboteur.strikes:
            break  # else: what depends on time was not reached as often as before
    return []
