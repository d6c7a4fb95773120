"""Regions that the user names: ``annotate("name")`` goes to the run that is measured now, or to torch's own profiler.

Imports neither torch nor Lightning, so that a dataset's module may use it.
"""

import functools
import inspect
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from lightning_gpuprof.capture.step_clock import Context
from lightning_gpuprof.errors import ArgumentError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@dataclass(eq=False, repr=False)
class Recording:
    """Where annotated regions of one run go; belongs to the thread that makes it."""

    timed: Callable[[str, str | None], Context]
    """Gives the context that times a region of this name, in the user's colour, where the thread is now."""
    on_failure: Callable[[Exception], object] = lambda error: None
    """Called when a region cannot be timed; the user's code goes on."""
    is_compiling: Callable[[], bool] = bool
    """Whether ``torch.compile`` is tracing the code: regions are left out then."""

    def __post_init__(self) -> None:
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
        above = _recording  # of runs in several threads the first may end first
        while above is not None:
            if above._before is self:
                above._before = self._before
            above = above._before


_recording: Recording | None = None
_is_compiling: Callable[[], bool] = bool
"""A global of its own, because ``torch.compile`` knows torch's function only where it is named directly."""

_is_forked = False

UNNAMED = "unnamed"


def _forget() -> None:
    """A forked DataLoader worker is no main thread, though its thread has the same number and an active profiler."""
    global _recording, _is_forked
    _recording, _is_forked = None, True


def _of_torch(name: str) -> Context | None:
    """A range in the trace of a ``torch.profiler`` that is active in this thread; None if there is none."""
    torch: Any = sys.modules.get("torch")
    is_active = getattr(getattr(torch, "autograd", None), "_profiler_enabled", None)
    if is_active is None or torch.compiler.is_compiling() or _is_forked or not is_active():
        return None
    found: Context = torch.profiler.record_function(name)
    return found


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

    Costs about a microsecond in a measured run, less in others; a generator or ``async`` function is in it while its
    own code runs. It counts in the main thread, and as a part of the items in DataLoader workers. Without a
    ``GpuProfiler``, an active ``torch.profiler`` records it in the main process. Regions may nest. Put it around
    calls of compiled code, not inside. After some 200 names (35 in a worker) others share a row.

    Args:
        name: What reports call it; anything else than a text becomes one, and one without letters ``unnamed``.
        color: ``"green"`` or ``"#rrggbb"``, for Nsight: needs ``lightning-gpuprof[nvtx]``, as torch's NVTX ranges have
            no colour. An unknown one is ignored.

    Raises:
        ArgumentError: The name is a function, as where ``@annotate`` has no parentheses.
    """

    __slots__ = ("_color", "_name", "_open")

    def __init__(self, name: str, color: str | None = None) -> None:
        if callable(name):  # ``@annotate`` alone would put the region in the place of the function
            raise ArgumentError("name", getattr(name, "__name__", name), "be a text", 'Write @annotate("loss").')
        # No other error: a name that is made up in the middle of a run must not end it.
        self._name = str(name).strip() or UNNAMED
        self._color = color
        self._open: list[Context | None] = []

    def __enter__(self) -> None:
        try:
            recording = _recording
            region: Context | None = None
            if recording is None:
                region = _of_torch(self._name)
            elif not _is_compiling() and recording.thread_id == threading.get_ident():
                region = recording.timed(self._name, self._color)
            if region is not None:
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
        """The function with this region around each of its calls; of a generator or coroutine, while its code runs."""
        name, color = self._name, self._color
        if inspect.isgeneratorfunction(function):
            return cast(Callable[Parameters, Result], _around_generator(function, name, color))
        if inspect.iscoroutinefunction(function):
            return cast(Callable[Parameters, Result], _around_coroutine(function, name, color))
        if inspect.isasyncgenfunction(function):
            return cast(Callable[Parameters, Result], _around_async_generator(function, name, color))

        @functools.wraps(function)
        def annotated(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            with annotate(name, color):
                return function(*args, **kwargs)

        return annotated


def _resumed(steps: Any, name: str, color: str | None) -> Generator[Any, Any, Any]:
    """What a generator yields, with a region around each stretch of its own code."""
    resume: Callable[[], Any] = functools.partial(steps.send, None)
    while True:
        try:
            with annotate(name, color):
                item = resume()
        except StopIteration as end:
            return end.value
        try:
            given = yield item
        except GeneratorExit:
            with annotate(name, color):
                steps.close()
            raise
        except BaseException as error:
            resume = functools.partial(steps.throw, error)
        else:
            resume = functools.partial(steps.send, given)


class _Awaited:
    """An awaitable with a region around each stretch of its own code: not while others run."""

    def __init__(self, awaitable: Any, name: str, color: str | None) -> None:
        self._steps = awaitable.__await__()
        self._name = name
        self._color = color

    def __await__(self) -> Generator[Any, Any, Any]:
        return _resumed(self._steps, self._name, self._color)


def _around_generator(function: Callable[..., Any], name: str, color: str | None) -> Callable[..., Any]:
    @functools.wraps(function)
    def annotated(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        return (yield from _resumed(function(*args, **kwargs), name, color))

    return annotated


def _around_coroutine(function: Callable[..., Any], name: str, color: str | None) -> Callable[..., Any]:
    @functools.wraps(function)
    async def annotated(*args: Any, **kwargs: Any) -> Any:
        return await _Awaited(function(*args, **kwargs), name, color)

    return annotated


def _around_async_generator(function: Callable[..., Any], name: str, color: str | None) -> Callable[..., Any]:
    @functools.wraps(function)
    async def annotated(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        items = function(*args, **kwargs)
        resume = items.asend(None)
        while True:
            try:
                item = await _Awaited(resume, name, color)
            except StopAsyncIteration:
                return
            try:
                given = yield item
            except GeneratorExit:
                await _Awaited(items.aclose(), name, color)
                raise
            except BaseException as error:
                resume = items.athrow(error)
            else:
                resume = items.asend(given)

    return annotated
