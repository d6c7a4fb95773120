"""What of ours sits in a trainer, in torch's loaders and behind ``annotate`` during a stage, and how it leaves."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from lightning_gpuprof.capture.annotated_regions import Recording
from lightning_gpuprof.capture.fence import Fence
from lightning_gpuprof.capture.input.measurement import InputMeasurement
from lightning_gpuprof.capture.lightning_loops import LoopEdges
from lightning_gpuprof.capture.line_timer import LineTimer
from lightning_gpuprof.capture.profiler_tap import ProfilerTap


@dataclass(eq=False, repr=False)
class Attachments:
    """Puts all of it in place and takes all of it back."""

    trainer: Any
    """Gets the tap in the place of its profiler."""
    _: KW_ONLY
    tap: ProfilerTap
    edges: LoopEdges
    """In the trainer's loops."""
    annotations: Recording
    """Where annotated regions go."""
    inputs: InputMeasurement | None
    """In the loaders' workers; None where they are not measured."""
    lines: LineTimer | None
    """Around the functions of ``lines=``; None where there are none."""
    fence: Fence
    notice: Callable[[str], None]
    """Called with a sentence that says what this version of Lightning does not have."""

    @property
    def tap_in_place(self) -> bool:
        """Whether Lightning talks to our tap; not if somebody put another profiler in its place."""
        return self.trainer.profiler is self.tap

    def attach(self) -> None:
        """From now on the trainer's steps are measured. May raise half-way: :meth:`detach` is for that, too."""
        self.trainer.profiler = self.tap
        self.annotations.begin()
        with self.fence.around("input pipeline"):
            if self.inputs is not None:
                self.inputs.begin()
        with self.fence.around("lines"):
            if self.lines is not None:
                self.lines.begin()
        if missing := self.edges.attach():
            self.notice("; ".join(missing))

    def detach(self) -> None:
        """All is as it was found. Safe to call twice."""
        # Twice, and each by itself: what failed once in the middle is tried once more.
        ends = self._put_profiler_back, self.edges.detach, self.annotations.end, self._end_inputs, self._end_lines
        for end in 2 * ends:
            with self.fence.around("restoring the trainer"):
                end()

    def _put_profiler_back(self) -> None:
        if self.tap_in_place:
            self.trainer.profiler = self.tap.inner

    def _end_lines(self) -> None:
        if self.lines is not None:
            self.lines.end()

    def _end_inputs(self) -> None:
        if self.inputs is not None:
            self.inputs.end()
