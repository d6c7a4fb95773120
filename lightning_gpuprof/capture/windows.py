"""Decides at which step boundary a trace window is prepared, started and stopped; the tracing itself is a backend's.

A step belongs to a window when ``global_step`` at its start lies in ``[start, stop]``, so that windows survive
gradient accumulation (several batches with one ``global_step``) and resuming.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol

from lightning_gpuprof.capture.step_clock import NEVER
from lightning_gpuprof.model.config import PlannedWindow
from lightning_gpuprof.model.journal import WindowRecord

MAX_WINDOW_NS = 30_000_000_000
"""A window is closed after 30 s, however many steps it still wants: nobody reads longer traces."""

MAX_WARMUP_BATCHES = 50
"""Batches after which a window in warm-up is given up, beside 30 s: ``global_step`` does not advance."""

STEADY_LOOKBACK = 10
"""Steady: the median period of the last so many steps is within 15 % of that of as many before."""
STEADY_TOLERANCE = 0.15
STEADY_AT_THE_LATEST = 100


class Tracer(Protocol):
    """Records one trace at a time."""

    def prepare(self) -> None:
        """Begin to trace and discard."""
        ...

    def start(self, batch: int) -> None:
        """Begin to keep, from the step of this batch on."""
        ...

    def next_step(self, batch: int) -> None:
        """A step of an open window has ended, the one of this batch begins."""
        ...

    def end_step(self) -> None:
        """A step of an open window has ended and none follows at once."""
        ...

    def stop(self, keep: bool) -> Path | None:
        """End; returns the trace's file if it is kept, and raises if it cannot be written."""
        ...


class WindowController:
    """Opens and closes windows at step boundaries.

    Args:
        planned: The windows in order, or None for one as soon as the run is steady.
        active: Steps of a window that is not planned by its stop.
        every_n_steps: Also a window at every multiple of so many optimizer steps, or None.
        warmup: Steps before a window that are traced and discarded.
        max_windows: At most so many are recorded.
        max_bytes: After a trace larger than this no more are recorded.
        tracer: Records.
        on_window: Takes the record of each finished window.
        on_profiled: Told when steps begin and end to be traced.
        now: Monotonic clock in ns.
    """

    def __init__(
        self,
        planned: Sequence[PlannedWindow] | None,
        *,
        active: int,
        every_n_steps: int | None,
        warmup: int,
        max_windows: int,
        max_bytes: int,
        tracer: Tracer,
        on_window: Callable[[WindowRecord, Path | None], None],
        on_profiled: Callable[[bool], None],
        now: Callable[[], int],
    ) -> None:
        self._pending: deque[PlannedWindow] = deque(planned or ())
        self._wait_until_steady = planned is None
        self._active = active
        self._every = every_n_steps
        self._cyclic: PlannedWindow | None = None
        self._warmup = warmup
        self._left = max_windows
        self._max_bytes = max_bytes
        self._tracer = tracer
        self._on_window = on_window
        self._on_profiled = on_profiled
        self._now = now
        self._state: Literal["idle", "warming", "open"] = "idle"
        self._opened_ns = 0
        self._opened_batch = 0
        self._first_step = 0
        self._last_boundary_ns = 0
        self._periods: deque[int] = deque(maxlen=2 * STEADY_LOOKBACK)
        self._last_step = 0

    def begin(self, global_step: int) -> int:
        """Training starts at this optimizer step; windows that were passed before a resume are forgotten.

        Returns:
            The ``global_step`` from which on :meth:`at_boundary` wants to be called.
        """
        while self._pending and self._pending[0].stop < global_step:
            self._pending.popleft()
        self._plan_cyclic(global_step)
        return global_step if self._wait_until_steady else self._wake()

    def at_boundary(self, batch: int, global_step: int, now_ns: int) -> int:
        """A step begins.

        Returns:
            The ``global_step`` from which on to be called again.
        """
        self._last_step = global_step
        if self._wait_until_steady:
            self._look_for_steady(global_step, now_ns)
        if self._state == "open":
            window = self._pending[0]
            too_long = now_ns - self._opened_ns > MAX_WINDOW_NS
            if global_step <= window.stop and not too_long:
                self._tracer.next_step(batch)
                return global_step
            self._close("closed after 30 s" if too_long and global_step <= window.stop else "")
        if self._pending and self._left > 0:
            window = self._pending[0]
            if self._state == "idle" and global_step >= window.start - self._warmup:
                self._on_profiled(True)
                self._state = "warming"
                self._opened_ns = now_ns
                self._opened_batch = batch
                self._tracer.prepare()
            elif self._state == "warming" and global_step < window.start and self._takes_too_long(batch, now_ns):
                self._give_up()
            if self._state == "warming" and global_step >= window.start:
                self._tracer.start(batch)
                self._state = "open"
                self._opened_ns = self._now()
                self._first_step = global_step
        return self._wake()

    def at_epoch_end(self) -> None:
        """The epoch's last step is over: what follows belongs to no step, and may take long."""
        if self._state != "open":
            return
        if self._last_step >= self._pending[0].stop:
            self._close("")
        else:
            self._tracer.end_step()

    def end(self, reason: str, global_step: int) -> None:
        """Training is over: an open window is closed and kept, one in warm-up dropped, the unreached are told.

        Args:
            reason: Why training is over.
            global_step: Optimizer steps that were completed.
        """
        if self._state == "open":
            self._close(f"ended early: {reason}" if self._last_step <= self._pending[0].stop - 1 else "")
        elif self._state == "warming":
            self._state = "idle"
            self._on_profiled(False)
            self._tracer.stop(False)
        for window in self._pending:
            if window is self._cyclic:  # nobody asked for this very one
                continue
            why = f"not reached: training ended after {global_step} optimizer steps ({reason})"
            if self._left <= 0:
                why = "not opened: the limit of windows or of their size (trace.max_windows, trace.max_mb) was reached"
            self._on_window(WindowRecord(start_step=window.start, stop_step=window.stop, problem=why), None)
        self._pending.clear()

    def abandon(self) -> None:
        """After a failure: stop tracing without keeping anything."""
        state, self._state = self._state, "idle"
        self._pending.clear()
        self._wait_until_steady = False
        self._cyclic = None
        if state != "idle":
            self._on_profiled(False)
            self._tracer.stop(False)

    def _close(self, problem: str) -> None:
        window = self._pending.popleft()
        if window is self._cyclic:
            self._plan_cyclic(self._last_step + 1)
        self._state = "idle"
        self._left -= 1
        begin = end = self._now()
        path: Path | None = None
        try:
            path = self._tracer.stop(True)
            end = self._now()
            if path is not None and path.stat().st_size > self._max_bytes:
                self._left = 0
        except OSError as error:
            problem = f"the trace could not be written: {error}"
        finally:
            self._on_profiled(False)
        self._on_window(
            WindowRecord(
                start_step=self._first_step,
                stop_step=max(self._first_step, min(window.stop, self._last_step)),
                start_ns=self._opened_ns,
                stop_ns=begin,
                stop_cost_ns=end - begin,
                problem=problem,
            ),
            path,
        )

    def _takes_too_long(self, batch: int, now_ns: int) -> bool:
        allowed = MAX_WARMUP_BATCHES * (self._warmup + 1)
        return batch - self._opened_batch > allowed or now_ns - self._opened_ns > MAX_WINDOW_NS

    def _give_up(self) -> None:
        """Leave a warm-up that leads nowhere: steps that are traced for nothing are steps that do not count."""
        given_up, self._pending = self._pending, deque()
        self._state = "idle"
        try:
            self._tracer.stop(False)
        finally:
            self._on_profiled(False)
        for window in given_up:
            if window is not self._cyclic:
                why = "not opened: in the warm-up of a window the optimizer step advanced too rarely"
                self._on_window(WindowRecord(start_step=window.start, stop_step=window.stop, problem=why), None)

    def _plan_cyclic(self, global_step: int) -> None:
        """Plan the window at the next multiple that can be warmed up for and that no other window is at."""
        if self._every is None:
            return
        start = -(-max(global_step + self._warmup, 1) // self._every) * self._every
        while any(w.start - self._warmup <= start + self._active - 1 and start <= w.stop for w in self._pending):
            start += self._every
        self._cyclic = PlannedWindow(start=start, stop=start + self._active - 1)
        self._pending = deque(sorted([*self._pending, self._cyclic], key=lambda w: w.start))

    def _wake(self) -> int:
        if self._state != "idle" or self._wait_until_steady:
            return 0
        if not self._pending or self._left <= 0:
            return NEVER
        return max(0, self._pending[0].start - self._warmup)

    def _look_for_steady(self, global_step: int, now_ns: int) -> None:
        if self._last_boundary_ns:
            self._periods.append(now_ns - self._last_boundary_ns)
        self._last_boundary_ns = now_ns
        if len(self._periods) < 2 * STEADY_LOOKBACK:
            return
        periods = list(self._periods)
        before = statistics.median(periods[:STEADY_LOOKBACK])
        after = statistics.median(periods[STEADY_LOOKBACK:])
        if abs(after - before) <= STEADY_TOLERANCE * before or global_step >= STEADY_AT_THE_LATEST:
            self._wait_until_steady = False
            start = global_step + self._warmup
            self._pending.appendleft(PlannedWindow(start=start, stop=start + self._active - 1))
            if self._cyclic is not None:
                self._pending.remove(self._cyclic)
                self._plan_cyclic(global_step)
