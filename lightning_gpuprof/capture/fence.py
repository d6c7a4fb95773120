"""Keeps a failure of ours away from training: warned once, that part switched off, noted for the report."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

_PACKAGE = Path(__file__).parents[1]


def warn(text: str) -> None:
    """A ``RuntimeWarning``; where warnings are errors, a line on the error stream, because training must go on."""
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    except Exception as error:
        if must_propagate(error):
            raise
        with contextlib.suppress(Exception):  # no error stream either
            print(text, file=sys.stderr)


def debugging() -> bool:
    """Whether failures of ours go through all fences, for developers."""
    return bool(os.environ.get("GPUPROF_DEBUG"))


def warn_of_fabric() -> None:
    """Say that loops which are the user's own are not measured, and what to write into them instead."""
    warn(
        "gpuprof: nothing is measured: GpuProfiler needs Lightning's Trainer, and this is Fabric. Trace three steps "
        "instead: put your loop below `with torch.profiler.profile(schedule=torch.profiler.schedule(wait=10, warmup=2, "
        "active=3, repeat=1), on_trace_ready=lambda p: p.export_chrome_trace('trace.json')) as p:`, call p.step() "
        "after each batch, and run: gpuprof trace trace.json"
    )


_WORKER_DIED = "DataLoader worker (pid"
"""How torch begins what its handler of SIGCHLD raises, wherever the main thread happens to be (torch 2.4 to 2.13)."""


def must_propagate(error: BaseException) -> bool:
    """Whether an error only happened to strike inside our code and has to end the run as it would without us."""
    if not isinstance(error, Exception):
        return True
    return (isinstance(error, RuntimeError) and str(error).startswith(_WORKER_DIED)) or _of_signal_handler(error)


def _of_signal_handler(error: BaseException) -> bool:
    """Whether a handler of the user's raised it, such as one of a time limit, which may strike anywhere."""
    trace, codes = error.__traceback__, set()
    while trace is not None:
        codes.add(trace.tb_frame.f_code)
        trace = trace.tb_next
    handlers = (signal.getsignal(number) for number in signal.valid_signals())
    return any(getattr(getattr(one, "__func__", one), "__code__", None) in codes for one in handlers)


class _ExceptionSuppressor:
    """What :func:`suppress_exceptions` gives."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            return error is not None and not must_propagate(error)
        except Exception as own:
            if must_propagate(own):
                raise
            return True


_SUPPRESSOR = _ExceptionSuppressor()


def suppress_exceptions() -> _ExceptionSuppressor:
    """As ``contextlib.suppress(Exception)``, in the training's thread: what has to end the run comes through."""
    return _SUPPRESSOR


def logger_part(logger: object) -> str:
    """What a trainer's logger is called where it fails."""
    return f"logger {type(logger).__name__}"


class Fence:
    """Collects the failures of a run's parts.

    Args:
        note: Takes part and message of each first failure.
    """

    def __init__(self, note: Callable[[str, str], None]) -> None:
        self._note = note
        self._reported: set[str] = set()
        self._holding = False
        self.held: BaseException | None = None
        """What has to end the run and waits in a block of :meth:`holding`."""

    def report(self, part: str, message: str) -> None:
        """Warn about a part once and note it for the report.

        Args:
            part: Name of the part.
            message: What happened, and what follows from it.
        """
        if part in self._reported:
            return
        self._reported.add(part)
        try:
            self._note(part, message)
        finally:
            warn(f"gpuprof: {part}: {message}")

    def failed(self, part: str) -> bool:
        """Whether the part has failed, and that was reported."""
        return part in self._reported

    @contextlib.contextmanager
    def deferring(self) -> Iterator[None]:
        """In this block all is put back: a worker that dies in the middle of it ends the run when that is done.

        Raises:
            BaseException: What a worker's death raised in the block.
        """
        outermost, self._holding, held = not self._holding, True, None
        try:
            yield
        finally:
            if outermost:
                self._holding, held, self.held = False, self.held, None
        if held is not None:
            raise held

    def _hold(self, error: BaseException) -> bool:
        if not self._holding or not isinstance(error, Exception):
            return False
        self.held = self.held or error
        return True

    def around(self, part: str) -> FencedBlock:
        """Run something of ours; whatever it raises ends here. ``GPUPROF_DEBUG`` lets it through, for developers."""
        return FencedBlock(self, part)


def _place(trace: TracebackType | None) -> str:
    """File and line of ours that raised, for whoever reports the defect; nothing where other code did."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    file = Path(trace.tb_frame.f_code.co_filename)
    return f" ({file.relative_to(_PACKAGE).as_posix()}:{trace.tb_lineno})" if _PACKAGE in file.parents else ""


@dataclass(eq=False, repr=False, slots=True)
class FencedBlock:
    """What :meth:`Fence.around` gives: no generator, because one that fails before its ``yield`` raises."""

    _fence: Fence
    _part: str

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None:
            return False
        if must_propagate(error):
            return self._fence._hold(error)
        if debugging():
            return False
        with suppress_exceptions():  # training goes on even if the warning fails
            message = f"switched off after {type(error).__name__}: {error}{_place(trace)}"
            self._fence.report(self._part, message)
        return True
