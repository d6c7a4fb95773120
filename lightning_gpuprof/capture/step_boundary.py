"""Where one step ends and the next begins: what of ours is done there, and the parts of a stage that it is done for."""

from dataclasses import KW_ONLY, dataclass

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


@dataclass(eq=False, repr=False)
class StepBoundary:
    """Listens to the clock and has the parts that look at single steps begin and end them, in the right order."""

    clock: StepClock
    """Calls at the boundaries that somebody here wants to be called at."""
    windows: WindowRecording
    """Trace windows; begun and ended by the caller."""
    fence: Fence
    _: KW_ONLY
    first_batch: int = 0
    """Number of the first batch of the stage."""
    ranges: NvtxRanges | None = None
    """NVTX ranges, if they are wanted."""
    device: DeviceSteps | None = None
    """Spans on the device's clock, if it has one."""
    memory: MemoryRecording | None = None
    """The recording of memory."""
    scalars: ScalarLog | None = None
    """Values for the trainer's loggers, if it has any."""

    def listen(self, windows_wake: int) -> None:
        """The first step is to come; ``windows_wake`` is the optimizer step that the windows wait for."""
        at_once = self.ranges is not None or self.memory is not None
        self.clock.listen(self.at_boundary, 0 if at_once else min(windows_wake, self._log_wake()))

    def at_boundary(self, batch: int, global_step: int, now_ns: int) -> int:
        """A step begins; called by the clock.

        Args:
            batch: Index of the step's batch.
            global_step: Optimizer steps before it.
            now_ns: The clock.

        Returns:
            The ``global_step`` from which on to be called again; 0: at the next step.
        """
        device, ranges, memory = self.device, self.ranges, self.memory
        if memory is not None:
            memory.end_step()
        if device is not None:
            device.end_step()
        windows_wake = self.windows.at_boundary(batch, global_step, now_ns)
        if global_step >= self._log_wake():
            self._log_scalars(global_step)
        if ranges is not None:
            ranges.begin_step(batch)
        tracing = self.windows.tracing
        again = ranges is not None
        # the actions of a step are known from the first one
        if device is not None and not tracing and batch > self.first_batch and device.begin_step(batch):
            again = True
        if memory is not None and memory.begin_step(batch, tracing=tracing):
            again = True
        return 0 if again else min(windows_wake, self._log_wake())

    def end_step(self) -> None:
        """A step is over that no other follows at once."""
        if self.memory is not None:
            self.memory.end_step()
        if self.device is not None:
            self.device.end_epoch()
        if self.ranges is not None:
            self.ranges.end_step()

    def steps_end(self) -> None:
        """The last step is over; logging what became due with it is for :meth:`log_last`, once windows have ended."""
        if self.memory is not None:
            self.memory.steps_end()
        self.close_device()

    def log_last(self, global_step: int) -> None:
        """What became due with the very last step."""
        if self._log_wake() < NEVER:
            self._log_scalars(global_step)

    def close_device(self) -> None:
        """No more device spans; a second call does nothing."""
        if self.device is not None:
            self.device.close()

    def close(self) -> None:
        """Nothing of memory and device spans stays. Safe to call twice."""
        for _ in range(2):  # what failed once is tried once more
            with self.fence.around("memory: closing"):
                if self.memory is not None:
                    self.memory.close()
                    self.memory.wait(HISTORY_TIMEOUT_S)
        with self.fence.around("device spans"):
            self.close_device()

    def samplers(self) -> list[Sampler]:
        """Beside the steps, those that say which of them are measured."""
        samplers: list[Sampler] = []
        if self.device is not None:
            samplers.append(DeviceSpanSampler(self.device.spans, self.clock.wake))
        if self.memory is not None:
            samplers.append(self.memory.sampler)
        return samplers

    def take(self, sample: Sample) -> None:
        """A reading for the loggers; on any thread."""
        if (scalars := self.scalars) is not None:
            scalars.take(sample)

    def out_of_memory(self, error: BaseException) -> None:
        """Training ends with an exception, which is only looked at."""
        if self.memory is not None:
            self.memory.out_of_memory(error)

    def wait(self, timeout_s: float) -> None:
        """Wait for what is being made of the allocator's history, at most so long."""
        with self.fence.around("memory"):
            if self.memory is not None:
                self.memory.wait(timeout_s)

    def _log_wake(self) -> int:
        return NEVER if self.scalars is None else self.scalars.wake

    def _log_scalars(self, global_step: int) -> None:
        with self.fence.around("scalars"):
            if self.scalars is not None:
                self.scalars.log_if_due(global_step)
        if self.fence.failed("scalars"):
            self.scalars = None
