"""Records one window with torch.profiler into a plain JSON file; what is slow is left to a thread and a process."""

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch.autograd import profiler as torch_profiler
from torch.profiler import ProfilerActivity, record_function

from lightning_gpuprof.capture.actions import ANNOTATED, FETCHES
from lightning_gpuprof.capture.background_stop import BackgroundStop, is_recording, wait_until_written, write_trace
from lightning_gpuprof.capture.call_lines import add_call_lines, read_call_lines
from lightning_gpuprof.capture.fence import suppress_exceptions
from lightning_gpuprof.capture.module_ranges import name_modules
from lightning_gpuprof.capture.nsight import active_tool
from lightning_gpuprof.capture.replaced_method import replace_method
from lightning_gpuprof.capture.step_clock import Context, is_timed
from lightning_gpuprof.model.config import TraceConfig
from lightning_gpuprof.model.phases import FETCH_RANGE
from lightning_gpuprof.model.trace.call_lines import CallLines

FETCH_ENDS = tuple(FETCHES)

LIGHTNING_RANGE = "[pl][profile]"
"""Before the names of Lightning's actions, as its own PyTorchProfiler writes them. Analyses read phases from them."""

_METHOD = "_prepare_trace"

_CALL_LINES_RATIO = 0.1
"""Most time to read the lines of calls, as a share of what ending the trace takes."""


def other_profiler(trainer_profiler: object, environ: Mapping[str, str]) -> str:
    """The profiler that already owns the one place a process has for a tracer.

    Args:
        trainer_profiler: The trainer's own profiler.
        environ: Environment variables of the process.

    Returns:
        What to call it in a sentence; empty if there is none.
    """
    if any(kind.__name__ == "PyTorchProfiler" for kind in type(trainer_profiler).__mro__):
        return "the trainer's PyTorchProfiler"
    if tool := active_tool(environ):
        return tool
    if is_recording() or getattr(torch_profiler, "_is_profiler_enabled", False):
        return "a torch profiler that is already running"
    return ""


def _trace_only() -> Any:
    """Ask torch not to turn the trace into Python objects, which nobody here reads.

    Stopping is 1.4 to 3.7 times faster so. Stacks need those objects; a torch that does not know the option gets none.
    """
    try:
        return torch._C._profiler._ExperimentalConfig(trace_only=True)
    except (AttributeError, TypeError):
        return None


def _has_accelerator() -> bool:
    accelerator: Any = getattr(torch, "accelerator", torch.cuda)  # since torch 2.6
    return bool(accelerator.is_available())


def _background_stop(config: TraceConfig) -> BackgroundStop | None:
    """Whether traces can be ended and written while training goes on; collecting stacks needs the interpreter."""
    wanted = not _has_accelerator() if config.background_stop is None else config.background_stop
    return BackgroundStop.for_current_torch() if wanted and not config.with_stack else None


class _FetchRange:
    """The fetch of a batch as a range that the profiler tab recognises, around our timing of it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        fast = getattr(torch._C._profiler, "_RecordFunctionFast", None)
        self._range: AbstractContextManager[Any] = fast(FETCH_RANGE) if fast else record_function(FETCH_RANGE)

    def __enter__(self) -> object:
        with suppress_exceptions():  # a range less in the trace
            self._range.__enter__()
        return self._context.__enter__()

    def __exit__(self, *exc: object) -> None:
        self._context.__exit__(*exc)  # type: ignore[arg-type]
        with suppress_exceptions():
            self._range.__exit__(None, None, None)


class _NamedRange:
    """A region of the user's own or an action of Lightning's as a range of its name; may be nested in itself."""

    def __init__(self, name: str, context: Context) -> None:
        self._name = name
        self._context = context
        self._open: list[record_function] = []

    def __enter__(self) -> object:
        with suppress_exceptions():  # a range less in the trace
            named = record_function(self._name)
            named.__enter__()  # type: ignore[no-untyped-call]
            self._open.append(named)
        return self._context.__enter__()

    def __exit__(self, *exc: object) -> None:
        self._context.__exit__(*exc)  # type: ignore[arg-type]
        with suppress_exceptions():
            self._open.pop().__exit__(None, None, None)


def _with_range(action: str, context: Context) -> Context:
    if not is_timed(context):
        return context
    if action.endswith(FETCH_ENDS):
        return _FetchRange(context)
    if action.startswith(ANNOTATED):
        return _NamedRange(action.removeprefix(ANNOTATED), context)
    return _NamedRange(f"{LIGHTNING_RANGE}{action}", context)


@dataclass(eq=False, repr=False)
class TorchTracer:
    """One trace at a time with ``torch.profiler``."""

    config: TraceConfig
    _: KW_ONLY
    new_path: Callable[[], Path]
    """Gives the file for the next trace's plain JSON."""
    wrap_actions: Callable[[Callable[[str, Context], Context]], Callable[[], None]]
    """Puts a wrapper around the training actions' contexts and returns the way back."""
    preparing: Callable[[], AbstractContextManager[None]] = nullcontext
    """A context in which our own profiler is prepared."""
    model: Any = None
    """The calls of its modules are named."""

    def __post_init__(self) -> None:
        self._profiler: Any = None
        self._step: record_function | None = None
        self._unwrap: Callable[[], None] | None = None
        self._unname: Callable[[], object] | None = None
        self._starting = False
        self._recording = False

    def prepare(self) -> None:
        """Begin to trace and discard.

        Raises:
            RuntimeError: Another profiler is active in this process.
        """
        wait_until_written()
        other = other_profiler(None, os.environ)
        if other:
            raise RuntimeError(f"{other} is active; only one can be")
        config = self.config
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            activities.append(ProfilerActivity.CUDA)
        # The documented low-level profiler: `profile` itself starts on a schedule of its own.
        profiler = torch.profiler._KinetoProfile(  # type: ignore[attr-defined]
            activities=activities,
            record_shapes=config.record_shapes,
            with_stack=config.with_stack,
            profile_memory=config.profile_memory,
            experimental_config=None if config.with_stack else _trace_only(),
        )
        with self.preparing():
            profiler.prepare_trace()
            atexit.register(self._end_at_exit)
            self._profiler = profiler  # one that could not be prepared is not to be stopped: that crashes the process

    def start(self, batch: int) -> None:
        """Begin to keep, with the step of this batch."""
        assert self._profiler is not None
        self._starting = True
        self._profiler.start_trace()
        self._recording = True
        self._unwrap = self.wrap_actions(_with_range)
        if self.model is not None and self.config.modules:
            # our names replace those of the stacks, which have every module
            self._unname = name_modules(self.model, sys.maxsize if self.config.with_stack else self.config.modules)
        self._enter_step(batch)

    def next_step(self, batch: int) -> None:
        """End the range of the step before and begin that of this batch."""
        self._leave_step()
        self._enter_step(batch)

    def stop(self, keep: bool) -> Future[Path] | None:
        """End the trace and write it if it is kept; nothing if there is none. None: there is no file.

        What fails on the way may be called again.

        Returns:
            The file that is kept, perhaps still being written, or an ``OSError`` if it cannot be.

        Raises:
            RuntimeError: Another profiler took over.
        """
        profiler = self._profiler
        if self._unname is not None:
            self._unname()
            self._unname = None
        self._leave_step()
        if self._unwrap is not None:
            self._unwrap()
            self._unwrap = None
        if profiler is None:
            return None
        if self._recording and not is_recording():
            # Stopping a session that is no longer ours crashes the process.
            self._over()
            raise RuntimeError("another profiler took over in the middle of the window")
        if not self._recording and not (self._starting and is_recording()):
            # Only prepared: a trace must be started before it can be stopped, or Kineto stays armed.
            self._starting = True
            profiler.start_trace()
        path = self.new_path() if keep else None
        written: Future[Path] | None = None
        if path is not None and (background := _background_stop(self.config)) is not None:
            _synchronize(profiler)
            written = background.begin(path)
        if written is None:
            began_s = perf_counter()
            profiler.stop_trace()
            stop_s = perf_counter() - began_s
        self._over()
        if path is not None and written is None:
            lines = _call_lines(profiler, _CALL_LINES_RATIO * stop_s) if self.config.with_stack else None
            written = Future()
            write_trace(path, lambda: _export(profiler, path, lines), written)
        return written

    def _end_at_exit(self) -> None:
        """A profiler that is on when the interpreter ends crashes it."""
        with suppress_exceptions():
            self.stop(False)

    def _over(self) -> None:
        atexit.unregister(self._end_at_exit)
        self._profiler, self._starting, self._recording = None, False, False

    def _enter_step(self, batch: int) -> None:
        self._step = record_function(f"ProfilerStep#{batch}")
        self._step.__enter__()  # type: ignore[no-untyped-call]

    def _leave_step(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)


def _call_lines(profiler: Any, limit_s: float) -> CallLines | None:
    """The lines at which user code called; None if this torch does not say them."""
    with suppress_exceptions():  # lines are then those at which functions begin
        return read_call_lines(profiler.profiler.kineto_results.experimental_event_tree(), limit_s=limit_s)
    return None


def _export(profiler: Any, path: Path, lines: CallLines | None) -> None:
    profiler.export_chrome_trace(str(path))
    with suppress_exceptions():
        if lines is not None:
            add_call_lines(path, lines)


def _synchronize(profiler: Any) -> None:
    """Wait for the device, as ``torch.autograd.profiler.profile`` does before it ends."""
    device = profiler.profiler.use_device
    synchronize = getattr(getattr(torch, device, None), "synchronize", None) if device else None
    if synchronize is not None:
        synchronize()


class ForeignProfilers:
    """Notices from :meth:`watch` to :meth:`unwatch` that somebody else is about to use torch.profiler.

    A process has room for one Kineto session. A second one that starts inside ours raises in the user's code, or
    crashes the process when ours is stopped afterwards; and torch does not say whether one is being prepared. All ways
    of starting one go through ``torch.autograd.profiler.profile._prepare_trace`` (read in torch 2.13), which is wrapped
    while windows are planned. On other threads than the training's it only waits until our trace is written.

    Args:
        on_foreign: Called on the main thread, before the other profiler is prepared.
    """

    def __init__(self, on_foreign: Callable[[], None]) -> None:
        self._on_foreign = on_foreign
        self._ours = False
        self._thread = threading.get_ident()
        self._undo: Callable[[], None] | None = None

    def watch(self) -> None:
        """Begin; without the method in this version of torch nothing is watched."""
        if self._undo is None and hasattr(torch_profiler.profile, _METHOD):
            self._undo = replace_method(torch_profiler.profile, _METHOD, self._prepare_trace)

    def unwatch(self) -> None:
        """End. If somebody wrapped the method after us, ours stays in the chain and only passes on."""
        if self._undo is not None:
            self._undo()
        self._undo = None

    def _prepare_trace(self, original: Callable[[Any], Any], profiler: Any) -> Any:
        with suppress_exceptions():  # they get their profiler whatever becomes of ours
            if not self._ours:
                wait_until_written()
            if self._undo is not None and not self._ours and threading.get_ident() == self._thread:
                self._on_foreign()
        return original(profiler)

    @contextmanager
    def own_profiler(self) -> Iterator[None]:
        """What is prepared inside is our own."""
        self._ours = True
        try:
            yield
        finally:
            self._ours = False
