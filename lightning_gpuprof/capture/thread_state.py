"""Whether a thread that is looked at runs Python, runs native code, or is off the CPU.

The thread that looks holds the interpreter: a thread that waits for it meanwhile, as the kernel says, runs Python; one
whose CPU clock goes on runs native code; any other is asleep, or waits for a lock or a file.
"""

from __future__ import annotations

import ctypes
import operator
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

_HOLD_US = 10
"""With the timer's own 50 µs enough for a thread that gave up the interpreter to wait for it."""
_RAN_NS = 25_000
"""Of these 60 µs; a thread that runs all the time has all of them, if others do not take its CPU."""
_LONG_NS, _MOST_LONG = 1_000_000, 3
"""Where others have all CPUs, the sleep ends late: a look that kept the interpreter so long is one of so many."""
PYTHON, NATIVE, OFF_CPU = range(3)
_FILE_BYTES = 512
_RUNTIME_BYTES = 1 << 20
"""At least as many as CPython's own state has; in it is the lock of the main interpreter."""
_CALL = operator.methodcaller("__call__")


class KeptFile:
    """A short file of the kernel, read without letting go of the interpreter, as ``os.pread`` does.

    Each time a thread lets go, whoever has the interpreter waits until that thread has it back.

    Args:
        path: Below ``/proc``.

    Raises:
        OSError: It cannot be read, or this system has no such files.
    """

    def __init__(self, path: str) -> None:
        if sys.platform != "linux":
            raise OSError("only Linux has them")
        self._file = Path(path).open("rb", buffering=0)  # noqa: SIM115  # C closes it where nobody does
        self._buffer = ctypes.create_string_buffer(_FILE_BYTES)
        number = self._file.fileno()
        self.note = partial(ctypes.PyDLL(None).pread, number, self._buffer, _FILE_BYTES - 1, ctypes.c_long(0))
        if self.note() <= 0:
            raise OSError(f"{path} cannot be read")

    def close(self) -> None:
        """Let go of it; nothing is noted any more."""
        self._file.close()

    def noted(self) -> bytes:
        """What it held when ``note`` was called."""
        return self._buffer.value


class ThreadSources(msgspec.Struct, frozen=True, kw_only=True):
    """What the system says of a thread; functions of C, which keep the interpreter, but for ``noted``."""

    cpu_ns: Callable[[], int]
    """Its CPU time. OSError once it has ended."""
    hold: Callable[[], object]
    """Sleep for some 60 µs."""
    note: Callable[[], int]
    """Take down the call of the kernel in which it is."""
    close: Callable[[], object]
    noted: Callable[[], bytes]
    """That call, as of ``/proc/self/task/THREAD/syscall``; 0 bytes were read of a thread that has ended."""
    runtime: range
    """Addresses of CPython's own state."""

    @classmethod
    def of(cls, thread_id: int) -> ThreadSources | None:
        """Of a thread by its ``threading.get_ident()``; None where the system does not say it, or it is not alive."""
        native_id = next((one.native_id for one in threading.enumerate() if one.ident == thread_id), None)
        if native_id is None or not getattr(sys, "_is_gil_enabled", lambda: True)():
            return None
        try:
            # as Linux numbers the clock of a thread: the C library's function crashes if it has just ended
            cpu_ns = partial(time.clock_gettime_ns, (~native_id << 3) | 6)
            cpu_ns()
            call = KeptFile(f"/proc/self/task/{native_id}/syscall")
            begin = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
            hold = partial(ctypes.PyDLL(None).usleep, _HOLD_US)
        except (AttributeError, OSError, ValueError):  # macOS, Windows, and containers that forbid it
            return None
        runtime = range(begin, begin + _RUNTIME_BYTES)
        return cls(cpu_ns=cpu_ns, hold=hold, note=call.note, close=call.close, noted=call.noted, runtime=runtime)


class ThreadState:
    """The state of one thread at one moment after another; without sources nothing is known."""

    def __init__(self, sources: ThreadSources | None) -> None:
        self._sources = sources
        self._long = 0

    def close(self) -> None:
        """Let go of its files; nothing is known any more."""
        sources, self._sources = self._sources, None
        if sources is not None:
            sources.close()

    def look(self) -> int | None:
        """Python, native or off the CPU, to be called once the looking thread has the interpreter.

        None: not known, as where the thread waits for a CPU that others have.
        """
        sources = self._sources
        if sources is None:
            return None
        try:  # in C alone: between two lines of ours the thread would get the interpreter that it has asked for by then
            own = time.perf_counter_ns
            readings = own, sources.cpu_ns, sources.hold, sources.cpu_ns, sources.note, own
            held_ns, begin_ns, _, end_ns, count, done_ns = map(_CALL, readings)
            if done_ns - held_ns > _LONG_NS or count <= 0:
                self._long += 1
                if self._long >= _MOST_LONG or count <= 0:  # nobody runs Python meanwhile
                    self.close()
                return None
            number, *arguments = sources.noted().split()
            if number == b"running":
                return NATIVE if end_ns - begin_ns >= _RAN_NS else None
            waits_for = int(arguments[0], 16)
        except (OSError, ValueError, IndexError):
            self.close()
            return None
        return PYTHON if waits_for in sources.runtime else OFF_CPU

    def is_off_cpu(self) -> bool | None:
        """Whether it is off the CPU, in a few microseconds, as Python and native code are not told apart.

        None: not known. A thread that waits for a CPU or for the interpreter is not off the CPU.
        """
        sources = self._sources
        if sources is None:
            return None
        try:
            if sources.note() > 0:
                number, *arguments = sources.noted().split()
                return number != b"running" and int(arguments[0], 16) not in sources.runtime
        except (OSError, ValueError, IndexError):
            pass
        self.close()
        return None


def with_one_more(counts: tuple[int, int, int], state: int) -> tuple[int, int, int]:
    """Counts by state, with another look.

    Args:
        counts: In Python, in native code, off the CPU.
        state: What :meth:`ThreadState.look` returned.

    Returns:
        New counts in the same order.
    """
    python, native, off = (count + (number == state) for number, count in enumerate(counts))
    return python, native, off
