"""Ends torch's profiler and writes its trace on a thread of its own, while training goes on.

torch's own binding holds the interpreter lock for as long as it takes to collect a trace, and again to write it:
seconds for some 100,000 events. The same C++ functions of ``libtorch_cpu``, called through :mod:`ctypes`, do not. Two
things make it possible (read in and tried with torch 2.13):

- A session with ``_ExperimentalConfig(profile_all_threads=True)`` belongs to the process and not to the thread that
  began it, so that another thread may end it.
- ``disableProfiler`` first takes the session out of the process and its callbacks off, in microseconds; what takes long
  comes after that and touches nothing of the threads that go on.

A wrong guess of a function's signature would end the process, so that this is only used with versions of torch with
which it was tried, and where all else is as expected; torch's own binding is used everywhere else.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from torch.autograd import profiler as torch_profiler

from lightning_gpuprof.capture.trace_file import write_trace

TRIED = ("2.13.",)
"""Versions of torch that the tests of this module ran with."""

THREAD_NAME = "gpuprof-trace-writer"

_LOOK_EVERY_S = 0.0002

_NAMESPACE = "_ZN5torch8autograd8profiler"
_DISABLE = f"{_NAMESPACE}15disableProfilerEv"
"""``std::unique_ptr<ProfilerResult> disableProfiler()``"""
_SAVE = f"{_NAMESPACE}14ProfilerResult4saveERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
"""``void ProfilerResult::save(const std::string&)``"""
_DESTROY = f"{_NAMESPACE}14ProfilerResultD1Ev"
"""``ProfilerResult::~ProfilerResult()``"""
_STATE = "_ZN5torch8profiler4impl17ProfilerStateBase3getEb"
"""``ProfilerStateBase* ProfilerStateBase::get(bool global)``"""
_FREE = "_ZdlPv"
"""``operator delete(void*)``"""


_writer: threading.Thread | None = None
"""The last that was started."""


def wait_until_written() -> None:
    """Return once no trace is being written: a process has room for one."""
    if _writer is not None:
        _writer.join()


class _Returned(ctypes.Structure):
    """Room for a ``unique_ptr``. Its size has C return it as C++ does a class: in memory that the caller gives."""

    _fields_ = (("pointer", ctypes.c_void_p), ("unused", ctypes.c_void_p * 7))


class _String(ctypes.Structure):
    """A ``std::string`` of libstdc++ whose text lies elsewhere."""

    _fields_ = (("text", ctypes.c_char_p), ("size", ctypes.c_size_t), ("capacity", ctypes.c_size_t * 2))


class BackgroundStop:
    """Ends the profiler of the process and writes what it holds; made by :meth:`of_this_torch`.

    Args:
        library: ``libtorch_cpu``.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._disable: Callable[[], _Returned] = _function(library, _DISABLE, _Returned)
        self._save: Callable[..., None] = _function(library, _SAVE, None, ctypes.c_void_p, ctypes.POINTER(_String))
        self._state: Callable[[bool], int | None] = _function(library, _STATE, ctypes.c_void_p, ctypes.c_bool)
        self._destroy: Callable[..., None] = _function(library, _DESTROY, None, ctypes.c_void_p)
        self._free: Callable[..., None] = _function(library, _FREE, None, ctypes.c_void_p)

    @classmethod
    def of_this_torch(cls, version: str = torch.__version__) -> BackgroundStop | None:
        """What this process can use; None if torch, the machine or the build is not one that it was tried with.

        Args:
            version: Of torch.
        """
        known = version.startswith(TRIED) and sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
        if not known or not hasattr(torch_profiler, "_run_on_profiler_stop"):
            return None
        try:
            library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
            return cls(ctypes.CDLL(str(library)))
        except (OSError, AttributeError):
            return None

    def is_recording(self) -> bool:
        """Whether a profiler of the whole process is on, which torch's own binding does not tell."""
        return bool(self._state(True))

    def begin(self, path: Path) -> Future[Path] | None:
        """End the profiler on a thread, and wait until it no longer records, which takes about a millisecond.

        Args:
            path: The file to write.

        Returns:
            The file once it is there, or an ``OSError``; None if the profiler was not ended.
        """
        global _writer
        written: Future[Path] = Future()
        # Not a daemon: the interpreter waits for it at its end, and C++ may not be unloaded under it.
        thread = threading.Thread(target=write_trace, args=(path, lambda: self._write(path), written), name=THREAD_NAME)
        try:
            thread.start()
        except RuntimeError:  # no more threads
            return None
        _writer = thread
        while self.is_recording() and not written.done():
            time.sleep(_LOOK_EVERY_S)
        if self.is_recording():
            return None
        torch_profiler._run_on_profiler_stop()  # type: ignore[no-untyped-call]
        return written

    def _write(self, path: Path) -> None:
        if not self.is_recording():
            raise OSError("another profiler took over in the middle of the window")
        result = self._collect()
        try:
            self._save_to(result, path)
        finally:
            self._destroy(result)
            self._free(result)

    def _collect(self) -> int | None:
        result: int | None = self._disable().pointer
        return result

    def _save_to(self, result: int | None, path: Path) -> None:
        text = os.fsencode(path)
        self._save(result, ctypes.byref(_String(text, len(text), (len(text), 0))))


def _function(library: ctypes.CDLL, symbol: str, result: Any, *arguments: Any) -> Any:
    function = getattr(library, symbol)
    function.restype, function.argtypes = result, arguments
    return function
