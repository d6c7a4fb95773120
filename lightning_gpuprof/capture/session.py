"""Everything that measures during one ``fit``, put together: begins in ``setup``, ends with a folder of raw data."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_gpuprof.capture import conditions, live_scalars, output_folder, user_hooks
from lightning_gpuprof.capture.call_sites import CallSiteSampler
from lightning_gpuprof.capture.fence import Fence
from lightning_gpuprof.capture.host import HostSampler
from lightning_gpuprof.capture.journal_writer import JournalWriter
from lightning_gpuprof.capture.lightning_loops import LoopEdges
from lightning_gpuprof.capture.nvml import NvmlSampler
from lightning_gpuprof.capture.profiler_tap import ProfilerTap
from lightning_gpuprof.capture.recorder import Recorder, Sampler
from lightning_gpuprof.capture.run_delay import RunDelay
from lightning_gpuprof.capture.step_clock import NEVER, StepClock
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

if TYPE_CHECKING:
    import lightning.pytorch as pl


@dataclass(frozen=True, kw_only=True)
class FitEntry:
    """When ``fit`` was entered, on the run's clock and on the calendar."""

    perf_ns: int
    epoch_ns: int

    @classmethod
    def now(cls) -> FitEntry:
        """This moment."""
        return cls(perf_ns=time.perf_counter_ns(), epoch_ns=time.time_ns())


class Session:
    """One ``fit`` under measurement.

    Args:
        trainer: The trainer, in its ``setup``.
        module: The model.
        options: Checked options.
        entry: When ``fit`` was entered.
        version: Version of this package, for the journal's header.

    Raises:
        OSError: Neither the wanted nor a temporary folder can be written.
    """

    def __init__(
        self, trainer: Any, module: pl.LightningModule, options: Options, entry: FitEntry, version: str
    ) -> None:
        self._trainer: Any = trainer
        self._options = options
        self._entry = entry
        self.notices: list[Notice] = []
        self.fence = Fence(self._note)
        self._writer: JournalWriter | None = None
        self._rank = trainer.global_rank

        self._run_delay = RunDelay.of_this_thread()
        self.clock = StepClock(
            start_ns=entry.perf_ns, delay_now=self._run_delay.read_ns if self._run_delay is not None else None
        )
        self._edge_ns = self.clock.cost_of_one_edge_ns()
        self._log_wake = NEVER
        self._log_every = 0
        self._samples_per_step: int | None = None
        self._latest: dict[str, Sample] = {}
        self._recorder: Recorder | None = None
        self._open = True
        self._training_began: tuple[float, float] | None = None

        inner = self._trainer.profiler
        self.tap = ProfilerTap(
            inner,
            self.clock,
            forward=not user_hooks.profiles_nothing(inner),
            manual=not module.automatic_optimization,
            overridden=user_hooks.overridden_hooks(trainer, module),
            does_nothing=lambda key, hook: user_hooks.does_nothing(trainer, key, hook),
            on_failure=lambda error: self._switch_off("actions", error),
        )
        self._edges = LoopEdges(
            trainer,
            self.clock,
            self.tap,
            on_epoch_end=lambda: self._windows.epoch_ended(),
            on_exception=self._give_back,
            on_failure=self._steps_failed,
        )
        self.folder, file, problem = output_folder.create(self._wanted_folder(), self._rank)
        self._writer = JournalWriter(file, self.clock, header=self._header(version), on_failure=self._journal_failed)
        if problem:
            self.fence.tell("dirpath", problem)
        self._windows = WindowRecording(
            options,
            folder=self.folder,
            rank=self._rank,
            clock=self.clock,
            tap=self.tap,
            fence=self.fence,
            post=self._post,
        )
        self._writer.start()
        # From here on the trainer is touched.
        try:
            self._trainer.profiler = self.tap
            missing = self._edges.attach()
        except Exception:
            self._give_back()
            self._writer.close()
            raise
        if missing:
            self.fence.tell("steps", f"this version of Lightning has no {', '.join(missing)}")

    # Hooks of the fit -----------------------------------------------------------------------------------------------

    def training_starts(self, module: pl.LightningModule) -> None:
        """Counters are restored and loaders are there: read the conditions, start samplers, plan windows."""
        trainer = self._trainer
        with self.fence.around("conditions"):
            found = conditions.collect(trainer, module)
            batch_size = found.get("loader.batch_size")
            if isinstance(batch_size, int):
                self._samples_per_step = batch_size * int(trainer.world_size)
            self._post(Conditions(values=found))
        with self.fence.around("samplers"):
            self._start_samplers()
        global_step = trainer.global_step
        self.clock.begin_training(trainer.fit_loop.epoch_loop.total_batch_idx, global_step)
        windows_wake = self._windows.begin(global_step)
        if trainer.loggers and trainer.is_global_zero:
            self._log_every = self._options.log_every_n_steps or getattr(trainer, "log_every_n_steps", 0) or 0
            self._log_wake = 0 if self._log_every else NEVER
        self.clock.listen(self._at_boundary, min(windows_wake, self._log_wake))
        self._training_began = time.perf_counter(), time.process_time()

    def training_ends(self) -> None:
        """The last epoch is over; what follows is teardown."""
        self.clock.open_segment("teardown")
        self._note_process_cpus()
        self._windows.end("finished")
        if self._log_wake < NEVER:  # what became due with the very last step
            with self.fence.around("scalars"):
                self._log(self._trainer.global_step)

    def finish(self, status: str) -> None:
        """Give the trainer back as it was, stop everything, and complete the journal. Safe to call twice."""
        if not self._open:
            return
        self._open = False
        self._windows.end(status)
        self._give_back()
        end_ns = time.perf_counter_ns()
        with self.fence.around("steps"):
            self.clock.listen(None, NEVER)
            self._note_process_cpus()
            self.clock.open_segment(None)
            end_ns = time.perf_counter_ns()
        if self._run_delay is not None:
            self._run_delay.close()
        with self.fence.around("samplers"):
            if self._recorder is not None:
                self._recorder.stop()
        with self.fence.around("journal"):
            if self._writer is not None:
                global_step = self.clock.counters()[1]
                self._writer.close(
                    [Footer(end_ns=end_ns, status=status, overhead=self._overhead(), global_step=global_step)]
                )

    def wait_for_traces(self, timeout_s: float) -> None:
        """Wait until the windows are compressed and analysed, at most so long."""
        self._windows.wait(timeout_s)

    def _give_back(self) -> None:
        """The loops and the profiler of the trainer are its own again.

        Also when ``fit`` is left by an exception: another callback's ``on_exception`` may keep ours from being called.
        """
        self._windows.unwatch()
        self._edges.detach()
        if self._trainer.profiler is self.tap:
            self._trainer.profiler = self.tap.inner

    def _steps_failed(self, error: Exception) -> None:
        self._switch_off("steps", error)
        with self.fence.around("steps: closing"):
            self.clock.open_segment("unmeasured")

    # ----------------------------------------------------------------------------------------------------------------

    def _note_process_cpus(self) -> None:
        """CPUs that this process kept busy during training, for runs too short to be sampled."""
        begin, self._training_began = self._training_began, None
        if begin is not None:
            wall_s = time.perf_counter() - begin[0]
            cpus = (time.process_time() - begin[1]) / wall_s if wall_s > 0 else None
            now_ns = time.perf_counter_ns()
            self._post(Sample(source="host", subject="training", t_ns=now_ns, values={"process_cpus": cpus}))

    def _at_boundary(self, batch: int, global_step: int, now_ns: int) -> int:
        windows_wake = self._windows.at_boundary(batch, global_step, now_ns)
        if global_step >= self._log_wake:
            with self.fence.around("scalars"):
                self._log_wake = self._log(global_step)
            if self.fence.failed("scalars"):
                self._log_wake = NEVER
        return min(windows_wake, self._log_wake)

    def _log(self, global_step: int) -> int:
        """Log if the trainer has just logged; returns the optimizer step from which on to look again."""
        stepped = self._edges.batches_that_stepped
        to_go = self._log_every - stepped % self._log_every
        if stepped and to_go == self._log_every:
            recent = self.clock.recent
            steps = [recent.popleft() for _ in range(len(recent))]
            scalars = live_scalars.step_scalars(steps, self.clock.slots, self._samples_per_step)
            if scalars:
                scalars |= live_scalars.device_scalars(list(self._latest.values()))
            for logger in self._trainer.loggers if scalars else ():
                logger.log_metrics(scalars, step=stepped - 1)  # the step that the trainer's own metrics just got
        # With manual optimization several or no optimizer steps go into a batch: look at every one.
        return global_step + to_go if self._trainer.lightning_module.automatic_optimization else global_step

    def _start_samplers(self) -> None:
        options = self._options
        samplers: list[Sampler] = [
            CallSiteSampler(thread_id=threading.get_ident(), current_slot=self.clock.current_slot)
        ]
        if options.nvml is not None:
            samplers.append(
                NvmlSampler(
                    uuids=conditions.cuda_uuids(self._trainer),
                    environ=os.environ,
                    interval_s=options.nvml.interval_s,
                )
            )
        if options.host is not None:
            samplers.append(HostSampler(interval_s=options.host.interval_s))
        self._recorder = Recorder(samplers, self._sampled)
        self._recorder.start()

    def _sampled(self, record: Record) -> None:
        if isinstance(record, Sample) and record.source == "nvml":
            self._latest[record.subject] = record
        if isinstance(record, Notice):
            self.notices.append(record)
        self._post(record)

    def _wanted_folder(self) -> Path:
        options = self._options
        if options.dirpath is not None:
            return output_folder.expand(options.dirpath)
        # Lightning has just told its own profiler the log folder; asking `trainer.log_dir` is a collective.
        known = getattr(self._trainer.profiler, "dirpath", None)
        if known is None:
            known = self._trainer.log_dir if self._trainer.world_size == 1 else self._trainer.default_root_dir
        return Path(known or self._trainer.default_root_dir) / "gpuprof"

    def _header(self, version: str) -> Header:
        return Header(
            version=JOURNAL_VERSION,
            gpuprof=version,
            run_id=uuid.uuid4().hex[:12],
            stage="fit",
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
            "journal_cpu_s": self._writer.cpu_s if self._writer is not None else 0.0,
            "samplers_cpu_s": self._recorder.cpu_s if self._recorder is not None else 0.0,
        }

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
