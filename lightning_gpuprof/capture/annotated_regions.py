"""Regions that the user names: ``annotate("name")`` goes to the run that is measured now, or to nothing.

Imports neither torch nor Lightning, so that a dataset's module may use it.
"""

import functools
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from lightning_gpuprof.capture.step_clock import Context

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Recording:
    """Where annotated regions of one run go; belongs to the thread that makes it.

    Args:
        timed: Gives the context that times a region of this name where the thread is now.
        on_failure: Called when a region cannot be timed; the user's code goes on.
        is_compiling: Whether ``torch.compile`` is tracing the code: regions are left out then.
    """

    def __init__(
        self,
        timed: Callable[[str], Context],
        on_failure: Callable[[Exception], object] = lambda error: None,
        is_compiling: Callable[[], bool] = bool,
    ) -> None:
        self.timed = timed
        self.on_failure = on_failure
        self.is_compiling = is_compiling
        self.thread_id = threading.get_ident()
        self._before: Recording | None = None

    def begin(self) -> None:
        """From now on regions are recorded here."""
        global _recording, _is_compiling
        self._before, _recording = _recording, self
        _is_compiling = self.is_compiling

    def end(self) -> None:
        """Regions go where they went before; a second call does nothing."""
        global _recording
        if _recording is self:
            _recording = self._before


_recording: Recording | None = None
_is_compiling: Callable[[], bool] = bool
"""A global of its own, because ``torch.compile`` knows torch's function only where it is named directly."""

UNNAMED = "unnamed"


def _forget() -> None:
    """A forked DataLoader worker is no main thread, though its thread has the same number."""
    global _recording
    _recording = None


def _warn(error: Exception) -> None:
    if _recording is not None:
        _recording.on_failure(error)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class annotate:  # noqa: N801 - reads as a verb where it is used, like `torch.no_grad`
    """Names a region of code, as a context or as a decorator; reports show it as a part of the phase that it runs in.

    Usage::

        with annotate("augment"):
            batch = augment(batch)

        @annotate("loss")
        def loss(...): ...

    Costs about a microsecond in a run that is measured and a fraction of that in any other. It counts in the main
    thread, and as a part of the items in DataLoader workers. Regions may lie in one another. Put it around a call of
    compiled code, not inside. After some 200 names (35 in a worker) others share a row.

    Args:
        name: What reports call it; anything else than a text becomes one, and one without letters ``unnamed``.
    """

    __slots__ = ("_name", "_open")

    def __init__(self, name: str) -> None:
        # No error: a name that is made up in the middle of a run must not end it.
        self._name = str(name).strip() or UNNAMED
        self._open: list[Context | None] = []

    def __enter__(self) -> None:
        try:
            recording = _recording
            if recording is None or _is_compiling() or recording.thread_id != threading.get_ident():
                self._open.append(None)
                return
            region = recording.timed(self._name)
            region.__enter__()
            self._open.append(region)
        except Exception as error:  # a region that cannot be timed must not cost the user's code
            _warn(error)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            region = self._open.pop() if self._open else None
            if region is not None:
                region.__exit__(kind, error, trace)
        except Exception as failure:
            _warn(failure)

    def __call__(self, function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        """The function with this region around each of its calls."""
        name = self._name

        @functools.wraps(function)
        def annotated(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            with annotate(name):
                return function(*args, **kwargs)

        return annotated
