"""One stage under measurement from ``setup`` to its end: puts all parts together, and ends them in the right order."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import torch

from lightning_gpuprof.capture import annotated_regions, conditions, nvtx_ranges, output_folder
from lightning_gpuprof.capture.actions import does_nothing, overridden_hooks, profiles_nothing
from lightning_gpuprof.capture.attachments import Attachments
from lightning_gpuprof.capture.call_sites import UserCode, left_collective
from lightning_gpuprof.capture.compilation import Counters, counters_now
from lightning_gpuprof.capture.conditions.anomaly_cost import anomaly_cost
from lightning_gpuprof.capture.device_spans import DeviceEvents, backend_for
from lightning_gpuprof.capture.fence import must_propagate
from lightning_gpuprof.capture.gradient_wait import GradientWait
from lightning_gpuprof.capture.host.process_files import RunDelay
from lightning_gpuprof.capture.input.measurement import InputMeasurement
from lightning_gpuprof.capture.lightning_loops import LoopEdges
from lightning_gpuprof.capture.line_timer import LineTimer
from lightning_gpuprof.capture.live_line import Line
from lightning_gpuprof.capture.measured_stage import MeasuredStage
from lightning_gpuprof.capture.memory.backend import Allocator, allocator_for
from lightning_gpuprof.capture.profiler_tap import ProfilerTap
from lightning_gpuprof.capture.stage_journal import FINISHED, Entry, StageJournal, stage_header
from lightning_gpuprof.capture.stage_steps import StageSteps
from lightning_gpuprof.capture.step_clock import NEVER, ClosedStep, StepClock
from lightning_gpuprof.capture.window_recording import WindowRecording
from lightning_gpuprof.model.conditions import SAMPLES
from lightning_gpuprof.model.config import Options
from lightning_gpuprof.model.journal import GRADIENT_WAIT, Conditions, Footer, LineTimesRecord, Record
from lightning_gpuprof.model.phases import Stage

if TYPE_CHECKING:
    import lightning.pytorch as pl


@dataclass(eq=False, repr=False)
class Session:
    """One stage under measurement: a call of ``fit``, ``validate``, ``test`` or ``predict``.

    Raises:
        OSError: Neither the wanted nor a temporary folder can be written.
    """

    trainer: Any
    """The trainer, in its ``setup``."""
    stage: Stage
    options: Options
    entry: Entry
    """When the stage was entered."""
    _: KW_ONLY
    module: InitVar[pl.LightningModule]
    launch: str
    """What the ranks of the job have in common, see :func:`~lightning_gpuprof.capture.output_folder.launch_key`."""
    version: str
    """Of this package, for the journal's header."""
    on_end: Callable[[BaseException | None], None]
    """Called when Lightning has done everything else, with the exception that ended the stage, if one did; the caller
    finishes then. The caller may know an exception from before."""
    on_written: Callable[[Path], None] | None
    """Called in the background with the journal, when something was written to it."""
    line: Line | None
    """Where to report the steps while they go on; None for nowhere."""
    events: Callable[[Any], DeviceEvents | None] = backend_for
    """Gives timed events of the trainer's device, or None where there are none."""
    ranges: Callable[[], nvtx_ranges.TorchNvtx] = nvtx_ranges.TorchNvtx
    """Makes NVTX ranges."""
    allocator: Callable[[Any], Allocator | None] = allocator_for
    """Gives the allocator of the trainer's device, or None where there is none that can be read."""

    def __post_init__(self, module: pl.LightningModule) -> None:
        trainer = self.trainer
        self._run_delay: RunDelay | None = None
        self._compiled_before: Counters | None = None
        self._open = True
        self._failed_at, self._left_collective = "", False
        self._steps_off = False
        self._waited_s = 0.0
        self._opened: list[Callable[[], object]] = [self._close_run_delay]
        try:
            overridden = overridden_hooks(trainer, module)
            manual = not module.automatic_optimization
            self._measured = self._open_stage(manual, overridden)
            self.tap = self._measured.tap
            self._gradient_wait = GradientWait(
                partial(self.tap.place, GRADIENT_WAIT, "backward", is_rest=True), self.fence
            )
            self.windows = WindowRecording(self._measured)
            self._edges = self._loop_edges(module)
            self._inputs = self._input_measurement()
            names = self.options.lines
            self._lines = LineTimer(names, partial(self.fence.report, "lines")) if names else None
            self._steps = StageSteps(
                self._measured,
                edges=self._edges,
                windows=self.windows,
                ranges=self._nvtx_ranges(manual, overridden),
                inputs=self._inputs,
                events=self.events,
                allocator=self.allocator,
                line=self.line,
                timer=self._lines,
            )
            self._attachments = self._make_attachments()
            self.journal.start()
            # From here on the trainer is touched.
            self._opened.append(self._restore)
            self.clock.set_failure_listener(self._steps_failed)
            self._attachments.attach()
        except BaseException:
            self._open = False
            for close in reversed(self._opened):
                with contextlib.suppress(Exception):
                    close()
            raise

    # Parts ----------------------------------------------------------------------------------------------------------

    def _open_stage(self, manual: bool, overridden: frozenset[str]) -> MeasuredStage:
        """The clock, the journal and the tap: all other parts measure with them and report to them."""
        trainer, stage = self.trainer, self.stage
        self._run_delay = RunDelay.of_this_thread()
        self.clock = StepClock(
            start_ns=self.entry.perf_ns,
            delay_now=self._run_delay.read_ns if self._run_delay is not None else None,
        )
        self._edge_ns = self.clock.measure_edge_ns()
        key = self.job = output_folder.run_key(self.launch, trainer.world_size)
        self.journal = StageJournal(
            output_folder.target_folder(self.options.dirpath, stage, trainer),
            key,
            stage_header(trainer, stage, self.entry, self.version, key),
            self.clock,
            on_steps=self._on_steps_closed,
            on_written=self.on_written,
        )
        self._opened.append(self.journal.close)
        self.fence = self.journal.fence
        with self.fence.around("torch.compile"):
            self._compiled_before = counters_now()
        inner = trainer.profiler
        tap = ProfilerTap(
            inner,
            self.clock,
            forward=not profiles_nothing(inner),
            manual=manual,
            overridden=overridden,
            does_nothing=partial(does_nothing, trainer),
            on_failure=partial(self.journal.switched_off, "actions"),
            on_end=self.on_end,
        )
        return MeasuredStage(
            trainer=trainer, stage=stage, options=self.options, clock=self.clock, tap=tap, journal=self.journal
        )

    def _nvtx_ranges(self, manual: bool, overridden: frozenset[str]) -> nvtx_ranges.NvtxRanges | None:
        if not nvtx_ranges.is_enabled(self.options.nvtx, os.environ):
            return None
        return nvtx_ranges.NvtxRanges(
            self.ranges(),
            manual=manual,
            overridden=overridden,
            wrap_actions=self.tap.wrap_actions,
            colors=self.tap.colors,
            on_failure=partial(self.journal.switched_off, "nvtx"),
        )

    def _input_measurement(self) -> InputMeasurement | None:
        if not self.options.input_pipeline:
            return None
        return InputMeasurement(
            lambda: self._measured.loaders,
            on_failure=partial(self.journal.switched_off, "input pipeline"),
            notice=partial(self.journal.note, "input pipeline"),
        )

    def _loop_edges(self, module: pl.LightningModule) -> LoopEdges:
        return LoopEdges(
            self.trainer,
            self.stage,
            self.clock,
            self.tap,
            on_run=self.windows.install_signal_handler,
            on_start=partial(self._begin_evaluation, module),
            on_validation=partial(self.windows.interrupt, "validation began"),
            on_epoch_end=self._epoch_ended,
            on_exception=self.on_end,
            on_failure=self._steps_failed,
        )

    def _make_attachments(self) -> Attachments:
        annotations = annotated_regions.Recording(
            self.tap.annotated,
            on_failure=partial(self.journal.switched_off, "annotated regions"),
            is_compiling=torch.compiler.is_compiling,
        )
        others = {"input pipeline": self._inputs, "lines": self._lines}
        return Attachments(
            self.trainer,
            tap=self.tap,
            edges=self._edges,
            annotations=annotations,
            others={name: other for name, other in others.items() if other is not None},
            fence=self.fence,
            notice=partial(self.journal.note, "loops"),
        )

    # What the callback calls ----------------------------------------------------------------------------------------

    @property
    def logger_step(self) -> int:
        """Where the trainer's last metrics of this stage are on the axis of its loggers."""
        stepped = self._edges.batches_that_stepped
        return max(0, stepped - 1) if self.stage == "fit" else stepped

    @property
    def notified_on_end(self) -> bool:
        """Whether Lightning will call the tap when the stage is over; not if somebody put another in its place."""
        return self._open and self._attachments.tap_in_place

    def steps_start(self, module: pl.LightningModule) -> None:
        """Counters are restored and loaders are there."""
        self._steps.begin(
            module,
            epoch_ns=self.entry.epoch_ns,
            compiled_before=self._compiled_before,
            steps_are_seen=not self._steps_off,
        )

    def first_batch(self, batch: object) -> None:
        """Write down the shapes of the first batch; nothing of it is kept."""
        with self.fence.around("conditions"):
            if self._open and (found := conditions.describe(batch)):
                self.journal.post(Conditions(values=found))
        with self.fence.around("samples"):
            if self._open and callable(count := self._measured.options.samples):
                if (samples := int(count(batch))) > 0:
                    self.journal.post(Conditions(values={SAMPLES: samples}))
                else:
                    self.fence.report(
                        "samples", f"samples= returned {samples} for the first batch: rows are counted instead"
                    )

    def first_backward(self, loss: torch.Tensor) -> None:
        """Write down what anomaly detection costs; nothing of the loss is kept."""
        with self.fence.around("conditions"):
            if self._open and (found := anomaly_cost(loss)):
                self.journal.post(Conditions(values=found))

    @property
    def waits_in_backward(self) -> bool:
        """Whether the main thread waits for other ranks in its backward, so that :meth:`backward_begins` is of use."""
        trainer = self.trainer
        return self.stage == "fit" and trainer.world_size > 1 and trainer.strategy.root_device.type == "cpu"

    def backward_begins(self, loss: torch.Tensor) -> None:
        """Separate the rank's own part of this backward from its wait; nothing of the loss is kept."""
        self._gradient_wait.begins(loss)

    def steps_end(self) -> None:
        """The last step is over; what follows is teardown. Safe to call twice."""
        self._steps.end()

    # What the loops call --------------------------------------------------------------------------------------------

    def _begin_evaluation(self, module: pl.LightningModule) -> None:
        with self.fence.around("start of the steps"):
            self.steps_start(module)

    def _epoch_ended(self) -> None:
        self._steps.boundary.end_step()
        self.windows.interrupt("the epoch ended")
        if self.stage != "fit":  # there is only one
            with self.fence.around("end of the steps"):
                self.steps_end()

    def _on_steps_closed(self, steps: Sequence[ClosedStep]) -> None:
        """In the journal's thread."""
        self._steps.on_steps_closed(steps)

    def _steps_failed(self, error: Exception) -> None:
        """An edge failed, perhaps in the middle of an action: none is tried again."""
        if must_propagate(error):
            raise error
        if self._steps_off:
            return
        self._steps_off = True
        self.journal.switched_off("steps", error)
        self._attachments.detach()
        for end in (
            self._steps.end_live_line,
            self._steps.boundary.end_step,
            lambda: self.windows.end("steps are not measured any more"),
            lambda: self.clock.listen(None, NEVER),
            lambda: self.clock.open_segment("unmeasured"),
        ):
            with self.fence.around("steps: closing"):
                end()

    # The ends -------------------------------------------------------------------------------------------------------

    def settle(self, timeout_s: float | None) -> None:
        """Have everything measured so far in the folder, for a report before the end.

        Traces are waited for no longer than ``timeout_s``; None: not at all.
        """
        self.steps_end()
        self._steps.stop_samplers()
        if timeout_s is not None:
            self.wait_for_traces(timeout_s)
        self._post_lines()
        with self.fence.around("journal"):
            self.clock.open_segment("teardown")
            self.journal.post(self._footer(FINISHED))  # the end so far: the last footer of a journal counts
            self.journal.sync()

    def wait_for_traces(self, timeout_s: float) -> None:
        """Wait until the windows are compressed and analysed, at most so long in all calls together."""
        begin = monotonic()
        self._steps.boundary.wait(max(0.0, timeout_s - self._waited_s))
        self.windows.wait(max(0.0, timeout_s - self._waited_s))
        self._waited_s += monotonic() - begin

    def failed(self, error: BaseException) -> None:
        """Training ends with an exception, which is only looked at."""
        with self.fence.around("out of memory"):
            self._steps.boundary.out_of_memory(error)
        with self.fence.around("the place of an exception"):
            self._failed_at = UserCode.of_this_process().raised_at(error)
            self._left_collective = left_collective(error)

    def finish(self, status: str) -> None:
        """Give the trainer back as it was, stop everything, and complete the journal. Safe to call twice."""
        if not self._open:
            return
        with self.fence.deferring():
            try:
                self._finish(status)
            except Exception:
                self._abandon()  # of what was not reached
                raise

    def _finish(self, status: str) -> None:
        self._open = False
        last: list[Footer] = []
        self._steps.boundary.close()
        self.windows.end(status)
        self._post_lines()
        self._restore()
        with self.fence.around("steps"):
            self.clock.listen(None, NEVER)
            self._steps.record_totals()
            self.clock.open_segment(None)
            last = [self._footer(status)]
        self._steps.stop_samplers()
        with self.fence.around("journal"):
            for footer in last:
                footer.overhead = self._overhead()
        self._close_files(last)

    def _post_lines(self) -> None:
        with self.fence.around("lines"):
            if self._lines is None:
                return
            if found := self._lines.times():
                self.journal.post(LineTimesRecord(functions=found))
            for name in self._lines.never_called():
                self.journal.note("lines", f"{name} was never called by this name in the training process")

    def give_up(self) -> None:
        """After a failure on the way: nothing of ours stays. Raises only what has to end the run."""
        with self.fence.deferring():
            with self.fence.around("the end"):
                self.finish("abandoned")
            self._abandon()

    def _abandon(self) -> None:
        self._restore()
        self._steps.stop_samplers()
        self._close_files()

    def _restore(self) -> None:
        """Torch, the process's signals and the trainer are as they were found."""
        self.windows.unwatch()
        self._attachments.detach()

    def _close_files(self, last: Sequence[Record] = ()) -> None:
        for _ in range(2):  # what failed once is tried once more
            with self.fence.around("journal"):
                self.journal.close(last)
            with self.fence.around("run delay"):
                self._close_run_delay()
            with self.fence.around("input pipeline"):
                if self._inputs is not None:
                    self._inputs.remove_files()

    def _close_run_delay(self) -> None:
        if self._run_delay is not None:
            self._run_delay.close()

    def _footer(self, status: str) -> Footer:
        return self.journal.footer(status, self._overhead(), self._failed_at, left_collective=self._left_collective)

    def _overhead(self) -> dict[str, float]:
        return {
            "edge_ns": self._edge_ns,
            "conditions_s": self._steps.conditions_s,
            "journal_cpu_s": self.journal.cpu_s,
            "samplers_cpu_s": self._steps.samplers_cpu_s,
        }
