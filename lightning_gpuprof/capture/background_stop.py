"""Ends torch's profiler and writes its trace on a thread of its own, while training goes on.

torch's own binding holds the GIL for as long as it takes to collect a trace, and again to write it:
seconds for some 100,000 events. The same C++ functions of ``libtorch_cpu``, called through :mod:`ctypes`, do not. The
main thread leaves the profiler, which takes microseconds and is all that it does; the writer joins it and ends it.
torch has both for threads of C++ programs (``profiler_kineto.h``).

A function with another signature would end the process, and so would an exception of C++: of memory that is full, or of
a check inside torch. So this is only used with the builds of torch that it was tried with, and where memory is not
limited by ``ulimit``; torch's own binding is used everywhere else.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from torch.autograd import profiler as torch_profiler

TESTED_VERSIONS = re.compile(r"2\.(13\.0|14\.1)(\+(cpu|cu\d+))?")
"""Releases of torch that this was tried with; of builds with CUDA, see ``docs/gpu-checks.md``."""
TESTED_MACHINES = ("x86_64",)

THREAD_NAME = "gpuprof-trace-writer"

_LEAVE_TIMEOUT_S = 5.0
"""The main thread says at once that it left the profiler; whatever happens to it, nobody waits for ever."""

_NAMESPACE = "_ZN5torch8autograd8profiler"
_LEAVE = f"{_NAMESPACE}28disableProfilerInChildThreadEv"
"""``void disableProfilerInChildThread()``"""
_JOIN = f"{_NAMESPACE}27enableProfilerInChildThreadEv"
"""``void enableProfilerInChildThread()``"""
_IS_ON = f"{_NAMESPACE}29isProfilerEnabledInMainThreadEv"
"""``bool isProfilerEnabledInMainThread()``"""
_DISABLE = f"{_NAMESPACE}15disableProfilerEv"
"""``std::unique_ptr<ProfilerResult> disableProfiler()``"""
_SAVE = f"{_NAMESPACE}14ProfilerResult4saveERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
"""``void ProfilerResult::save(const std::string&)``"""
_DESTROY = f"{_NAMESPACE}14ProfilerResultD1Ev"
"""``ProfilerResult::~ProfilerResult()``"""
_FREE = "_ZdlPv"
"""``operator delete(void*)``"""


_writer: threading.Thread | None = None
"""The last that was started."""


def wait_until_written() -> None:
    """Return once no trace is being written: a process has room for one profiler."""
    if _writer is not None and _writer is not threading.current_thread():
        _writer.join()


class _ReturnBuffer(ctypes.Structure):
    """Room for a ``unique_ptr``. Its size has C return it as C++ does a class: in memory that the caller gives."""

    _fields_ = (("pointer", ctypes.c_void_p), ("unused", ctypes.c_void_p * 7))


class _String(ctypes.Structure):
    """A ``std::string`` of libstdc++ whose text lies elsewhere."""

    _fields_ = (("text", ctypes.c_char_p), ("size", ctypes.c_size_t), ("capacity", ctypes.c_size_t * 2))


class BackgroundStop:
    """Ends the profiler of this thread and writes what it holds; made by :meth:`for_current_torch`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._leave: Callable[[], None] = _function(library, _LEAVE, None)
        self._join: Callable[[], None] = _function(library, _JOIN, None)
        self._is_on: Callable[[], bool] = _function(library, _IS_ON, ctypes.c_bool)
        self._disable: Callable[[], _ReturnBuffer] = _function(library, _DISABLE, _ReturnBuffer)
        self._save: Callable[..., None] = _function(library, _SAVE, None, ctypes.c_void_p, ctypes.POINTER(_String))
        self._destroy: Callable[..., None] = _function(library, _DESTROY, None, ctypes.c_void_p)
        self._free: Callable[..., None] = _function(library, _FREE, None, ctypes.c_void_p)

    @classmethod
    def for_current_torch(cls, version: str = torch.__version__) -> BackgroundStop | None:
        """What this process can use; None if torch, the machine or the build is not one that it was tried with."""
        known = TESTED_VERSIONS.fullmatch(version) and sys.platform == "linux" and platform.machine() in TESTED_MACHINES
        if not known or _memory_is_limited() or not hasattr(torch_profiler, "_run_on_profiler_stop"):
            return None
        try:
            library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
            return cls(ctypes.CDLL(str(library)))
        except (OSError, AttributeError):
            return None

    def begin(self, path: Path) -> Future[Path] | None:
        """End the profiler of this thread on another, which writes the file.

        Returns:
            The file once it is there, or an ``OSError``; None if the profiler was not ended.
        """
        global _writer
        written: Future[Path] = Future()
        left: Future[bool] = Future()
        # Not a daemon: the interpreter waits for it at its end, and C++ may not be unloaded under it.
        thread = threading.Thread(
            target=write_trace, args=(path, lambda: self._write(path, left), written), name=THREAD_NAME
        )
        try:
            thread.start()
            _writer = thread
            self._leave_profiler()
        except RuntimeError:  # no more threads
            return None
        finally:  # also after Ctrl-C in between
            left.set_result(over := not is_recording())
            if over:
                torch_profiler._run_on_profiler_stop()  # type: ignore[no-untyped-call]
        return written

    def _write(self, path: Path, left: Future[bool]) -> None:
        if not left.result(_LEAVE_TIMEOUT_S) or not self._is_on():
            raise OSError("the profiler was not stopped, or by other code")
        self._join()
        result = self._collect()
        if result is None:
            raise OSError("torch's profiler gave no trace")
        try:
            self._save_to(result, path)
        finally:
            self._destroy(result)
            self._free(result)

    def _leave_profiler(self) -> None:
        if is_recording():  # else it would raise
            self._leave()

    def _collect(self) -> int | None:
        result: int | None = self._disable().pointer
        return result

    def _save_to(self, result: int, path: Path) -> None:
        text = os.fsencode(path)
        self._save(result, ctypes.byref(_String(text, len(text), (len(text), 0))))


def is_recording() -> bool:
    """Whether a profiler of this thread is on."""
    enabled: bool = torch.autograd._profiler_enabled()  # type: ignore[attr-defined]
    return enabled


def _memory_is_limited() -> bool:
    """Whether memory ends before that of the machine does: C++ would say so by an exception."""
    import resource  # not on Windows

    return any(
        resource.getrlimit(limit)[0] != resource.RLIM_INFINITY for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    )


def _function(library: ctypes.CDLL, symbol: str, result: Any, *arguments: Any) -> Any:
    function = getattr(library, symbol)
    function.restype, function.argtypes = result, arguments
    return function


def write_trace(path: Path, write: Callable[[], None], written: Future[Path]) -> None:
    """Have a trace written; what is left of one that cannot be is removed. Raises nothing.

    Args:
        path: Where it appears; torch writes to this name with ``.tmp`` behind it first.
        write: Writes it.
        written: Gets the path, or an ``OSError``.
    """
    try:
        write()
        if not path.is_file() or path.stat().st_size == 0:
            raise OSError(f"torch wrote no trace to {path.name}: is the disk full?")
        written.set_result(path)
    except BaseException as error:
        for rest in (path, path.with_name(f"{path.name}.tmp")):
            with contextlib.suppress(OSError):
                rest.unlink(missing_ok=True)
        written.set_exception(error if isinstance(error, OSError) else OSError(str(error)))
