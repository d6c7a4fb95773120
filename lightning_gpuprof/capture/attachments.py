"""What of ours sits in a trainer, in torch's loaders and behind ``annotate`` during a stage, and how it leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lightning_gpuprof.capture.annotated_regions import Recording
from lightning_gpuprof.capture.fence import Fence
from lightning_gpuprof.capture.input.measurement import InputMeasurement
from lightning_gpuprof.capture.lightning_loops import LoopEdges
from lightning_gpuprof.capture.profiler_tap import ProfilerTap


class Attachments:
    """Puts all of it in place and takes all of it back.

    Args:
        trainer: Gets the tap in the place of its profiler.
        tap: That.
        edges: In the trainer's loops.
        annotations: Where annotated regions go.
        inputs: In the loaders' workers; None where they are not measured.
        fence: Keeps failures in.
        notice: Told in a sentence what this version of Lightning does not have.
    """

    def __init__(
        self,
        trainer: Any,
        *,
        tap: ProfilerTap,
        edges: LoopEdges,
        annotations: Recording,
        inputs: InputMeasurement | None,
        fence: Fence,
        notice: Callable[[str], None],
    ) -> None:
        self._trainer: Any = trainer
        self._tap = tap
        self._edges = edges
        self._annotations = annotations
        self._inputs = inputs
        self._fence = fence
        self._notice = notice

    @property
    def tap_in_place(self) -> bool:
        """Whether Lightning talks to our tap; not if somebody put another profiler in its place."""
        return self._trainer.profiler is self._tap

    def attach(self) -> None:
        """From now on the trainer's steps are measured. May raise half-way: :meth:`detach` is for that, too."""
        self._trainer.profiler = self._tap
        self._annotations.begin()
        with self._fence.around("input pipeline"):
            if self._inputs is not None:
                self._inputs.begin()
        if missing := self._edges.attach():
            self._notice("; ".join(missing))

    def detach(self) -> None:
        """All is as it was found. Safe to call twice."""
        # Twice, and each by itself: what failed once in the middle is tried once more.
        for end in 2 * (self._put_profiler_back, self._edges.detach, self._annotations.end, self._end_inputs):
            with self._fence.around("restoring the trainer"):
                end()

    def _put_profiler_back(self) -> None:
        if self.tap_in_place:
            self._trainer.profiler = self._tap.inner

    def _end_inputs(self) -> None:
        if self._inputs is not None:
            self._inputs.end()
