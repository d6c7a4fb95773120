"""The windows of one run, put together: when they open, what records them, who analyses them, and who goes first."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from lightning_gpuprof.capture.fence import Fence
from lightning_gpuprof.capture.foreign_profilers import ForeignProfilers
from lightning_gpuprof.capture.profiler_tap import ProfilerTap
from lightning_gpuprof.capture.step_clock import NEVER, StepClock
from lightning_gpuprof.capture.torch_tracer import TorchTracer, other_profiler
from lightning_gpuprof.capture.trace_jobs import TraceJobs
from lightning_gpuprof.capture.windows import WindowController
from lightning_gpuprof.model.config import Options, TraceConfig
from lightning_gpuprof.model.journal import DISTURBED, PROFILED, WindowRecord

PART = "windows"
"""What the fence calls them."""

MAX_SETTLING_NS = 5_000_000_000
"""The analysis of a window yields to everything else; on a full machine it may wait for the end of the run."""


class WindowRecording:
    """Opens, records and hands over the windows of a run. No method raises.

    Args:
        options: What is asked for.
        folder: Where traces go.
        rank: Global rank.
        clock: Its steps are marked.
        tap: Its actions are wrapped while a window is open.
        fence: Keeps failures in.
        post: Takes the record of each window.
    """

    def __init__(
        self,
        options: Options,
        *,
        folder: Path,
        rank: int,
        clock: StepClock,
        tap: ProfilerTap,
        fence: Fence,
        post: Callable[[WindowRecord], None],
    ) -> None:
        self._options = options
        self._folder = folder
        self._rank = rank
        self._clock = clock
        self._tap = tap
        self._fence = fence
        self._post = post
        self._jobs = TraceJobs()
        self._foreign = ForeignProfilers(self._make_room)
        self._controller: WindowController | None = None
        self._wake = NEVER
        self._settling = False
        """The analysis of a window runs beside the steps."""
        self._settled_at_the_latest_ns = 0

    def begin(self, global_step: int) -> int:
        """Training starts at this optimizer step.

        Returns:
            The ``global_step`` from which on :meth:`at_boundary` wants to be called.
        """
        with self._fence.around(PART):
            self._controller = self._plan()
            if self._controller is not None:
                self._wake = self._controller.begin(global_step)
        return self._wake

    def at_boundary(self, batch: int, global_step: int, now_ns: int) -> int:
        """A step begins.

        Returns:
            The ``global_step`` from which on to be called again.
        """
        if self._controller is not None and global_step >= self._wake:
            with self._fence.around(PART):
                self._wake = self._controller.at_boundary(batch, global_step, now_ns)
            self._drop_if_failed()
        if self._settling and (not self._jobs.running() or now_ns > self._settled_at_the_latest_ns):
            self._settling = False
            self._clock.set_standing_flags(0)
        return 0 if self._settling else self._wake

    def epoch_ended(self) -> None:
        """The epoch's last step is over."""
        if self._controller is not None:
            with self._fence.around(PART):
                self._controller.at_epoch_end()
            self._drop_if_failed()

    def end(self, reason: str) -> None:
        """Training is over; a second call does nothing."""
        controller, self._controller = self._controller, None
        self._wake = NEVER
        if controller is not None:
            with self._fence.around(PART):
                controller.end(reason, self._clock.counters()[1])

    def unwatch(self) -> None:
        """Torch is left as it was found."""
        self._foreign.unwatch()

    def wait(self, timeout_s: float) -> None:
        """Wait until all traces are compressed and analysed, at most so long."""
        running = self._jobs.wait(timeout_s)
        if running:
            self._fence.tell(
                PART, f"{running} trace(s) still being analysed; run `gpuprof report {self._folder}` later"
            )

    def _plan(self) -> WindowController | None:
        options = self._options
        config = options.trace
        if config is None or self._rank not in config.ranks:
            return None
        if options.windows == () and config.every_n_steps is None:
            return None
        other = other_profiler(self._tap.inner, os.environ)
        if other:
            self._fence.tell(PART, f"{other} is in use and a process has room for one tracer: no windows are opened")
            return None
        self._foreign.watch()
        return WindowController(
            options.windows,
            active=config.active,
            every_n_steps=config.every_n_steps,
            warmup=config.warmup,
            max_windows=config.max_windows,
            max_bytes=config.max_mb * 1_000_000,
            tracer=self._tracer(config),
            on_window=self._window_closed,
            on_profiled=self._mark,
            now=time.perf_counter_ns,
        )

    def _tracer(self, config: TraceConfig) -> TorchTracer:
        return TorchTracer(
            config,
            new_path=lambda: self._folder / f"rank{self._rank}.{time.time_ns()}.plain.json",
            wrap_actions=lambda wrap: self._tap.wrap_actions("train", wrap),
            preparing=self._foreign.ours,
        )

    def _mark(self, profiled: bool) -> None:
        """Mark the steps under a window, and then those beside its analysis, which competes for the CPUs."""
        self._settling = not profiled
        self._settled_at_the_latest_ns = time.perf_counter_ns() + MAX_SETTLING_NS
        self._clock.set_standing_flags(PROFILED if profiled else DISTURBED)

    def _window_closed(self, window: WindowRecord, plain: Path | None) -> None:
        if plain is not None:
            stem = plain.name.removesuffix(".plain.json")
            window.file = f"{stem}.pt.trace.json.gz"
            facts = self._folder / f"{stem}.facts.json"
            self._jobs.submit(plain, self._folder / window.file, facts, window.start_step, window.stop_step)
        elif window.problem.startswith("not ") and self._options.windows is not None:
            self._fence.tell(f"window {window.start_step}", window.problem)
        self._post(window)

    def _make_room(self) -> None:
        """The training code is about to start torch.profiler itself: ours gives way, for the rest of the run."""
        if self._controller is not None:
            self._fence.tell(PART, "the training code starts torch.profiler itself: no (more) windows are opened")
            self._drop_if_failed()

    def _drop_if_failed(self) -> None:
        """After something was told about windows there are none any more."""
        if not self._fence.failed(PART):
            return
        controller, self._controller = self._controller, None
        self._wake = NEVER
        if controller is not None:
            with self._fence.around("windows: stopping"):
                controller.abandon()
