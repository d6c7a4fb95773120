"""The frames of all other threads, also where the interpreter would wait for itself."""

import gc
import operator
import sys
import threading
from functools import partial
from types import FrameType

_CALL = operator.methodcaller("__call__")
_MAY_STAND_STILL = (3, 11) <= sys.version_info < (3, 11, 9)


def current_frames() -> dict[int, FrameType]:
    """As ``sys._current_frames()``, without a garbage collection on the way, and without this thread.

    CPython 3.11.0 to 3.11.8 may collect garbage while it holds the lock of all threads. If a ``threading.local`` is in
    it, that takes the lock again, and the process stands still for good (python/cpython#106883).

    Frames refer to those that called them: with the caller's own frame, which has the result among its variables, all
    frames and their tensors would stay until the next collection.
    """
    frames = _without_collecting() if _MAY_STAND_STILL else sys._current_frames()
    frames.pop(threading.get_ident(), None)
    return frames


def _without_collecting() -> dict[int, FrameType]:
    # In C: between two lines of ours, another thread might switch the collector. Now it can only from a finalizer, a
    # callback of the collector or an audit hook.
    plain, paused = (
        partial(tuple, map(_CALL, calls))
        for calls in ((sys._current_frames,), (gc.disable, sys._current_frames, gc.enable))
    )
    was_enabled = gc.isenabled()
    try:
        found = next(map(_CALL, map((plain, paused).__getitem__, map(_CALL, (gc.isenabled,)))))
    except BaseException:  # no memory
        if was_enabled:
            gc.enable()
        raise
    frames: dict[int, FrameType] = found[len(found) // 2]
    return frames
