"""Reads from the kernel how long a thread was ready to run but had no CPU."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from lightning_gpuprof.capture.host import proc_file


def run_delay_ns(path: str) -> int:
    """Total so far of a thread, in ns, from a file that is opened for it (10 us); -1 if it cannot be read."""
    try:
        return int(proc_file.read(path).split()[1])
    except (OSError, ValueError, IndexError):
        return -1


class RunDelay:
    """The second number of ``/proc/self/task/<thread>/schedstat``; one read is about 1 us.

    Args:
        descriptor: The opened file.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def of_this_thread(cls, proc_root: Path = Path("/proc")) -> RunDelay | None:
        """For the calling thread; None where the kernel does not tell (no ``CONFIG_SCHED_INFO``, no Linux)."""
        path = proc_root / "self" / "task" / str(threading.get_native_id()) / "schedstat"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            found = cls(descriptor)
            if found.read_ns() >= 0:
                return found
        except BaseException:
            os.close(descriptor)
            raise
        found.close()
        return None

    def read_ns(self) -> int:
        """Total so far, in ns; -1 if it cannot be read any more."""
        try:
            return int(os.pread(self._descriptor, 64, 0).split()[1])
        except (OSError, ValueError, IndexError):
            return -1

    def close(self) -> None:
        """Let go of the file; a second call does nothing."""
        if self._descriptor >= 0:  # later the number may be somebody else's
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1
