"""Mean phase times since the last log interval, for the trainer's loggers, on the trainer's own step axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lightning_gpuprof.capture.lightning_loops import LoopEdges
from lightning_gpuprof.capture.step_clock import ClosedStep, StepClock
from lightning_gpuprof.model.journal import PROFILED, Sample, Slot
from lightning_gpuprof.model.phases import PHASES

NS_PER_MS = 1e6

MAX_RECENT_STEPS = 1024
"""Live values are means over at most so many steps."""


class ScalarLog:
    """Gives the trainer's loggers our values whenever it has just given them its own.

    Args:
        trainer: The trainer, whose loggers are there.
        clock: Its finished steps are averaged.
        edges: Know the loggers' step axis.
        every: Steps from one log to the next.
        samples_per_step: Samples per step over all ranks, if known.
    """

    def __init__(
        self, trainer: Any, clock: StepClock, edges: LoopEdges, every: int, samples_per_step: int | None
    ) -> None:
        self._trainer = trainer
        self._clock = clock
        self._edges = edges
        self._every = every
        self._samples_per_step = samples_per_step
        self._recent = clock.keep_recent(MAX_RECENT_STEPS)
        self._latest: dict[str, Sample] = {}
        self.wake = 0
        """The optimizer step from which on to look again."""

    def take(self, sample: Sample) -> None:
        """The newest reading of a GPU; on any thread."""
        self._latest[sample.subject] = sample

    def log_if_due(self, global_step: int) -> None:
        """Log if the trainer has just logged."""
        stepped = self._edges.batches_that_stepped
        to_go = self._every - stepped % self._every
        if stepped and to_go == self._every:
            steps = [self._recent.popleft() for _ in range(len(self._recent))]
            scalars = step_scalars(steps, self._clock.slots, self._samples_per_step)
            if scalars:
                scalars |= device_scalars(list(self._latest.values()))
            for logger in self._trainer.loggers if scalars else ():
                logger.log_metrics(scalars, step=stepped - 1)  # the step that the trainer's own metrics just got
        # With manual optimization several or no optimizer steps go into a batch: look at every one.
        self.wake = global_step + to_go if self._trainer.lightning_module.automatic_optimization else global_step


def step_scalars(steps: Sequence[ClosedStep], slots: Sequence[Slot], samples_per_step: int | None) -> dict[str, float]:
    """Means over steps that were not traced.

    Args:
        steps: Finished steps since the last interval.
        slots: The clock's slots.
        samples_per_step: Samples per step over all ranks, if known.

    Returns:
        ``gpuprof/step_ms``, ``gpuprof/<phase>_ms`` for phases with time, ``gpuprof/samples_per_s``;
        empty without steps.
    """
    plain = [s for s in steps if not s.flags & PROFILED]
    if not plain:
        return {}
    n = len(plain)
    by_phase = dict.fromkeys(PHASES, 0)
    width = len(plain[-1].charged)
    rows = [s.charged if len(s.charged) == width else s.charged + [0] * (width - len(s.charged)) for s in plain]
    for slot, column in zip(slots, zip(*rows, strict=True), strict=False):
        by_phase[slot.step_phase] += sum(column)
    total_ns = sum(s.end_ns - s.start_ns for s in plain)
    scalars = {"gpuprof/step_ms": total_ns / n / NS_PER_MS}
    scalars |= {f"gpuprof/{phase}_ms": ns / n / NS_PER_MS for phase, ns in by_phase.items() if ns}
    if samples_per_step and total_ns:
        scalars["gpuprof/samples_per_s"] = samples_per_step * n / (total_ns / 1e9)
    return scalars


def device_scalars(latest: Sequence[Sample]) -> dict[str, float]:
    """The newest reading of each GPU: ``gpuprof/<gpu>/<value with unit>``; nothing for what was not read."""
    return {
        f"gpuprof/{sample.subject}/{name}": value
        for sample in latest
        for name, value in sample.values.items()
        if value is not None
    }
