"""Whether a thread that is looked at runs Python, runs native code, or is off the CPU.

Its CPU clock, which any thread may read, says it: while the looking thread holds the interpreter, only native code goes
on. A thread whose clock stands still then, but ran in the millisecond before, ran Python. Scalene tells Python, native
and system time apart by such clocks, too, over a whole interval (Berger et al., OSDI 2023).
"""

from __future__ import annotations

import ctypes
import operator
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

BEFORE_S = 1e-3
"""How long before a look :meth:`ThreadState.begin` is called."""
_HOLD_US = 10
"""With the timer's own 50 µs about as long as the time slice in a look, after which a thread that waits for the
interpreter wakes up and asks for it."""
_RUNS_RATIO = 0.5
"""Share of a time that a thread which runs all the time has at least, if others do not take its CPU."""
PYTHON, NATIVE, OFF_CPU = range(3)
_STAT_BYTES = 512
_CALL = operator.methodcaller("__call__")


@dataclass(frozen=True, kw_only=True)
class ThreadClocks:
    """What the system says of a thread. All but ``is_ready`` are functions of C, which keep the interpreter."""

    cpu_ns: Callable[[], int]
    """Its CPU time. OSError once it has ended."""
    note: Callable[[], object]
    """Take down its state."""
    is_ready: Callable[[], bool]
    """Whether it ran at that time, or would have if it had a CPU."""
    hold: Callable[[], object]
    """Sleep for some 60 µs, so that another thread may have this CPU."""
    now_ns: Callable[[], int] = time.perf_counter_ns

    @classmethod
    def of(cls, thread_id: int) -> ThreadClocks | None:
        """Of a thread of this process; None where the system has no such clocks, or the thread is not alive.

        Args:
            thread_id: As of ``threading.get_ident()``.
        """
        native_id = next((one.native_id for one in threading.enumerate() if one.ident == thread_id), None)
        if native_id is None or sys.platform != "linux":  # asking for the clock of no thread is a crash
            return None
        try:
            cpu_ns = partial(time.clock_gettime_ns, time.pthread_getcpuclockid(thread_id))
            library = ctypes.PyDLL(None)
            stat = _StatFile(library, f"/proc/self/task/{native_id}/stat")
            cpu_ns()
        except (AttributeError, OSError):
            return None
        return cls(cpu_ns=cpu_ns, note=stat.note, is_ready=stat.is_ready, hold=partial(library.usleep, _HOLD_US))


class _StatFile:
    """State of a thread, read without letting go of the interpreter as ``os.pread`` does."""

    def __init__(self, library: ctypes.PyDLL, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._buffer = ctypes.create_string_buffer(_STAT_BYTES)
        self.note = partial(library.pread, self._file, self._buffer, _STAT_BYTES, ctypes.c_long(0))

    def __del__(self) -> None:
        os.close(self._file)

    def is_ready(self) -> bool:
        return self._buffer.value.rpartition(b") ")[2].startswith(b"R")


class ThreadState:
    """The state of one thread at one moment after another.

    Args:
        clocks: Of that thread; None: nothing is known.
    """

    def __init__(self, clocks: ThreadClocks | None) -> None:
        self._clocks = clocks
        self._begin = (0, 0)

    def begin(self) -> None:
        """To be called a millisecond before the look."""
        clocks = self._clocks
        if clocks is not None:
            try:
                self._begin = clocks.now_ns(), clocks.cpu_ns()
            except OSError:
                self._clocks = None

    def look(self) -> int | None:
        """Python, native or off the CPU, to be called once the looking thread has the interpreter.

        None: not known, as where the thread waits for a CPU that others have.
        """
        clocks = self._clocks
        if clocks is None:
            return None
        readings = clocks.now_ns, clocks.cpu_ns, clocks.hold, clocks.now_ns, clocks.cpu_ns, clocks.note
        try:  # in C alone: between two lines of ours the thread would get the interpreter that it has asked for by then
            now_ns, cpu_ns, _, end_ns, end_cpu_ns, _ = map(_CALL, readings)
        except OSError:
            self._clocks = None
            return None
        if _runs((now_ns, cpu_ns), (end_ns, end_cpu_ns)):
            return NATIVE
        if clocks.is_ready():
            return None
        return PYTHON if _runs(self._begin, (now_ns, cpu_ns)) else OFF_CPU


def with_one_more(counts: tuple[int, int, int], state: int) -> tuple[int, int, int]:
    """Counts by state, with another look.

    Args:
        counts: In Python, in native code, off the CPU.
        state: What :meth:`ThreadState.look` returned.
    """
    python, native, off = (count + (number == state) for number, count in enumerate(counts))
    return python, native, off


def _runs(begin: tuple[int, int], end: tuple[int, int]) -> bool:
    return end[1] - begin[1] >= _RUNS_RATIO * (end[0] - begin[0])
