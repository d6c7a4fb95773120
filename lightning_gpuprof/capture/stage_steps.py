"""What measures from the first step of a stage to the last: parts and samplers that begin and end with the steps."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from lightning_gpuprof.capture import conditions
from lightning_gpuprof.capture.call_sites import CallSiteSampler
from lightning_gpuprof.capture.compilation import CompileSampler, Counters
from lightning_gpuprof.capture.conditions.kept_gradients import KeptGradients
from lightning_gpuprof.capture.conditions.kept_items import KeptItems
from lightning_gpuprof.capture.conditions.last_step import checkpoint_bytes, logged_values
from lightning_gpuprof.capture.conditions.loader_facts import datasets_of
from lightning_gpuprof.capture.device_spans import DeviceEvents, DeviceSpans
from lightning_gpuprof.capture.device_steps import DeviceSteps
from lightning_gpuprof.capture.every_kernel import CuptiSource, KernelSampler
from lightning_gpuprof.capture.fence import must_propagate
from lightning_gpuprof.capture.host.gc_pauses import GcSampler
from lightning_gpuprof.capture.host.sampler import HostSampler
from lightning_gpuprof.capture.input.measurement import InputMeasurement
from lightning_gpuprof.capture.lightning_loops import LoopEdges
from lightning_gpuprof.capture.line_timer import LineTimer
from lightning_gpuprof.capture.live_line import Line, LiveLine, live_line_for
from lightning_gpuprof.capture.live_scalars import scalar_log_for
from lightning_gpuprof.capture.measured_stage import MeasuredStage
from lightning_gpuprof.capture.memory.backend import Allocator
from lightning_gpuprof.capture.memory.recording import MemoryRecording
from lightning_gpuprof.capture.nvml.sampler import NvmlSampler
from lightning_gpuprof.capture.nvtx_ranges import NvtxRanges
from lightning_gpuprof.capture.recorder import Recorder, Sampler
from lightning_gpuprof.capture.standstill import STACKS_NAME, Watchdog
from lightning_gpuprof.capture.step_boundary import StepBoundary
from lightning_gpuprof.capture.step_clock import ClosedStep
from lightning_gpuprof.capture.torch_tracer import other_profiler
from lightning_gpuprof.capture.window_recording import WindowRecording
from lightning_gpuprof.model.config import HostConfig
from lightning_gpuprof.model.journal import Conditions, Notice, Record, Sample

if TYPE_CHECKING:
    import lightning.pytorch as pl


@dataclass(eq=False, repr=False)
class StageSteps:
    """Begins once the trainer has its loaders and counters, which is long after ``setup``."""

    measured: MeasuredStage
    _: KW_ONLY
    edges: LoopEdges
    """Know the step axis of the trainer's loggers."""
    windows: WindowRecording
    """Trace windows of the stage."""
    ranges: NvtxRanges | None
    """NVTX ranges around the steps, if they are wanted."""
    inputs: InputMeasurement | None
    """Measured in the loaders' workers, if it is."""
    events: Callable[[Any], DeviceEvents | None]
    """Gives timed events of a device, or None where there are none."""
    allocator: Callable[[Any], Allocator | None]
    """Gives the allocator of a device, or None where there is none that can be read."""
    line: Line | None
    """Where to report the steps while they go on; None for nowhere."""
    timer: LineTimer | None
    """Of the functions of ``lines=``, which learns where the main thread is blocked; None where there are none."""

    def __post_init__(self) -> None:
        self._trainer = self.measured.trainer
        self._clock = self.measured.clock
        self._journal = self.measured.journal
        self._fence = self.measured.fence
        self._live: LiveLine | None = None
        self._watchdog = Watchdog(
            self._clock,
            self._journal.folder / STACKS_NAME.format(rank=self._trainer.global_rank),
            self._journal.post,
            thread_id=threading.get_ident(),
            after_s=(self.measured.options.host or HostConfig()).hang_s,
        )
        self._recorder: Recorder | None = None
        self._kernels: KernelSampler | None = None
        self._began: tuple[int, int] | None = None
        self._kept: KeptItems | None = None
        self._ended = False
        self.boundary = StepBoundary(self._clock, self.windows, self._fence)
        """Of the parts that there are: none before :meth:`begin`."""
        self.conditions_s = 0.0
        """Seconds for which reading the conditions has kept training waiting."""

    def begin(
        self,
        module: pl.LightningModule,
        *,
        epoch_ns: int,
        compiled_before: Counters | None,
        steps_are_seen: bool = True,
    ) -> None:
        """Read the conditions, start samplers, plan windows.

        Args:
            module: The model.
            epoch_ns: Calendar time at the entry of the stage.
            compiled_before: The compiler's counters then.
            steps_are_seen: Otherwise no window can open, and nothing listens to steps.
        """
        trainer, fitting = self._trainer, self.measured.is_fit
        samples_per_step = self._read_conditions(module)
        with self._fence.around("conditions"):
            self._kept = KeptItems([*module.modules(), *trainer.callbacks, *datasets_of(self.measured.loaders)])
        batch_before, global_step = -1, 0
        if fitting:
            batch_before, global_step = trainer.fit_loop.epoch_loop.total_batch_idx, trainer.global_step
        with self._fence.around("conditions"):
            if fitting and module.automatic_optimization:
                self._watch_gradients(type(module).__name__)
        self.boundary = self._boundary_with_parts(module, batch_before + 1, samples_per_step)
        with self._fence.around("live line"):
            self._live = live_line_for(trainer, self.line, self._clock.slots, samples_per_step)
        with self._fence.around("samplers"):
            self._start_samplers(epoch_ns, compiled_before)
        if not steps_are_seen:
            return
        self._clock.begin_training(batch_before, global_step)
        wake = self.windows.begin(global_step, lambda: ends_at(trainer) if fitting else None)
        self.boundary.listen(wake)
        self._began = time.perf_counter_ns(), time.process_time_ns()

    def end(self) -> None:
        """The last step is over; what follows is teardown. Safe to call twice."""
        if self._ended:
            return
        self._ended = True
        self.boundary.end_step()
        self.end_live_line()
        self.boundary.steps_end()
        self._clock.open_segment("teardown")
        self.record_totals()
        self.windows.end("finished")
        self.boundary.log_last(self._trainer.global_step)

    def on_steps_closed(self, steps: Sequence[ClosedStep]) -> None:
        """Some steps are in the journal; called in its thread."""
        if self._kernels is not None:
            self._kernels.steps_closed(steps)
        if self._live is not None:
            self._live.watch(steps)
        if not self._fence.failed("watchdog"):
            with self._fence.around("watchdog"):
                self._watchdog.look(steps)
        self.windows.watch(steps)

    def end_live_line(self) -> None:
        """Others write to the terminal now."""
        if self._live is not None:
            self._live.end()

    def stop_samplers(self) -> None:
        """End all samplers and have what they hold in the journal. Never raises; safe to call twice."""
        if self._kernels is not None:
            with self._fence.around("kernels"):
                self._journal.sync()  # its thread shows them the last steps
        with self._fence.around("samplers"):
            if self._recorder is not None:
                self._recorder.stop()

    def record_totals(self) -> None:
        """What is known at the end, once: CPUs kept busy, items kept, checkpoint size, values that ranks exchanged."""
        kept, self._kept = self._kept, None
        if kept is not None:
            for read in (
                kept.most,
                lambda: checkpoint_bytes(self._trainer.checkpoint_callbacks),
                lambda: logged_values(self._trainer) if self.measured.is_fit else {},
            ):
                with self._fence.around("conditions"):
                    if found := read():
                        self._journal.post(Conditions(values=found))
        begin, self._began = self._began, None
        if begin is not None:
            now_ns = time.perf_counter_ns()
            wall_ns = now_ns - begin[0]
            cpus = (time.process_time_ns() - begin[1]) / wall_ns if wall_ns > 0 else None
            self._journal.post(Sample(source="host", subject="training", t_ns=now_ns, values={"process_cpus": cpus}))

    @property
    def samplers_cpu_s(self) -> float:
        """CPU seconds that the samplers have used."""
        return self._recorder.cpu_s if self._recorder is not None else 0.0

    # ----------------------------------------------------------------------------------------------------------------

    def _read_conditions(self, module: pl.LightningModule) -> int | None:
        """Write them down; returns the samples per step over all ranks, if known."""
        samples_per_step: int | None = None
        with self._fence.around("conditions"):
            begin_ns = time.perf_counter_ns()
            found = conditions.collect(self._trainer, module, self.measured.loaders)
            batch_size = found.get("loader.batch_size")
            if isinstance(batch_size, int):
                samples_per_step = batch_size * int(self._trainer.world_size)
            self._journal.post(Conditions(values=found | self.measured.options.targets()))
            self.conditions_s = (time.perf_counter_ns() - begin_ns) / 1e9
        return samples_per_step

    def _watch_gradients(self, module: str) -> None:
        action = f"[LightningModule]{module}.optimizer_zero_grad"
        KeptGradients(
            lambda: self._trainer.optimizers,
            lambda found: self._journal.post(Conditions(values=found)),
        ).watch(partial(self.measured.tap.wrap_action, "main", action))

    def _boundary_with_parts(
        self, module: pl.LightningModule, first_batch: int, samples_per_step: int | None
    ) -> StepBoundary:
        device: DeviceSteps | None = None
        memory: MemoryRecording | None = None
        with self._fence.around("device spans"):
            device = self._device_steps()
        with self._fence.around("memory"):
            memory = MemoryRecording(self.measured, module, self.allocator(self.measured.device))
        return StepBoundary(
            self._clock,
            self.windows,
            self._fence,
            first_batch=first_batch,
            ranges=self.ranges,
            device=device,
            memory=memory,
            scalars=scalar_log_for(self.measured, self.edges, samples_per_step),
        )

    def _device_steps(self) -> DeviceSteps | None:
        events = self.events(self.measured.device)
        if events is None:
            return None
        spans = DeviceSpans(events, on_failure=partial(self._journal.switched_off, "device spans"))
        return DeviceSteps(spans, self._clock, partial(self.measured.tap.wrap_actions, "main"))

    def _start_samplers(self, epoch_ns: int, compiled_before: Counters | None) -> None:
        """Of what is outside of the steps (call sites, compiler, GPUs, host), and those that choose measured steps."""
        options, trainer, clock = self.measured.options, self._trainer, self._clock
        samplers: list[Sampler] = [
            CallSiteSampler(
                threading.get_ident(),
                clock.current_slot,
                charged_since_ns=clock.charged_since_ns,
                on_look=self.timer.look if self.timer is not None else None,
            ),
            CompileSampler(compiled_before, epoch_ns),
        ]
        if (nvml := options.nvml) is not None:
            samplers.append(NvmlSampler(_cuda_uuids(trainer), os.environ, nvml.interval_s, gpm=nvml.gpm))
        if options.host is not None:
            samplers += [
                _host_sampler(options.host.interval_s, lambda: _ranks_started_by(trainer)),
                GcSampler(options.host.interval_s),
            ]
        if options.trace is not None and options.trace.every_kernel:
            if other := other_profiler(self.measured.tap.inner, os.environ):
                self._journal.note("kernels", f"{other} is in use, and CUPTI serves one: kernels are not recorded")
            else:
                self._kernels = KernelSampler(CuptiSource())
                samplers.append(self._kernels)
        samplers += self.boundary.samplers()
        if self.inputs is not None:
            samplers.append(self.inputs.sampler())
        if self._live is not None:
            samplers.append(self._live)
        self._recorder = Recorder(samplers, self._sampled)
        self._recorder.start()

    def _sampled(self, record: Record) -> None:
        """In a sampler's thread."""
        if isinstance(record, Sample):
            self.boundary.take(record)
            if self._live is not None:
                self._live.take(record)
        if isinstance(record, Notice):
            self._journal.notices.append(record)
        self._journal.post(record)


def _host_sampler(interval_s: float, other_ranks: Callable[[], Collection[int]]) -> Sampler:
    if os.path.exists("/proc/self/stat"):  # noqa: PTH110 - asked at the start of each stage
        return HostSampler(interval_s, other_ranks=other_ranks)
    from lightning_gpuprof.capture.host.portable import PortableHostSampler  # psutil takes 20 ms

    return PortableHostSampler(interval_s, other_ranks=other_ranks)


def _cuda_uuids(trainer: Any) -> list[str] | None:
    """Of this process's CUDA device; None where torch does not know: NVML goes by ``CUDA_VISIBLE_DEVICES`` then."""
    try:
        device = trainer.strategy.root_device
        return [str(torch.cuda.get_device_properties(device).uuid)] if device.type == "cuda" else []
    except (AttributeError, RuntimeError, AssertionError) as error:
        if must_propagate(error):
            raise
        return None


def _ranks_started_by(trainer: Any) -> list[int]:
    """Process ids of the other ranks of this host, if Lightning's launcher started them from here."""
    processes = getattr(getattr(trainer.strategy, "launcher", None), "procs", None) or ()
    return [pid for process in processes if isinstance(pid := getattr(process, "pid", None), int)]


def ends_at(trainer: Any) -> tuple[int, str] | None:
    """The number of optimizer steps that training cannot pass, and what sets it.

    Never too low: with manual optimization, loaders without a length or that are made again, and accumulation that
    changes on the way, only ``max_steps`` counts.

    Returns:
        The limit and its cause, e.g. ``(500, "max_steps=500")``, or None if nothing is known.
    """
    limits: list[tuple[int, str]] = []
    if isinstance(trainer.max_steps, int) and trainer.max_steps >= 0:
        limits.append((trainer.max_steps, f"max_steps={trainer.max_steps}"))
    epochs, batches = trainer.max_epochs, trainer.num_training_batches
    counted = (
        trainer.lightning_module.automatic_optimization
        and isinstance(epochs, int)
        and epochs >= 0
        and isinstance(batches, (int, float))
        and math.isfinite(batches)
        and not trainer.reload_dataloaders_every_n_epochs
        and not any("GradientAccumulationScheduler" in (k.__name__ for k in type(c).__mro__) for c in trainer.callbacks)
    )
    if counted:
        steps = math.ceil(batches / trainer.accumulate_grad_batches)
        left = max(0, epochs - trainer.current_epoch)
        limits.append((trainer.global_step + left * steps, f"max_epochs={epochs} with {steps} steps each"))
    return min(limits, default=None)
