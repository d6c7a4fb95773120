"""What of ours sits in a trainer, in torch's loaders and behind ``annotate`` during a stage, and how it leaves."""

from collections.abc import Callable, Mapping
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
    others: Mapping[str, InputMeasurement | LineTimer]
    """By what the fence calls them: in the loaders' workers, and around the functions of ``lines=``."""
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
        for name, other in self.others.items():
            with self.fence.around(name):
                other.begin()
        if missing := self.edges.attach():
            self.notice("; ".join(missing))

    def detach(self) -> None:
        """All is as it was found. Safe to call twice."""
        # Twice, and each by itself: what failed once in the middle is tried once more.
        ends = [self._put_profiler_back, self.edges.detach, self.annotations.end]
        for end in 2 * (ends + [other.end for other in self.others.values()]):
            with self.fence.around("restoring the trainer"):
                end()

    def _put_profiler_back(self) -> None:
        if self.tap_in_place:
            self.trainer.profiler = self.tap.inner
