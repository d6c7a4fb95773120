"""Mean phase times since the last log interval, for the trainer's loggers, on the trainer's own step axis."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from lightning_gpuprof.capture.fence import Fence, logger_part
from lightning_gpuprof.capture.lightning_loops import LoopEdges, untimed
from lightning_gpuprof.capture.measured_stage import MeasuredStage
from lightning_gpuprof.capture.step_clock import ClosedStep, StepClock
from lightning_gpuprof.model.journal import PROFILED, Sample, Slot
from lightning_gpuprof.model.phases import PHASES

NS_PER_MS = 1e6

STALE_NS = 60_000_000_000
"""What was not read for so long is logged no more; the rarest values of a run's first hours are read each 30 s."""

MAX_RECENT_STEPS = 1024
"""Live values are means over at most so many steps."""

_PHASES = ("data_wait", "h2d", "forward", "backward", "optimizer", "callbacks", "validation")
_SAMPLED = {
    ("nvml", ""): ("utilization_ratio", "memory_used_bytes", "power_w", "sm_clock_mhz"),
    ("host", "process"): ("cpu_cpus",),
    ("host", "host"): ("memory_available_bytes",),
}
"""Values that loggers get unless they are to get all: a dozen curves on a machine with one GPU. Of every subject where
none is named."""


@dataclass(eq=False, repr=False)
class ScalarLog:
    """Gives the trainer's loggers our values whenever it has just given them its own."""

    trainer: Any
    """The trainer, whose loggers are there."""
    clock: StepClock
    """Its finished steps are averaged."""
    edges: LoopEdges
    """Know the loggers' step axis."""
    every: int
    """Steps from one log to the next."""
    samples_per_step: int | None
    """Samples per step over all ranks, if known."""
    _: KW_ONLY
    fence: Fence
    """Around each logger: one that raises gets nothing more, the others do."""
    verbose: bool = False
    """Log every phase and every sampled value."""
    now: Callable[[], int] = time.perf_counter_ns
    """The run's clock in ns."""

    def __post_init__(self) -> None:
        self._recent = self.clock.keep_recent(MAX_RECENT_STEPS)
        self._failed: list[object] = []
        """Loggers that raised."""
        self._latest: dict[tuple[str, str], dict[str, tuple[int, float]]] = {}
        """When each value was read last, and what it was."""
        self.wake = 0
        """The optimizer step from which on to look again."""

    def take(self, sample: Sample) -> None:
        """A reading; on any thread. Of each value the newest counts: some are read less often than others."""
        key = sample.source, sample.subject
        wanted = sample.values if self.verbose else _selected_values(sample)
        known = {name: (sample.t_ns, value) for name, value in wanted.items() if value is not None}
        if known:
            self._latest[key] = {**self._latest.get(key, {}), **known}

    def log_if_due(self, global_step: int) -> None:
        """Log if the trainer has just logged."""
        stepped = self.edges.batches_that_stepped
        to_go = self.every - stepped % self.every
        if stepped and to_go == self.every:
            steps = [self._recent.popleft() for _ in range(len(self._recent))]
            scalars = step_scalars(steps, self.clock.slots, self.samples_per_step, verbose=self.verbose)
            if scalars:
                scalars |= sampled_scalars(self._latest.copy(), since_ns=self.now() - STALE_NS)
            for logger in self.trainer.loggers if scalars else ():
                self._log_to(logger, scalars, stepped - 1)  # the step that the trainer's own metrics just got
        # With manual optimization several or no optimizer steps go into a batch: look at every one.
        self.wake = global_step + to_go if self.trainer.lightning_module.automatic_optimization else global_step

    def _log_to(self, logger: Any, scalars: dict[str, float], step: int) -> None:
        if any(failed is logger for failed in self._failed):
            return
        given = False
        with self.fence.around(logger_part(logger)):
            untimed(logger.log_metrics)(metrics=scalars.copy(), step=step)  # it is our time, not the run's logging
            given = True
        if not given:
            self._failed.append(logger)


def scalar_log_for(measured: MeasuredStage, edges: LoopEdges, samples_per_step: int | None) -> ScalarLog | None:
    """The log of live scalars that the options ask for.

    Args:
        measured: The stage.
        edges: Know the loggers' step axis.
        samples_per_step: Samples of all ranks in a step; None is not known.

    Returns:
        None without loggers, on other ranks than the first, outside of ``fit``, and where nothing is ever logged.
    """
    trainer, options = measured.trainer, measured.options
    every = options.log_every_n_steps or getattr(trainer, "log_every_n_steps", 0) or 0
    if not (measured.is_fit and every and trainer.loggers and trainer.is_global_zero):
        return None
    return ScalarLog(
        trainer, measured.clock, edges, every, samples_per_step, fence=measured.fence, verbose=options.verbose
    )


def step_scalars(
    steps: Sequence[ClosedStep], slots: Sequence[Slot], samples_per_step: int | None, *, verbose: bool = False
) -> dict[str, float]:
    """Means over steps that were not traced.

    Args:
        steps: Finished steps since the last interval.
        slots: The clock's slots.
        samples_per_step: Samples per step over all ranks, if known.
        verbose: Also the phases that hardly ever matter.

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
    scalars |= {
        f"gpuprof/{phase}_ms": ns / n / NS_PER_MS
        for phase, ns in by_phase.items()
        if ns and (verbose or phase in _PHASES)
    }
    if samples_per_step and total_ns:
        scalars["gpuprof/samples_per_s"] = samples_per_step * n / (total_ns / 1e9)
    return scalars


def sampled_scalars(
    latest: Mapping[tuple[str, str], Mapping[str, tuple[int, float]]], *, since_ns: int
) -> dict[str, float]:
    """The newest readings, under the names that loggers get.

    Args:
        latest: When each value was read, and what it was, by source and subject.
        since_ns: What was not read since then is not known any more: a GPU may have gone.

    Returns:
        ``gpuprof/<subject>/<value with unit>`` → value, by source and subject; nothing for what was not read.
    """
    return {
        f"gpuprof/{subject.replace(' ', '/')}/{name}": value
        for (_, subject), values in sorted(latest.items())
        for name, (t_ns, value) in values.items()
        if t_ns >= since_ns
    }


def _selected_values(sample: Sample) -> dict[str, float | None]:
    names = _SAMPLED.get((sample.source, sample.subject)) or _SAMPLED.get((sample.source, "")) or ()
    return {name: sample.values[name] for name in names if name in sample.values}
