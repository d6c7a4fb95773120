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

from lightning_gpuprof.capture import conditions, live_scalars, output_folder
from lightning_gpuprof.capture.actions import PER_BATCH_MODULE_HOOKS
from lightning_gpuprof.capture.call_sites import CallSiteSampler
from lightning_gpuprof.capture.fence import Fence
from lightning_gpuprof.capture.foreign_profilers import ForeignProfilers
from lightning_gpuprof.capture.host import HostSampler
from lightning_gpuprof.capture.journal_writer import JournalWriter
from lightning_gpuprof.capture.lightning_loops import LoopEdges
from lightning_gpuprof.capture.nvml import NvmlSampler
from lightning_gpuprof.capture.profiler_tap import ProfilerTap
from lightning_gpuprof.capture.recorder import Recorder, Sampler
from lightning_gpuprof.capture.run_delay import RunDelay
from lightning_gpuprof.capture.step_clock import NEVER, StepClock
from lightning_gpuprof.capture.torch_tracer import TorchTracer, other_profiler
from lightning_gpuprof.capture.trace_jobs import TraceJobs
from lightning_gpuprof.capture.windows import WindowController
from lightning_gpuprof.model.config import Options
from lightning_gpuprof.model.journal import (
    DISTURBED,
    JOURNAL_VERSION,
    PROFILED,
    Conditions,
    Footer,
    Header,
    Notice,
    Record,
    Sample,
    WindowRecord,
)

if TYPE_CHECKING:
    import lightning.pytorch as pl

MAX_SETTLING_NS = 5_000_000_000
"""The analysis of a window yields to everything else; on a full machine it may wait for the end of the run."""

_BASE_CALLBACK_MODULES = ("lightning.pytorch.callbacks.callback", "pytorch_lightning.callbacks.callback")


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
        self._jobs = TraceJobs()
        self._foreign = ForeignProfilers(self._make_room)
        self._windows: WindowController | None = None
        self._windows_wake = NEVER
        self._settled_at_the_latest_ns = 0
        self._settling = False
        """The analysis of a window runs beside the steps."""
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
            forward=type(inner).__name__ != "PassThroughProfiler",
            manual=not module.automatic_optimization,
            overridden=_overridden_hooks(trainer, module),
            does_nothing=lambda key, hook: _does_nothing(trainer, key, hook),
            on_failure=lambda error: self._switch_off("actions", error),
        )
        self._edges = LoopEdges(
            trainer,
            self.clock,
            self.tap,
            on_epoch_end=self._epoch_ended,
            on_exception=self._give_back,
            on_failure=self._steps_failed,
        )
        self.folder, file, problem = output_folder.create(self._wanted_folder(), self._rank)
        self._writer = JournalWriter(file, self.clock, header=self._header(version), on_failure=self._journal_failed)
        if problem:
            self.fence.tell("dirpath", problem)
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
        with self.fence.around("windows"):
            self._windows = self._plan_windows()
            self._windows_wake = NEVER if self._windows is None else self._windows.begin(global_step)
        if trainer.loggers and trainer.is_global_zero:
            self._log_every = self._options.log_every_n_steps or getattr(trainer, "log_every_n_steps", 0) or 0
            self._log_wake = 0 if self._log_every else NEVER
        self.clock.listen(self._at_boundary, min(self._windows_wake, self._log_wake))
        self._training_began = time.perf_counter(), time.process_time()

    def training_ends(self) -> None:
        """The last epoch is over; what follows is teardown."""
        self.clock.open_segment("teardown")
        self._note_process_cpus()
        with self.fence.around("windows"):
            if self._windows is not None:
                self._windows.end("finished", self.clock.counters()[1])
                self._windows = None
        if self._log_wake < NEVER:  # what became due with the very last step
            with self.fence.around("scalars"):
                self._log(self._trainer.global_step)

    def finish(self, status: str) -> None:
        """Give the trainer back as it was, stop everything, and complete the journal. Safe to call twice."""
        if not self._open:
            return
        self._open = False
        with self.fence.around("windows"):
            if self._windows is not None:
                self._windows.end(status, self.clock.counters()[1])
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
        running = self._jobs.wait(timeout_s)
        if running:
            self.fence.tell(
                "windows", f"{running} trace(s) still being analysed; run `gpuprof report {self.folder}` later"
            )

    def _give_back(self) -> None:
        """The loops and the profiler of the trainer are its own again.

        Also when ``fit`` is left by an exception: another callback's ``on_exception`` may keep ours from being called.
        """
        self._foreign.unwatch()
        self._edges.detach()
        if self._trainer.profiler is self.tap:
            self._trainer.profiler = self.tap.inner

    def _steps_failed(self, error: Exception) -> None:
        self._switch_off("steps", error)
        with self.fence.around("steps: closing"):
            self.clock.open_segment("unmeasured")

    def _epoch_ended(self) -> None:
        if self._windows is not None:
            with self.fence.around("windows"):
                self._windows.at_epoch_end()
            if self.fence.failed("windows"):
                self._drop_windows()

    def _make_room(self) -> None:
        """The training code is about to start torch.profiler itself: ours gives way, for the rest of the run."""
        if self._windows is not None:
            self.fence.tell("windows", "the training code starts torch.profiler itself: no (more) windows are opened")
            self._drop_windows()

    def _set_profiled(self, on: bool) -> None:
        """Mark the steps under a window, and then those beside its analysis, which competes for the CPUs."""
        self._settling = not on
        self._settled_at_the_latest_ns = time.perf_counter_ns() + MAX_SETTLING_NS
        self.clock.set_standing_flags(PROFILED if on else DISTURBED)

    def _settled(self) -> None:
        if not self._jobs.running() or time.perf_counter_ns() > self._settled_at_the_latest_ns:
            self._settling = False
            self.clock.set_standing_flags(0)

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
        if self._windows is not None and global_step >= self._windows_wake:
            with self.fence.around("windows"):
                self._windows_wake = self._windows.at_boundary(batch, global_step, now_ns)
            if self.fence.failed("windows"):
                self._drop_windows()
        if self._settling:
            self._settled()
        if global_step >= self._log_wake:
            with self.fence.around("scalars"):
                self._log_wake = self._log(global_step)
            if self.fence.failed("scalars"):
                self._log_wake = NEVER
        return 0 if self._settling else min(self._windows_wake, self._log_wake)

    def _drop_windows(self) -> None:
        windows, self._windows = self._windows, None
        self._windows_wake = NEVER
        with self.fence.around("windows: stopping"):
            if windows is not None:
                windows.abandon()

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

    def _plan_windows(self) -> WindowController | None:
        options = self._options
        config = options.trace
        if config is None or self._rank not in config.ranks:
            return None
        if options.windows == () and config.every_n_steps is None:
            return None
        other = other_profiler(self.tap.inner, os.environ)
        if other:
            self.fence.tell(
                "windows", f"{other} is in use and a process has room for one tracer: no windows are opened"
            )
            return None
        self._foreign.watch()
        return WindowController(
            options.windows,
            active=config.active,
            every_n_steps=config.every_n_steps,
            warmup=config.warmup,
            max_windows=config.max_windows,
            max_bytes=config.max_mb * 1_000_000,
            tracer=TorchTracer(
                config,
                new_path=self._new_trace_path,
                wrap_actions=lambda wrap: self.tap.wrap_actions("train", wrap),
                preparing=self._foreign.ours,
            ),
            on_window=self._window_closed,
            on_profiled=self._set_profiled,
            now=time.perf_counter_ns,
        )

    def _new_trace_path(self) -> Path:
        return self.folder / f"rank{self._rank}.{time.time_ns()}.plain.json"

    def _window_closed(self, window: WindowRecord, plain: Path | None) -> None:
        if plain is not None:
            stem = plain.name.removesuffix(".plain.json")
            window.file = f"{stem}.pt.trace.json.gz"
            facts = self.folder / f"{stem}.facts.json"
            self._jobs.submit(plain, self.folder / window.file, facts, window.start_step, window.stop_step)
        elif window.problem.startswith("not ") and self._options.windows is not None:
            self.fence.tell(f"window {window.start_step}", window.problem)
        self._post(window)

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


def _does_nothing(trainer: Any, state_key: str, hook: str) -> bool:
    """Whether every callback with this key has the hook from Lightning's empty base class."""
    owners = [callback for callback in trainer.callbacks if callback.state_key == state_key]
    modules = [getattr(getattr(owner, hook, None), "__module__", "") for owner in owners]
    return bool(owners) and all(m in _BASE_CALLBACK_MODULES for m in modules)


def _overridden_hooks(trainer: pl.Trainer, module: pl.LightningModule) -> frozenset[str]:
    """Per-batch hooks that the user wrote: defined outside Lightning's own base classes."""
    owners = [module, getattr(trainer, "datamodule", None)]
    found = set()
    for owner in owners:
        for hook in PER_BATCH_MODULE_HOOKS:
            function = getattr(owner, hook, None)
            defined_in = getattr(function, "__module__", "") or ""
            if function is not None and not defined_in.startswith(("lightning.pytorch.core", "pytorch_lightning.core")):
                found.add(hook)
    return frozenset(found)
