"""The windows of one run, put together: when they open, what records them, who analyses them, and who goes first."""

import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from lightning_gpuprof.capture.background_stop import wait_until_written
from lightning_gpuprof.capture.measured_stage import MeasuredStage
from lightning_gpuprof.capture.nsight import CudaProfilerSwitch, CudaProfilerTracer, active_tool
from lightning_gpuprof.capture.output_folder import JOURNAL_NAME
from lightning_gpuprof.capture.slow_steps import Slowdown, SlowSteps
from lightning_gpuprof.capture.step_clock import NEVER, ClosedStep
from lightning_gpuprof.capture.torch_tracer import ForeignProfilers, TorchTracer, other_profiler
from lightning_gpuprof.capture.trace_jobs import TraceJobs
from lightning_gpuprof.capture.triggers import SIGNAL_NAME, TRIGGER_FILE, RequestSignal, SharedPlan, TriggerFile
from lightning_gpuprof.capture.windows import Tracer, WindowController
from lightning_gpuprof.model.config import TraceConfig
from lightning_gpuprof.model.journal import DISTURBED, PROFILED, Notice, WindowRecord
from lightning_gpuprof.model.run_folders import TRACE_ENDING

PART = "windows"
"""What the fence calls them."""

ON_REQUEST = "windows on request"
"""What the fence calls those that are not planned."""


class WindowRecording:
    """Opens, records and hands over the windows of a run. No method raises.

    Args:
        measured: The stage; its steps are marked, and its actions wrapped while a window is open.
        environ: Environment variables of the process.
        switch: Has the tool record that ``environ`` names, if it names one.
    """

    def __init__(
        self,
        measured: MeasuredStage,
        *,
        environ: Mapping[str, str] = os.environ,
        switch: CudaProfilerSwitch | None = None,
    ) -> None:
        options = self._options = measured.options
        clock = self._clock = measured.clock
        folder = self._folder = measured.journal.folder
        rank = self._rank = measured.trainer.global_rank
        self._world_size = measured.trainer.world_size
        self._trainer = measured.trainer
        self._tap = measured.tap
        self._fence = measured.fence
        self._post = measured.journal.post
        self._environ = environ
        self._switch = switch or CudaProfilerSwitch()
        self._tool = active_tool(environ)
        self._jobs = TraceJobs()
        self._foreign = ForeignProfilers(self._make_room)
        self._controller: WindowController | None = None
        self._wake = NEVER
        self._tracing = False
        self._disturbed = False
        """Steps are marked because the analysis of a window runs beside them."""
        traced = options.trace is not None and rank in options.trace.ranks
        self._slow_steps = SlowSteps(clock.slots) if traced and options.trace and options.trace.on_slow_step else None
        self._file = TriggerFile(folder / TRIGGER_FILE) if traced else None
        # Also on ranks that open no windows: a signal to all processes of a job must not end them.
        self._signal = RequestSignal(lambda: self._ask(f"requested by {SIGNAL_NAME}")) if options.trace else None
        self._shared: SharedPlan | None = None
        self._signal_installed = False
        self._early_requests: deque[str] = deque(maxlen=8)
        """Requests while there was no controller to take them."""
        self._ended = False
        """There were windows, and there will be no more."""
        self._no_windows_reason = ""
        """Why there are no windows, for somebody who asks for one."""

    def install_signal_handler(self) -> None:
        """Answer requests by signal from now on; before workers are forked, so that they inherit the handler."""
        if self._signal is None or self._signal_installed:
            return
        self._signal_installed = True
        with self._fence.around(ON_REQUEST):
            if why_not := self._signal.install():
                self._post(Notice(part=ON_REQUEST, message=why_not))

    def begin(self, global_step: int, ends_at: Callable[[], tuple[int, str] | None] = lambda: None) -> int:
        """Training starts.

        Args:
            global_step: At this optimizer step.
            ends_at: Gives the optimizer steps that it cannot pass, and what sets them, if that is known.

        Returns:
            The ``global_step`` from which on :meth:`at_boundary` wants to be called.
        """
        self.install_signal_handler()
        with self._fence.around(PART):
            self._check_ranks()
            controller = self._plan()
            if controller is not None:
                with self._fence.around("windows: the end of training"):
                    self._warn_unreachable(ends_at())
                ask = partial(controller.request, by_person=True) if self._shared is None else self._shared.wish
                while self._early_requests:
                    ask(self._early_requests.popleft())
                self._wake = controller.begin(global_step)
                self._controller = controller
        return self._wake

    def at_boundary(self, batch: int, global_step: int, now_ns: int) -> int:
        """A step begins.

        Args:
            batch: Index of the step's batch.
            global_step: Optimizer steps before it.
            now_ns: The clock.

        Returns:
            The ``global_step`` from which on to be called again.
        """
        controller = self._controller
        if controller is not None and (global_step >= self._wake or controller.is_due or controller.writing):
            with self._fence.around(PART):
                self._wake = controller.at_boundary(batch, global_step, now_ns)
            self._drop_if_failed()
        if self._disturbed and not self._tracing and not self._is_disturbed():
            self._disturbed = False
            self._clock.set_standing_flags(0)
        return self._wake

    def watch(self, steps: Sequence[ClosedStep]) -> None:
        """Look for slow steps, in those that ended since the last call, for requests, and for a window that is due.

        On a background thread, twice a second.
        """
        if not self._fence.failed(ON_REQUEST):
            with self._fence.around(ON_REQUEST):
                self._look_for_requests(steps)
        if (controller := self._controller) is not None and controller.is_due:
            self._clock.wake()  # also again, if it was asked before the clock listened

    def _look_for_requests(self, steps: Sequence[ClosedStep]) -> None:
        if self._slow_steps is not None:
            self._look_for_slow_steps(self._slow_steps, steps)
        if self._file is not None and self._file.touched():
            self._ask("requested by file")
        controller = self._controller
        if controller is None:
            if self._no_windows_reason and self._early_requests:
                self._fence.report(ON_REQUEST, f"{self._early_requests[0]}, but {self._no_windows_reason}")
        elif self._shared is not None and (plan := self._shared.look(steps)) is not None:
            start, reason = plan
            controller.request(reason, by_person=reason.startswith("requested"), start=start)

    def _look_for_slow_steps(self, slow_steps: SlowSteps, steps: Sequence[ClosedStep]) -> None:
        ended = self._ended
        if (slowdown := slow_steps.look(steps)) is not None:
            self._ask(_slow_step_reason(slowdown), by_person=False)
        if ended:
            self._slow_steps = None
            if not slow_steps.had_band:
                self._post(Notice(part="trace.on_slow_step", message="too few ordinary steps to recognise slow ones"))

    def start(self) -> None:
        """The user's code asks for a window."""
        with self._fence.around(ON_REQUEST):
            self._ask("requested by start()")

    def stop(self) -> None:
        """The user's code ends the open window with the step that runs."""
        if (controller := self._controller) is not None:
            with self._fence.around(PART):
                controller.cut()

    @property
    def tracing(self) -> bool:
        """Whether a window, or its warm-up, is open."""
        return self._tracing

    def interrupt(self, why: str) -> None:
        """What follows belongs to no step: validation beside one, or the end of an epoch."""
        if (controller := self._controller) is not None:
            with self._fence.around(PART):
                controller.interrupt(why)
            self._drop_if_failed()

    def end(self, reason: str) -> None:
        """No more windows; a second call does nothing.

        A signal is still taken, until :meth:`unwatch`: one that comes a moment too late must not end the process, which
        may be writing its last checkpoint.
        """
        controller = self._controller
        self._wake = NEVER
        if controller is not None:
            self._ended = True
            with self._fence.around(PART):
                controller.end(reason, self._clock.counters()[1])
            self._abandon_if_failed(controller)
        self._controller = None  # not after Ctrl-C in between: a second call waits for the trace and records it

    def unwatch(self) -> None:
        """Torch and the process's signals are left as they were found, once nothing is being written."""
        ends = (wait_until_written, self._foreign.unwatch, self._restore_signal)
        for end in 2 * ends:  # what failed once is tried once more
            with self._fence.around("torch.profiler"):
                end()

    def wait(self, timeout_s: float) -> None:
        """Wait until all traces are compressed and analysed, at most so long."""
        running = self._jobs.wait(timeout_s)
        if running:
            self._fence.report(
                PART, f"{running} trace(s) still being analysed; run `gpuprof report {self._folder}` later"
            )

    def _restore_signal(self) -> None:
        if self._signal is not None:
            with self._fence.around(ON_REQUEST):
                self._signal.restore()

    def _ask(self, reason: str, *, by_person: bool = True) -> None:
        """From any thread, and from a signal handler."""
        controller = self._controller
        if controller is not None and self._shared is not None:
            self._shared.wish(reason)
        elif controller is not None:
            controller.request(reason, by_person=by_person)
            self._clock.wake()
        elif by_person:
            self._early_requests.append(reason)

    def _plan(self) -> WindowController | None:
        options = self._options
        config = options.trace
        if config is None or config.every_kernel or self._rank not in config.ranks:
            why = f"rank {self._rank} is not in trace.ranks"
            if config is None or config.every_kernel:
                why = "trace=False" if config is None else "trace.every_kernel has CUPTI"
            self._no_windows_reason = f"no windows are opened: {why}"
            return None
        wanted = options.windows != () or config.every_n_steps is not None or config.on_slow_step
        other = other_profiler(self._tap.inner, self._environ) if self._tool is None else ""
        if other:
            self._no_windows_reason = f"{other} is in use and a process has room for one tracer: no windows are opened"
            if wanted:
                self._fence.report(PART, self._no_windows_reason)
            return None
        if self._tool is None:
            self._foreign.watch()
        else:
            message = f"{self._tool} records them: their traces are in its report, not here"
            self._post(Notice(part=PART, message=message))
        shared = self._shared = self._shared_plan(config)
        follows = shared is not None and not shared.leads
        if follows:
            self._file = self._slow_steps = None  # all ranks of a job are slow at the same steps
        return WindowController(
            () if follows and options.windows is None else options.windows,
            active=config.active,
            every_n_steps=config.every_n_steps,
            warmup=config.warmup if self._tool is None else 0,
            max_windows=config.max_windows,
            max_bytes=config.max_mb * 1_000_000,
            max_batches=config.max_steps,
            max_ns=round(config.max_s * 1e9),
            tracer=self._tracer(config),
            on_window=self._window_closed,
            on_profiled=self._mark,
            on_written=self._clock.wake,
            now=time.perf_counter_ns,
            on_steady=None if shared is None else partial(shared.wish, "steady"),
        )

    def _shared_plan(self, config: TraceConfig) -> SharedPlan | None:
        """None where no other traced rank writes into this folder."""
        there = [rank for rank in config.ranks if (self._folder / JOURNAL_NAME.format(rank=rank)).exists()]
        if len(there) < 2:
            return None
        return SharedPlan(self._folder, leads=self._rank == min(there), warmup=config.warmup)

    def _tracer(self, config: TraceConfig) -> Tracer:
        if self._tool is not None:
            return CudaProfilerTracer(self._switch)
        return TorchTracer(
            config,
            new_path=lambda: self._folder / f"rank{self._rank}.{time.time_ns()}.plain.json",
            wrap_actions=lambda wrap: self._tap.wrap_actions("main", wrap),
            preparing=self._foreign.own_profiler,
            model=self._trainer.lightning_module,
        )

    def _check_ranks(self) -> None:
        config = self._options.trace
        outside = [r for r in config.ranks if r >= self._world_size] if config is not None and not self._rank else []
        if outside:
            self._fence.report(
                "trace.ranks",
                f"rank {', '.join(map(str, outside))} is not in this run, whose ranks are 0 to {self._world_size - 1}"
                if self._world_size > 1
                else f"rank {', '.join(map(str, outside))} is not in this run, which has rank 0 only",
            )

    def _warn_unreachable(self, ends_at: tuple[int, str] | None) -> None:
        """Warn at the start of what is known then, and not hours later."""
        if ends_at is None:
            return
        steps, cause = ends_at
        for window in self._options.windows or ():
            if window.start >= steps:
                self._fence.report(
                    f"window {window.start}", f"will not be reached: training ends at optimizer step {steps} ({cause})"
                )

    def _is_disturbed(self) -> bool:
        """Whether a trace is being written or analysed, which competes with the training for the CPUs."""
        return self._jobs.is_disturbing() or (self._controller is not None and self._controller.writing)

    def _mark(self, profiled: bool) -> None:
        """Mark the steps under a window, and those after it."""
        self._tracing = profiled
        self._disturbed = not profiled and self._is_disturbed()
        self._clock.set_standing_flags(PROFILED if profiled else DISTURBED if self._disturbed else 0)

    def _window_closed(self, window: WindowRecord, plain: Path | None) -> None:
        if plain is not None:
            stem = plain.name.removesuffix(".plain.json")
            window.file = f"{stem}{TRACE_ENDING}"
            self._jobs.submit(
                plain,
                self._folder / window.file,
                self._folder / f"{stem}.facts.json",
                window.start_step,
                window.stop_step,
                on_done=self._clock.wake,
            )
            self._mark(self._tracing)
        elif window.problem.startswith("not ") and any(word in window.reason for word in ("planned", "requested")):
            self._fence.report(f"window {window.start_step}", window.problem)
        self._post(window)

    def _make_room(self) -> None:
        """The training code is about to start torch.profiler itself: ours gives way, for the rest of the run."""
        controller = self._controller
        if controller is None:
            return
        self._no_windows_reason = "the training code starts torch.profiler itself: no (more) windows are opened"
        if controller.has_plans or self._slow_steps is not None:
            self._fence.report(PART, self._no_windows_reason)
            self._drop_if_failed()
        else:
            controller.collect_finished_trace(wait=True)
            self._controller = None
            self._wake = NEVER

    def _drop_if_failed(self) -> None:
        """After a failure was reported there are no windows any more."""
        if not self._fence.failed(PART):
            return
        controller, self._controller = self._controller, None
        self._wake = NEVER
        if controller is not None:
            self._abandon_if_failed(controller)

    def _abandon_if_failed(self, controller: WindowController) -> None:
        if self._fence.failed(PART):
            for _ in range(2):  # what failed once is tried once more: nothing may be traced any longer
                with self._fence.around("windows: stopping"):
                    controller.abandon()


def _slow_step_reason(slowdown: Slowdown) -> str:
    return f"slow step: {slowdown.period_ns / 1e6:.3g} ms against {slowdown.usual_ns / 1e6:.3g} ms"
