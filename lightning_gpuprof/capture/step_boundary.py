"""Where one step ends and the next begins: what of ours is done there, and the parts of a stage that it is done for."""

from __future__ import annotations

from lightning_gpuprof.capture.device_steps import DeviceSpanSampler, DeviceSteps
from lightning_gpuprof.capture.fence import Fence
from lightning_gpuprof.capture.live_scalars import ScalarLog
from lightning_gpuprof.capture.memory.recording import MemoryRecording
from lightning_gpuprof.capture.nvtx_ranges import NvtxRanges
from lightning_gpuprof.capture.recorder import Sampler
from lightning_gpuprof.capture.step_clock import NEVER, StepClock
from lightning_gpuprof.capture.window_recording import WindowRecording
from lightning_gpuprof.model.journal import Sample

HISTORY_TIMEOUT_S = 1.0
"""For what is still being made of the allocator's history when everything else is over."""


class StepBoundary:
    """Listens to the clock and has the parts that look at single steps begin and end them, in the right order.

    Args:
        clock: Calls at the boundaries that somebody here wants to be called at.
        windows: Trace windows; begun and ended by the caller.
        fence: Keeps failures in.
        first_batch: Number of the first batch of the stage.
        ranges: NVTX ranges, if they are wanted.
        device: Spans on the device's clock, if it has one.
        memory: The recording of memory.
        scalars: Values for the trainer's loggers, if it has any.
    """

    def __init__(
        self,
        clock: StepClock,
        windows: WindowRecording,
        fence: Fence,
        *,
        first_batch: int = 0,
        ranges: NvtxRanges | None = None,
        device: DeviceSteps | None = None,
        memory: MemoryRecording | None = None,
        scalars: ScalarLog | None = None,
    ) -> None:
        self._clock = clock
        self._windows = windows
        self._fence = fence
        self._first_batch = first_batch
        self._ranges = ranges
        self._device = device
        self._memory = memory
        self._scalars = scalars

    def listen(self, windows_wake: int) -> None:
        """The first step is to come; ``windows_wake`` is the optimizer step that the windows wait for."""
        at_once = self._ranges is not None or self._memory is not None
        self._clock.listen(self.at_boundary, 0 if at_once else min(windows_wake, self._log_wake()))

    def at_boundary(self, batch: int, global_step: int, now_ns: int) -> int:
        """A step begins; called by the clock, which wants the ``global_step`` from which on to call again.

        Args:
            batch: Index of the step's batch.
            global_step: Optimizer steps before it.
            now_ns: The clock.
        """
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

    def end_step(self) -> None:
        """A step is over that no other follows at once."""
        if self._memory is not None:
            self._memory.end_step()
        if self._device is not None:
            self._device.end_epoch()
        if self._ranges is not None:
            self._ranges.end_step()

    def steps_end(self) -> None:
        """The last step is over; logging what became due with it is for :meth:`log_last`, once windows have ended."""
        if self._memory is not None:
            self._memory.steps_end()
        self.close_device()

    def log_last(self, global_step: int) -> None:
        """What became due with the very last step."""
        if self._log_wake() < NEVER:
            self._log_scalars(global_step)

    def close_device(self) -> None:
        """No more device spans; a second call does nothing."""
        if self._device is not None:
            self._device.close()

    def close(self) -> None:
        """Nothing of memory and device spans stays. Safe to call twice."""
        for _ in range(2):  # what failed once is tried once more
            with self._fence.around("memory: closing"):
                if self._memory is not None:
                    self._memory.close()
                    self._memory.wait(HISTORY_TIMEOUT_S)
        with self._fence.around("device spans"):
            self.close_device()

    def samplers(self) -> list[Sampler]:
        """Beside the steps, those that say which of them are measured."""
        samplers: list[Sampler] = []
        if self._device is not None:
            samplers.append(DeviceSpanSampler(self._device.spans, self._clock.wake))
        if self._memory is not None:
            samplers.append(self._memory.sampler)
        return samplers

    def take(self, sample: Sample) -> None:
        """A reading for the loggers; on any thread."""
        if (scalars := self._scalars) is not None:
            scalars.take(sample)

    def out_of_memory(self, error: BaseException) -> None:
        """Training ends with an exception, which is only looked at."""
        if self._memory is not None:
            self._memory.out_of_memory(error)

    def wait(self, timeout_s: float) -> None:
        """Wait for what is being made of the allocator's history, at most so long."""
        with self._fence.around("memory"):
            if self._memory is not None:
                self._memory.wait(timeout_s)

    def _log_wake(self) -> int:
        return NEVER if self._scalars is None else self._scalars.wake

    def _log_scalars(self, global_step: int) -> None:
        with self._fence.around("scalars"):
            if self._scalars is not None:
                self._scalars.log_if_due(global_step)
        if self._fence.failed("scalars"):
            self._scalars = None
