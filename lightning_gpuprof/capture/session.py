"""Everything that measures during one stage, put together: begins in ``setup``, ends with a folder of raw data."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from lightning_gpuprof.capture import (
    annotated_regions,
    conditions,
    nvtx_ranges,
    output_folder,
    progress_bars,
    run_end,
    user_hooks,
)
from lightning_gpuprof.capture.compilation import dynamo
from lightning_gpuprof.capture.device_events import backend_for
from lightning_gpuprof.capture.device_spans import DeviceSpans, EventBackend
from lightning_gpuprof.capture.device_steps import DeviceSpanSampler, DeviceSteps
from lightning_gpuprof.capture.fence import Fence, warn
from lightning_gpuprof.capture.host.run_delay import RunDelay
from lightning_gpuprof.capture.input.measurement import InputMeasurement
from lightning_gpuprof.capture.journal_writer import JournalWriter
from lightning_gpuprof.capture.lightning_loops import LoopEdges
from lightning_gpuprof.capture.live_line import Line, LiveLine
from lightning_gpuprof.capture.live_scalars import ScalarLog
from lightning_gpuprof.capture.memory.backend import AllocatorBackend, allocator_for
from lightning_gpuprof.capture.memory.recording import MemoryRecording
from lightning_gpuprof.capture.profiler_tap import ProfilerTap
from lightning_gpuprof.capture.recorder import Recorder
from lightning_gpuprof.capture.stage_samplers import stage_samplers
from lightning_gpuprof.capture.step_clock import NEVER, ClosedStep, StepClock
from lightning_gpuprof.capture.window_recording import WindowRecording
from lightning_gpuprof.model.config import Options
from lightning_gpuprof.model.journal import (
    JOURNAL_VERSION,
    Conditions,
    Footer,
    Header,
    Notice,
    Record,
    Sample,
)
from lightning_gpuprof.model.phases import Stage

if TYPE_CHECKING:
    import lightning.pytorch as pl

HISTORY_TIMEOUT_S = 1.0
"""For what is still being made of the allocator's history when everything else is over."""

FINISHED = "finished"
"""Status of a stage that came to its own end."""

_LOADERS: dict[Stage, str] = {
    "fit": "train_dataloader",
    "validate": "val_dataloaders",
    "test": "test_dataloaders",
    "predict": "predict_dataloaders",
}
"""Attribute of the trainer that holds the loaders of a stage."""


def interrupted_by(error: BaseException) -> str:
    """Status of a stage that was left by an exception."""
    return f"interrupted: {type(error).__name__}"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """When ``fit`` or another stage was entered, on the run's clock and on the calendar."""

    perf_ns: int
    epoch_ns: int

    @classmethod
    def now(cls) -> Entry:
        """This moment."""
        return cls(perf_ns=time.perf_counter_ns(), epoch_ns=time.time_ns())


class Session:
    """One stage under measurement: a call of ``fit``, ``validate``, ``test`` or ``predict``.

    Args:
        trainer: The trainer, in its ``setup``.
        module: The model.
        stage: Which call.
        options: Checked options.
        entry: When it was entered.
        version: Version of this package, for the journal's header.
        on_end: Called when Lightning has done everything else; the caller finishes then.
        events: Gives timed events of the trainer's device, or None where there are none.
        ranges: Makes NVTX ranges.
        allocator: Gives the allocator of the trainer's device, or None where there is none that can be read.
        line: Where to tell of the steps while they go on; None for nowhere.

    Raises:
        OSError: Neither the wanted nor a temporary folder can be written.
    """

    def __init__(
        self,
        trainer: Any,
        module: pl.LightningModule,
        stage: Stage,
        options: Options,
        entry: Entry,
        version: str,
        on_end: Callable[[], None],
        events: Callable[[Any], EventBackend[Any] | None] = backend_for,
        ranges: Callable[[], nvtx_ranges.RangeBackend] = nvtx_ranges.TorchNvtx,
        allocator: Callable[[Any], AllocatorBackend | None] = allocator_for,
        line: Line | None = None,
    ) -> None:
        self._trainer: Any = trainer
        self._line = line
        self._live: LiveLine | None = None
        self._allocator = allocator
        self._memory: MemoryRecording | None = None
        self._events = events
        self._device: DeviceSteps[Any] | None = None
        self.stage = stage
        self._options = options
        self._entry = entry
        self.notices: list[Notice] = []
        self.fence = Fence(self._note)
        self._writer: JournalWriter | None = None
        self._rank = trainer.global_rank

        self._scalars: ScalarLog | None = None
        self._recorder: Recorder | None = None
        self._open = True
        self._steps_began: tuple[float, float] | None = None
        self._steps_ended = False
        self._waited_s = 0.0
        self._conditions_s = 0.0
        self._first_batch = 0
        self._compiled_before: dynamo.Counters | None = None
        self._steps_off = False
        self._run_delay: RunDelay | None = None
        self._opened: list[Callable[[], object]] = [self._close_run_delay]
        try:
            self._begin(module, version, on_end, ranges)
        except BaseException:
            self._open = False
            for close in reversed(self._opened):
                with contextlib.suppress(Exception):
                    close()
            raise

    def _begin(
        self,
        module: pl.LightningModule,
        version: str,
        on_end: Callable[[], None],
        ranges: Callable[[], nvtx_ranges.RangeBackend],
    ) -> None:
        trainer, stage, options, entry = self._trainer, self.stage, self._options, self._entry
        with self.fence.around("torch.compile"):
            self._compiled_before = dynamo.counters_now()
        self._run_delay = RunDelay.of_this_thread()
        self.clock = StepClock(
            start_ns=entry.perf_ns, delay_now=self._run_delay.read_ns if self._run_delay is not None else None
        )
        self._edge_ns = self.clock.cost_of_one_edge_ns()
        inner = self._trainer.profiler
        manual = not module.automatic_optimization
        overridden = user_hooks.overridden_hooks(trainer, module)
        self.tap = ProfilerTap(
            inner,
            self.clock,
            forward=not user_hooks.profiles_nothing(inner),
            manual=manual,
            overridden=overridden,
            does_nothing=lambda key, hook: user_hooks.does_nothing(trainer, key, hook),
            on_failure=lambda error: self._switch_off("actions", error),
            on_end=on_end,
        )
        self._ranges: nvtx_ranges.NvtxRanges | None = None
        if nvtx_ranges.wanted(options.nvtx, os.environ):
            self._ranges = nvtx_ranges.NvtxRanges(
                ranges(),
                manual=manual,
                overridden=overridden,
                wrap_actions=self.tap.wrap_actions,
                on_failure=lambda error: self._switch_off("nvtx", error),
            )
        self._annotations = annotated_regions.Recording(
            self.tap.annotated,
            on_failure=lambda error: self._switch_off("annotated regions", error),
            is_compiling=torch.compiler.is_compiling,
        )
        self._input: InputMeasurement | None = None
        if options.input_pipeline:
            self._input = InputMeasurement(
                lambda: getattr(trainer, _LOADERS[stage]),
                on_failure=lambda error: self._switch_off("input pipeline", error),
                notice=lambda message: self._note("input pipeline", message),
            )
        self._edges = LoopEdges(
            trainer,
            stage,
            self.clock,
            self.tap,
            on_run=lambda: self._windows.hear_signals(),
            on_start=lambda: self._evaluation_starts(module),
            on_validation=lambda: self._windows.validation_begins(),
            on_epoch_end=self._epoch_ended,
            on_exception=self._left_by,
            on_failure=self._steps_failed,
        )
        header = self._header(version)
        self.folder, file, problem = output_folder.create(
            output_folder.wanted(options.dirpath, stage, trainer),
            self._rank,
            output_folder.key_of_run(os.environ, trainer.world_size),
        )
        self._opened.append(file.close)
        self._writer = JournalWriter(
            file,
            self.clock,
            header=header,
            on_failure=self._journal_failed,
            on_steps=self._steps_ended_lately,
        )
        self._opened.append(self._writer.close)
        if problem:
            self.fence.tell("dirpath", problem)
        self._windows = WindowRecording(
            options,
            folder=self.folder,
            rank=self._rank,
            world_size=trainer.world_size,
            clock=self.clock,
            tap=self.tap,
            fence=self.fence,
            post=self._post,
        )
        self._writer.start()
        # From here on the trainer is touched.
        self._opened.append(self._give_back)
        self.clock.set_failure_listener(self._steps_failed)
        self._trainer.profiler = self.tap
        self._annotations.begin()
        with self.fence.around("input pipeline"):
            if self._input is not None:
                self._input.begin()
        missing = self._edges.attach()
        if missing:
            self.fence.tell("steps", f"this version of Lightning has no {', '.join(missing)}")

    # Hooks of the fit -----------------------------------------------------------------------------------------------

    def steps_start(self, module: pl.LightningModule) -> None:
        """Counters are restored and loaders are there: read the conditions, start samplers, plan windows."""
        trainer = self._trainer
        fitting = self.stage == "fit"
        samples_per_step: int | None = None
        with self.fence.around("conditions"):
            begin_ns = time.perf_counter_ns()
            found = conditions.collect(trainer, module, getattr(trainer, _LOADERS[self.stage]))
            batch_size = found.get("loader.batch_size")
            if isinstance(batch_size, int):
                samples_per_step = batch_size * int(trainer.world_size)
            self._post(Conditions(values=found | self._options.aims()))
            self._conditions_s = (time.perf_counter_ns() - begin_ns) / 1e9
        with self.fence.around("device spans"):
            self._device = self._device_steps()
        with self.fence.around("memory"):
            self._memory = self._memory_recording(module)
        if fitting and trainer.loggers and trainer.is_global_zero:
            every = self._options.log_every_n_steps or getattr(trainer, "log_every_n_steps", 0) or 0
            if every:
                self._scalars = ScalarLog(
                    trainer,
                    self.clock,
                    self._edges,
                    every,
                    samples_per_step,
                    fence=self.fence,
                    verbose=self._options.verbose,
                )
        with self.fence.around("live line"):
            self._live = self._live_line(samples_per_step)
        with self.fence.around("samplers"):
            self._start_samplers()
        batch_before, global_step = -1, 0
        if fitting:
            batch_before, global_step = trainer.fit_loop.epoch_loop.total_batch_idx, trainer.global_step
        self._first_batch = batch_before + 1
        self.clock.begin_training(batch_before, global_step)
        windows_wake = self._windows.begin(global_step, lambda: run_end.ends_at(trainer) if fitting else None)
        at_once = self._ranges is not None or self._memory is not None
        self.clock.listen(self._at_boundary, 0 if at_once else min(windows_wake, self._log_wake()))
        self._steps_began = time.perf_counter(), time.process_time()

    def first_batch(self, batch: object) -> None:
        """Write down the shapes of the first batch; nothing of it is kept."""
        with self.fence.around("conditions"):
            if self._open and (found := conditions.describe(batch)):
                self._post(Conditions(values=found))

    def steps_end(self) -> None:
        """The last step is over; what follows is teardown. Safe to call twice."""
        if self._steps_ended:
            return
        self._steps_ended = True
        self._end_of_step()
        self._end_live_line()
        if self._memory is not None:
            self._memory.steps_end()
        if self._device is not None:
            self._device.close()
        self.clock.open_segment("teardown")
        self._note_process_cpus()
        self._windows.end("finished")
        if self._log_wake() < NEVER:  # what became due with the very last step
            self._log_scalars(self._trainer.global_step)

    def belongs_to(self, trainer: object) -> bool:
        """Whether it measures this trainer."""
        return self._trainer is trainer

    @property
    def logger_step(self) -> int:
        """Where the trainer's last metrics of this stage are on the axis of its loggers."""
        stepped = self._edges.batches_that_stepped
        return max(0, stepped - 1) if self.stage == "fit" else stepped

    @property
    def hears_of_the_end(self) -> bool:
        """Whether Lightning will tell the tap that the stage is over; not if somebody put another in its place."""
        return self._open and self._trainer.profiler is self.tap

    def settle(self, timeout_s: float) -> None:
        """Have everything measured so far in the folder, for a report before the end; traces are waited for."""
        self.steps_end()
        self._stop_samplers()
        self.wait_for_traces(timeout_s)
        with self.fence.around("journal"):
            if self._writer is not None:
                self.clock.open_segment("teardown")
                self._post(self._footer(FINISHED))  # the end so far: the last footer of a journal counts
                self._writer.sync()

    def failed(self, error: BaseException) -> None:
        """Training ends with an exception, which is only looked at."""
        with self.fence.around("out of memory"):
            if self._memory is not None:
                self._memory.out_of_memory(error)

    def finish(self, status: str) -> None:
        """Give the trainer back as it was, stop everything, and complete the journal. Safe to call twice."""
        if not self._open:
            return
        self._open = False
        last: list[Footer] = []
        self._close_memory()
        with self.fence.around("device spans"):
            if self._device is not None:
                self._device.close()
        self._windows.end(status)
        self._give_back()
        with self.fence.around("steps"):
            self.clock.listen(None, NEVER)
            self._note_process_cpus()
            self.clock.open_segment(None)
            last = [self._footer(status)]
        self._stop_samplers()
        with self.fence.around("journal"):
            for footer in last:
                footer.overhead = self._overhead()
        self._close_files(last)

    def give_up(self) -> None:
        """After a failure on the way: nothing of ours stays. Never raises."""
        with self.fence.around("the end"):
            self.finish("abandoned")
        self._give_back()
        self._stop_samplers()
        self._close_files()

    def _close_files(self, last: Sequence[Record] = ()) -> None:
        for _ in range(2):  # what failed once is tried once more
            with self.fence.around("journal"):
                if self._writer is not None:
                    self._writer.close(last)
            with self.fence.around("run delay"):
                self._close_run_delay()
            with self.fence.around("input pipeline"):
                if self._input is not None:
                    self._input.remove_files()

    def _close_run_delay(self) -> None:
        if self._run_delay is not None:
            self._run_delay.close()

    def _close_memory(self) -> None:
        for _ in range(2):  # what failed once is tried once more
            with self.fence.around("memory: closing"):
                if self._memory is not None:
                    self._memory.close()
                    self._memory.wait(HISTORY_TIMEOUT_S)

    def wait_for_traces(self, timeout_s: float) -> None:
        """Wait until the windows are compressed and analysed, at most so long in all calls together."""
        begin = time.monotonic()
        with self.fence.around("memory"):
            if self._memory is not None:
                self._memory.wait(max(0.0, timeout_s - self._waited_s))
        self._windows.wait(max(0.0, timeout_s - self._waited_s))
        self._waited_s += time.monotonic() - begin

    def _give_back(self) -> None:
        """The loops and the profiler of the trainer are its own again."""
        self._windows.unwatch()
        self._detach()

    def _left_by(self, error: BaseException) -> None:
        """The loop is left by an exception, and another callback's ``on_exception`` may keep ours from being called.

        What touches the trainer, samples or writes to the terminal ends here, and nothing that has to be waited for.
        """
        self._give_back()
        for end in (
            self._end_live_line,
            self._end_of_step,
            self._let_samplers_go,
            lambda: self._post(self._footer(interrupted_by(error))),
        ):
            with self.fence.around("leaving the loop"):
                end()

    def _end_live_line(self) -> None:
        if self._live is not None:
            self._live.end()

    def _let_samplers_go(self) -> None:
        if self._device is not None:
            self._device.close()
        if self._recorder is not None:
            self._recorder.ask_to_stop()

    def _detach(self) -> None:
        # Twice, and each by itself: what failed once in the middle is tried once more.
        for end in 2 * (self._put_profiler_back, self._edges.detach, self._annotations.end, self._end_input):
            with self.fence.around("giving the trainer back"):
                end()

    def _end_input(self) -> None:
        if self._input is not None:
            self._input.end()

    def _put_profiler_back(self) -> None:
        if self._trainer.profiler is self.tap:
            self._trainer.profiler = self.tap.inner

    def _steps_failed(self, error: Exception) -> None:
        """An edge failed, perhaps in the middle of an action: none is tried again."""
        if self._steps_off:
            return
        self._steps_off = True
        self._switch_off("steps", error)
        self._detach()
        for end in (
            self._end_live_line,
            self._end_of_step,
            lambda: self._windows.end("steps are not measured any more"),
            lambda: self.clock.listen(None, NEVER),
            lambda: self.clock.open_segment("unmeasured"),
        ):
            with self.fence.around("steps: closing"):
                end()

    # ----------------------------------------------------------------------------------------------------------------

    def _note_process_cpus(self) -> None:
        """CPUs that this process kept busy during training, for runs too short to be sampled."""
        begin, self._steps_began = self._steps_began, None
        if begin is not None:
            wall_s = time.perf_counter() - begin[0]
            cpus = (time.process_time() - begin[1]) / wall_s if wall_s > 0 else None
            now_ns = time.perf_counter_ns()
            self._post(Sample(source="host", subject="training", t_ns=now_ns, values={"process_cpus": cpus}))

    def _evaluation_starts(self, module: pl.LightningModule) -> None:
        with self.fence.around("start of the steps"):
            self.steps_start(module)

    def _end_of_step(self) -> None:
        if self._memory is not None:
            self._memory.end_step()
        if self._device is not None:
            self._device.end_epoch()
        if self._ranges is not None:
            self._ranges.end_step()

    def _epoch_ended(self) -> None:
        self._end_of_step()
        self._windows.epoch_ended()
        if self.stage != "fit":  # there is only one
            with self.fence.around("end of the steps"):
                self.steps_end()

    def _at_boundary(self, batch: int, global_step: int, now_ns: int) -> int:
        device, ranges, memory = self._device, self._ranges, self._memory
        if memory is not None:
            memory.end_step()
        if device is not None:
            device.end_step()
        windows_wake = self._windows.at_boundary(batch, global_step, now_ns)
        if global_step >= self._log_wake():
            self._log_scalars(global_step)
        if ranges is not None:
            ranges.begin_step(batch)
        tracing = self._windows.tracing
        again = ranges is not None
        # the actions of a step are known from the first one
        if device is not None and not tracing and batch > self._first_batch and device.begin_step(batch):
            again = True
        if memory is not None and memory.begin_step(batch, tracing=tracing):
            again = True
        return 0 if again else min(windows_wake, self._log_wake())

    def _log_wake(self) -> int:
        return NEVER if self._scalars is None else self._scalars.wake

    def _log_scalars(self, global_step: int) -> None:
        with self.fence.around("scalars"):
            if self._scalars is not None:
                self._scalars.log_if_due(global_step)
        if self.fence.failed("scalars"):
            self._scalars = None

    def _device_steps(self) -> DeviceSteps[Any] | None:
        backend = self._events(self._trainer.strategy.root_device)
        if backend is None:
            return None
        spans = DeviceSpans(backend, on_failure=lambda error: self._switch_off("device spans", error))
        return DeviceSteps(spans, self.clock, lambda wrap: self.tap.wrap_actions("main", wrap))

    def _memory_recording(self, module: pl.LightningModule) -> MemoryRecording:
        trace = self._options.trace
        return MemoryRecording(
            self._trainer,
            module,
            self._allocator(self._trainer.strategy.root_device),
            tap=self.tap,
            clock=self.clock,
            fence=self.fence,
            post=self._post,
            folder=self.folder,
            rank=self._rank,
            histories=trace is not None and trace.memory_snapshot,
            fitting=self.stage == "fit",
        )

    def _live_line(self, samples_per_step: int | None) -> LiveLine | None:
        if self._line is None:
            return None
        try:
            above = progress_bars.above_bar(self._trainer)
        except progress_bars.UnknownBarError as error:
            warn(f"gpuprof: no live line: it would tear {error}, and only the bars of tqdm and rich make room")
            return None
        return LiveLine(self._line, above, self.clock.slots, samples_per_step)

    def _steps_ended_lately(self, steps: Sequence[ClosedStep]) -> None:
        """In the journal's thread."""
        if self._live is not None:
            self._live.watch(steps)
        self._windows.watch(steps)

    def _start_samplers(self) -> None:
        samplers = stage_samplers(
            self._options,
            self._trainer,
            self.clock,
            thread_id=threading.get_ident(),
            epoch_ns=self._entry.epoch_ns,
            compiled_before=self._compiled_before,
        )
        if self._device is not None:
            samplers.append(DeviceSpanSampler(self._device.spans, self.clock.wake))
        if self._memory is not None:
            samplers.append(self._memory.sampler)
        if self._input is not None:
            samplers.append(self._input.sampler())
        if self._live is not None:
            samplers.append(self._live)
        self._recorder = Recorder(samplers, self._sampled)
        self._recorder.start()

    def _sampled(self, record: Record) -> None:
        if isinstance(record, Sample) and (scalars := self._scalars) is not None:
            scalars.take(record)
        if isinstance(record, Notice):
            self.notices.append(record)
        self._post(record)

    def _header(self, version: str) -> Header:
        return Header(
            version=JOURNAL_VERSION,
            gpuprof=version,
            run_id=uuid.uuid4().hex[:12],
            stage=self.stage,
            rank=self._rank,
            world_size=self._trainer.world_size,
            host=socket.gethostname(),
            pid=os.getpid(),
            start_ns=self._entry.perf_ns,
            epoch_ns=self._entry.epoch_ns,
        )

    def _overhead(self) -> dict[str, float]:
        return {
            "edge_ns": self._edge_ns,
            "conditions_s": self._conditions_s,
            "journal_cpu_s": self._writer.cpu_s if self._writer is not None else 0.0,
            "samplers_cpu_s": self._recorder.cpu_s if self._recorder is not None else 0.0,
        }

    def _footer(self, status: str) -> Footer:
        global_step = self.clock.counters()[1]
        now_ns = time.perf_counter_ns()
        return Footer(end_ns=now_ns, status=status, overhead=self._overhead(), global_step=global_step)

    def _stop_samplers(self) -> None:
        with self.fence.around("samplers"):
            if self._recorder is not None:
                self._recorder.stop()

    def _switch_off(self, part: str, error: Exception) -> None:
        self.fence.tell(part, f"switched off after {type(error).__name__}: {error}")

    def _journal_failed(self, error: OSError) -> None:
        written = self._writer.steps_written if self._writer is not None else 0
        self.fence.tell("journal", f"writing failed ({error.strerror or error}); about {written} steps are recorded")

    def _note(self, part: str, message: str) -> None:
        notice = Notice(part=part, message=message)
        self.notices.append(notice)
        self._post(notice)

    def _post(self, record: Record) -> None:
        if self._writer is not None:
            self._writer.post(record)
