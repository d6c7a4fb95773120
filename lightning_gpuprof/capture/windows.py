"""Decides at which step boundary a trace window is prepared, started and stopped; the tracing itself is a backend's.

A step belongs to a window when ``global_step`` at its start lies in ``[start, stop]``, so that windows survive
gradient accumulation (several batches with one ``global_step``) and resuming.
"""

import statistics
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import KW_ONLY, InitVar, dataclass
from pathlib import Path
from typing import Literal, Protocol

import msgspec
from msgspec.structs import replace

from lightning_gpuprof.capture.step_clock import NEVER
from lightning_gpuprof.model.config import PlannedWindow
from lightning_gpuprof.model.journal import WindowRecord

MAX_WARMUP_BATCHES = 50
"""Batches for each optimizer step of a warm-up after which it is given up: ``global_step`` does not advance."""

STEADY_LOOKBACK = 10
"""Steady: the median step time of the last so many steps is within 15 % of that of as many before."""
STEADY_TOLERANCE = 0.15
STEADY_AT_THE_LATEST = 100
"""Optimizer steps of this run after which it is called steady in any case."""
STEADY_AFTER_S = 2.0
"""Not before: to trace and to analyse takes about a second, which a fit of a few tenths is not worth."""

NO_BUDGET = "not opened: the limit of windows or of their size (trace.max_windows, trace.max_mb) was reached"


class Tracer(Protocol):
    """Records one trace at a time."""

    def prepare(self) -> None:
        """Begin to trace and discard."""

    def start(self, batch: int) -> None:
        """Begin to keep, from the step of this batch on."""

    def next_step(self, batch: int) -> None:
        """A step of an open window has ended, the one of this batch begins."""

    def stop(self, keep: bool) -> Future[Path] | None:
        """End; returns the trace's file if it is kept, once it is there, or the ``OSError`` why it will never be.

        None: it is not kept.
        """


class _Window(msgspec.Struct, frozen=True, kw_only=True):
    start: int
    stop: int
    kind: Literal["planned", "steady", "cyclic", "slow", "asked"]
    reason: str


@dataclass(eq=False, repr=False)
class WindowController:
    """Opens and closes windows at step boundaries. For the main thread, but :meth:`request` and :attr:`is_due`.

    Planned windows come first: others only open while enough of ``max_windows`` is left for all of them. Those that a
    person asks for are counted apart, up to ``max_windows`` as well. No window goes on through validation or the end
    of an epoch, which may be of any length and have no boundaries at which to look at the caps.
    """

    planned: InitVar[Sequence[PlannedWindow] | None]
    """The windows in order, or None for one as soon as the run is steady."""
    _: KW_ONLY
    active: int
    """Steps of a window that is not planned by its stop."""
    every_n_steps: InitVar[int | None]
    """Also a window at every multiple of so many optimizer steps, or None."""
    warmup: int
    """Steps before a window that are traced and discarded."""
    max_windows: InitVar[int]
    """At most so many are recorded."""
    max_bytes: int
    """After a trace larger than this no more are recorded."""
    max_batches: int
    """A window is closed after so many batches."""
    max_ns: int
    """A window is closed after so long."""
    tracer: Tracer
    on_window: Callable[[WindowRecord, Path | None], None]
    """Takes the record of each finished window, and of each that was wanted and not opened."""
    on_profiled: Callable[[bool], None]
    """Called when steps begin and end to be traced."""
    on_written: Callable[[], None]
    """Called, on any thread, when a trace that was being written is there: :meth:`collect_finished_trace` is due."""
    now: Callable[[], int]
    """Monotonic clock in ns."""
    on_steady: Callable[[], None] | None = None
    """Called when the run is steady, in place of a window there: it is to ask for one."""

    def __post_init__(
        self, planned: Sequence[PlannedWindow] | None, every_n_steps: int | None, max_windows: int
    ) -> None:
        self._pending: deque[_Window] = deque(
            _Window(start=w.start, stop=w.stop, kind="planned", reason="planned") for w in planned or ()
        )
        """In order; the first is the one that is warming up or open."""
        self._denied: list[_Window] = []
        """Planned, but there is no budget left for them."""
        self._wait_until_steady = planned is None
        self._every = every_n_steps
        self._left = max_windows
        self._left_asked = max_windows
        self._being_written: tuple[WindowRecord, Future[Path]] | None = None
        self._state: Literal["idle", "warming", "open"] = "idle"
        self._opened_ns = 0
        self._opened_batch = 0
        self._warmup_batch: int | None = None
        """At which the first warm-up for the next window began, if there was one."""
        self._first_step = 0
        self._traced_step = 0
        self._first_boundary_ns = self._first_batch = 0
        self._last_boundary_ns = 0
        self._periods: deque[int] = deque(maxlen=2 * STEADY_LOOKBACK)
        self._looks_later = False
        """Steps are too short to look at each before :data:`STEADY_AFTER_S`; the caller asks :attr:`is_due`."""
        self._last_step = 0
        self._began_at_step = 0
        self._requests: deque[tuple[str, bool, int]] = deque()
        self._refused: set[str] = set()
        """Kinds of windows for which there was no budget: that is said once."""

    def request(self, reason: str, *, by_person: bool, start: int = 0) -> None:
        """Ask for a window at the next boundaries; callable from any thread and from a signal handler.

        The first window that starts after the request answers it: one of its own, or one that is due anyway before
        that would be over. The caller sees to it that :meth:`at_boundary` is called once :attr:`is_due`.

        Args:
            reason: For the window's record.
            by_person: Somebody asked, as opposed to something that was noticed.
            start: First step, where that is still to come.
        """
        self._requests.append((reason, by_person, start))

    @property
    def is_due(self) -> bool:
        """Whether :meth:`at_boundary` is to be called next: for a request, or because short steps went on long enough.

        Callable from any thread.
        """
        waits = self._looks_later and self._wait_until_steady
        return bool(self._requests) or (waits and self.now() - self._first_boundary_ns >= STEADY_AFTER_S * 1e9)

    @property
    def writing(self) -> bool:
        """Whether the trace of a window that is closed is still being written, or was not taken yet."""
        return self._being_written is not None

    @property
    def has_plans(self) -> bool:
        """Whether a window is open or will open without being asked for."""
        return bool(self._pending) or self._wait_until_steady

    def begin(self, global_step: int) -> int:
        """Training starts at this optimizer step; windows that were passed before a resume are recorded as such.

        Returns:
            The ``global_step`` from which on :meth:`at_boundary` wants to be called.
        """
        self._began_at_step = global_step
        while self._pending and self._pending[0].stop < global_step:
            self._report(self._pending.popleft(), f"passed before this run began, at optimizer step {global_step}")
        self._plan_cyclic(global_step)
        self._keep_to_budget()
        return self._wake()

    def at_boundary(self, batch: int, global_step: int, now_ns: int) -> int:
        """A step begins.

        Args:
            batch: Index of the step's batch.
            global_step: Optimizer steps before it.
            now_ns: The clock.

        Returns:
            The ``global_step`` from which on to be called again.
        """
        self._last_step = global_step
        self.collect_finished_trace(wait=False)
        if self._wait_until_steady:
            self._look_for_steady(batch, global_step, now_ns)
        if self._state == "open":
            problem = "" if global_step > self._pending[0].stop else self._limit_reached(batch, now_ns)
            if global_step <= self._pending[0].stop and not problem:
                self._traced_step = global_step
                self.tracer.next_step(batch)
                return global_step
            self._close(problem)
        if self._requests:
            self._plan_requests(global_step)
        if self._state == "idle" and self._pending and global_step >= self._pending[0].start - self.warmup:
            self.collect_finished_trace(
                wait=True
            )  # a process has room for one trace; after a large one there may be no budget
        if self._pending:
            window = self._pending[0]
            if self._state == "idle" and global_step >= window.start - self.warmup:
                self.on_profiled(True)
                self._state = "warming"
                if self._warmup_batch is None:
                    self._warmup_batch = batch
                self.tracer.prepare()
            elif self._state == "warming" and global_step < window.start and self._warmup_takes_too_long(batch):
                self._give_up()
            if self._state == "warming" and global_step >= window.start:
                self.tracer.start(batch)
                self._state = "open"
                self._warmup_batch = None
                self._opened_ns = self.now()
                self._opened_batch = batch
                self._first_step = self._traced_step = global_step
        return self._wake()

    def cut(self) -> None:
        """The step that runs is the last one of an open window; nothing happens where none is open."""
        if self._state == "open":
            self._pending[0] = replace(self._pending[0], stop=min(self._pending[0].stop, self._last_step))

    def interrupt(self, why: str) -> None:
        """What follows belongs to no step, and may take long: close an open window.

        A warm-up begins again at the next boundary, so that the window is not lost.

        Args:
            why: ``validation began`` or ``the epoch ended``.
        """
        if self._state == "open":
            self._close("" if self._last_step >= self._pending[0].stop else f"closed: {why}")
        elif self._state == "warming":
            self._state = "idle"
            try:
                self.tracer.stop(False)
            finally:
                self.on_profiled(False)

    def end(self, reason: str, global_step: int) -> None:
        """Training is over: an open window is closed and kept, one in warm-up dropped, the unreached are reported.

        Args:
            reason: Why training is over.
            global_step: Optimizer steps that were completed.
        """
        if self._state == "open":
            self._close(f"ended early: {reason}" if self._last_step <= self._pending[0].stop - 1 else "")
        elif self._state == "warming":
            self._state = "idle"
            self.on_profiled(False)
            self.tracer.stop(False)
        self.collect_finished_trace(wait=True)
        for window in self._pending:
            self._report(window, f"not reached: training ended after {global_step} optimizer steps ({reason})")
        for window in self._denied:
            self._report(window, NO_BUDGET)
        for asked in self._merge_requests(global_step):
            self._report(asked, f"not reached: training ended after {global_step} optimizer steps ({reason})")
        self._drop_plans()

    def abandon(self) -> None:
        """After a failure, wherever it was: stop tracing without keeping anything."""
        self._state = "idle"
        self._drop_plans()
        self.on_profiled(False)
        try:
            self.tracer.stop(False)
        finally:
            self.collect_finished_trace(wait=True)

    def collect_finished_trace(self, *, wait: bool) -> None:
        """Pass on the trace that was being written, if it is there, or once it is."""
        if self._being_written is None or not (wait or self._being_written[1].done()):
            return
        record, written = self._being_written
        path: Path | None = None
        try:
            path = written.result()
            if path.stat().st_size > self.max_bytes:
                self._left = self._left_asked = 0
        except OSError as error:
            record.problem = f"the trace could not be written: {error}"
        self._being_written = None
        record.written_ns = self.now()
        self._keep_to_budget()
        self.on_window(record, path)

    def _drop_plans(self) -> None:
        self._pending.clear()
        self._denied.clear()
        self._requests.clear()
        self._wait_until_steady = False
        self._every = None

    def _close(self, problem: str) -> None:
        window = self._pending.popleft()
        if window.kind == "cyclic":
            self._plan_cyclic(self._last_step + 1)
        self._state = "idle"
        if window.kind == "asked":
            self._left_asked -= 1
        else:
            self._left -= 1
        begin = self.now()
        try:
            written = self.tracer.stop(True)
        except BaseException:
            self.on_profiled(False)
            raise
        record = WindowRecord(
            start_step=self._first_step,
            stop_step=self._traced_step,
            start_ns=self._opened_ns,
            stop_ns=begin,
            stop_cost_ns=self.now() - begin,
            problem=problem,
            reason=window.reason,
        )
        if written is not None:
            self._being_written = record, written
            written.add_done_callback(lambda _: self.on_written())
        self.on_profiled(False)
        if written is None:
            self.on_window(record, None)
        self._keep_to_budget()
        self.collect_finished_trace(wait=False)

    def _limit_reached(self, batch: int, now_ns: int) -> str:
        """Why the open window is closed before its stop; empty if it is not."""
        if batch - self._opened_batch >= self.max_batches:
            return f"closed after {self.max_batches} batches (trace.max_steps)"
        if now_ns - self._opened_ns > self.max_ns:
            return f"closed after {self.max_ns / 1e9:g} s (trace.max_s)"
        return ""

    def _warmup_takes_too_long(self, batch: int) -> bool:
        return self._warmup_batch is not None and batch - self._warmup_batch > MAX_WARMUP_BATCHES * (self.warmup + 1)

    def _give_up(self) -> None:
        """Leave a warm-up that leads nowhere: steps that are traced for nothing are steps that do not count."""
        given_up, self._pending = self._pending, deque()
        self._state = "idle"
        self._warmup_batch = None
        try:
            self.tracer.stop(False)
        finally:
            self.on_profiled(False)
        for window in given_up:
            self._report(window, "not opened: in the warm-up of a window the optimizer step advanced too rarely")

    def _report(self, window: _Window, problem: str) -> None:
        if window.kind != "cyclic":  # nobody asked for this very one
            record = WindowRecord(start_step=window.start, stop_step=window.stop, problem=problem, reason=window.reason)
            self.on_window(record, None)

    def _merge_requests(self, global_step: int) -> list[_Window]:
        """The requests so far as one window, as soon as it can be warmed up for."""
        waiting = [self._requests.popleft() for _ in range(len(self._requests))]
        if not waiting:
            return []
        start = max(global_step + self.warmup, *(at for _, _, at in waiting))
        return [
            _Window(
                start=start,
                stop=start + self.active - 1,
                kind="asked" if any(by_person for _, by_person, _ in waiting) else "slow",
                reason="; ".join(dict.fromkeys(reason for reason, _, _ in waiting)),
            )
        ]

    def _plan_requests(self, global_step: int) -> None:
        for asked in self._merge_requests(global_step):
            first = self._pending[0] if self._pending else None
            if first is not None and (self._state == "warming" or first.start - self.warmup <= asked.stop):
                self._pending[0] = replace(first, reason=f"{first.reason}; {asked.reason}")
            elif (self._left_asked if asked.kind == "asked" else self._unreserved_windows()) > 0:
                self._pending.appendleft(asked)
            elif asked.kind not in self._refused:
                self._refused.add(asked.kind)
                self._report(asked, NO_BUDGET)

    def _plan_cyclic(self, global_step: int) -> None:
        """Plan the window at the next multiple that can be warmed up for and that no other window is at."""
        if self._every is None:
            return
        start = -(-max(global_step + self.warmup, 1) // self._every) * self._every
        while any(w.start - self.warmup <= start + self.active - 1 and start <= w.stop for w in self._pending):
            start += self._every
        self._insert(_Window(start=start, stop=start + self.active - 1, kind="cyclic", reason="every_n_steps"))

    def _insert(self, window: _Window) -> None:
        self._pending = deque(sorted([*self._pending, window], key=lambda w: w.start))

    def _unreserved_windows(self) -> int:
        """What is left for windows that are not planned."""
        reserved = sum(w.kind in ("planned", "steady") for w in self._pending) + self._wait_until_steady
        return self._left - reserved

    def _keep_to_budget(self) -> None:
        """Drop what cannot be opened any more, so that it does not stand before what can."""
        if self._left <= 0:
            self._wait_until_steady = False
        planned = [w for w in self._pending if w.kind == "planned"]
        self._denied += planned[max(0, self._left) :]
        denied = set(map(id, self._denied))
        self._pending = deque(w for w in self._pending if id(w) not in denied)
        if self._unreserved_windows() <= 0:
            self._every = None
            self._pending = deque(w for w in self._pending if w.kind != "cyclic")

    def _wake(self) -> int:
        if self._state != "idle" or self._requests:
            return 0
        if self._wait_until_steady and not self._looks_later:
            return 0
        if not self._pending:
            return NEVER
        return max(0, self._pending[0].start - self.warmup)

    def _look_for_steady(self, batch: int, global_step: int, now_ns: int) -> None:
        if self._state != "idle":  # a window that was asked for; its steps say nothing
            self._last_boundary_ns = 0
            return
        if self._last_boundary_ns:
            self._periods.append(now_ns - self._last_boundary_ns)
        self._last_boundary_ns = now_ns
        if not self._first_boundary_ns:
            self._first_boundary_ns, self._first_batch = now_ns, batch
        batches, took_s = batch - self._first_batch, (now_ns - self._first_boundary_ns) / 1e9
        if took_s < STEADY_AFTER_S:
            # So short that more than enough are over by then; a look takes 10 µs.
            self._looks_later = batches * STEADY_AFTER_S > STEADY_AT_THE_LATEST * took_s
            if self._looks_later:
                self._periods.clear()
                self._last_boundary_ns = 0
            return
        self._looks_later = False
        long_enough = min(global_step - self._began_at_step, batches) >= STEADY_AT_THE_LATEST
        if long_enough or self._is_steady():
            self._wait_until_steady = False
            if self.on_steady is not None:
                self.on_steady()
                return
            start = global_step + self.warmup
            cyclic = any(w.kind == "cyclic" for w in self._pending)
            self._pending = deque(w for w in self._pending if w.kind != "cyclic")
            self._insert(_Window(start=start, stop=start + self.active - 1, kind="steady", reason="steady"))
            if cyclic:
                self._plan_cyclic(global_step)

    def _is_steady(self) -> bool:
        periods = list(self._periods)
        if len(periods) < 2 * STEADY_LOOKBACK:
            return False
        before = statistics.median(periods[:STEADY_LOOKBACK])
        after = statistics.median(periods[STEADY_LOOKBACK:])
        return abs(after - before) <= STEADY_TOLERANCE * before
