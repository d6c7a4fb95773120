"""What a copy of this process computes while this one goes on. A copy starts at once, and has all that was read."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO


@contextmanager
def in_a_copy(compute: Callable[[], object]) -> Iterator[BinaryIO | None]:
    """Call a function in a copy of this process; no thread of this one may hold a lock, and it may have no GPU.

    Args:
        compute: What is called; what it raises nobody is told.

    Yields:
        What it returned, pickled; it ends early where it raised. None: no process could be made. The copy ends with
        the context.
    """
    readable, writable = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(readable)
        os.close(writable)
        yield None
        return
    if not child:
        try:
            os.close(readable)
            with open(writable, "wb") as file:
                pickle.dump(compute(), file, protocol=pickle.HIGHEST_PROTOCOL)
        finally:  # nothing of what this process is a copy of is to be ended by it, nor said twice
            os._exit(0)
    os.close(writable)
    try:
        with open(readable, "rb") as file:
            yield file
    finally:
        with suppress(ProcessLookupError, ChildProcessError):  # where SIGCHLD is ignored, it is gone by itself
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
