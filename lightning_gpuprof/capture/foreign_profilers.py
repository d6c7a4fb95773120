"""Notices when somebody else is about to use torch.profiler, so that our window makes room before.

A process has room for one Kineto session. A second one that starts inside ours raises in the user's code, or crashes
the process when ours is stopped afterwards; and torch does not say whether one is being prepared. All ways of starting
one go through ``torch.autograd.profiler.profile._prepare_trace`` (read in torch 2.13), which is wrapped while windows
are planned. On other threads than the training's it only waits until our trace is written.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.autograd import profiler as torch_profiler

from lightning_gpuprof.capture.background_stop import wait_until_written
from lightning_gpuprof.capture.fence import suppress_exceptions

_METHOD = "_prepare_trace"


class ForeignProfilers:
    """Watches from :meth:`watch` to :meth:`unwatch`.

    Args:
        on_foreign: Called on the main thread, before the other profiler is prepared.
    """

    def __init__(self, on_foreign: Callable[[], None]) -> None:
        self._on_foreign = on_foreign
        self._ours = False
        self._thread = threading.get_ident()
        self._original: Callable[[Any], Any] | None = None
        self._wrapper: Callable[[Any], Any] | None = None

    def watch(self) -> None:
        """Begin; without the method in this version of torch nothing is watched."""
        original = getattr(torch_profiler.profile, _METHOD, None)
        if original is None or self._wrapper is not None:
            return

        def prepare_trace(profiler: Any) -> Any:
            with suppress_exceptions():  # they get their profiler whatever becomes of ours
                if not self._ours:
                    wait_until_written()
                if self._wrapper is not None and not self._ours and threading.get_ident() == self._thread:
                    self._on_foreign()
            return original(profiler)

        self._original, self._wrapper = original, prepare_trace
        setattr(torch_profiler.profile, _METHOD, prepare_trace)

    def unwatch(self) -> None:
        """End. If somebody wrapped the method after us, ours stays in the chain and only passes on."""
        wrapper = self._wrapper
        if wrapper is not None and getattr(torch_profiler.profile, _METHOD, None) is wrapper:
            setattr(torch_profiler.profile, _METHOD, self._original)
        self._wrapper = None

    @contextmanager
    def own_profiler(self) -> Iterator[None]:
        """What is prepared inside is our own."""
        self._ours = True
        try:
            yield
        finally:
            self._ours = False
