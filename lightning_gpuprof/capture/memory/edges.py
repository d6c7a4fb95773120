"""Reads the allocator's counters at the ends of phases in sampled steps; all other steps cost nothing.

One reading costs about 20 µs (a hundred Python numbers are made for it), so that a sampled step is read at one phase's
end, the next one at the next phase's. Only the first steps, which no statistic rests on, are read at each of them: that
is where the run's peak is usually reached, and two neighbours show in which phase it rose.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, NamedTuple

from lightning_gpuprof.capture.memory.backend import Allocator
from lightning_gpuprof.capture.step_clock import Context, is_timed
from lightning_gpuprof.model.memory import MEMORY_PHASES, MemoryPhase

FULL_STEPS = 3
"""So many first steps are read at every phase's end: the optimizer's state is made in the first of them."""

MAX_READINGS = 4096
"""What nobody fetches is dropped, the oldest first."""


class EdgeReading(NamedTuple):
    """The allocator at one phase's end."""

    batch: int
    phase: MemoryPhase
    t_ns: int
    counters: Mapping[str, Any]
    gradients_live: bool | None
    """Whether there are gradients at this moment; None if unknown."""


class PhaseMark(NamedTuple):
    """When a phase ended on the calendar's clock, by which the allocator's history counts."""

    unix_ns: int
    phase: MemoryPhase


def ending_actions(strategy: str, module: str, *, manual: bool) -> dict[MemoryPhase, str]:
    """Lightning's action with which each phase of a training step ends (names unchanged in 2.0 to 2.6).

    Args:
        strategy: Class of the strategy.
        module: Class of the LightningModule.
        manual: Manual optimization is in use: only hooks show a backward, and nothing shows clearing gradients.

    Returns:
        In the order of a step, without ``step``; with manual optimization without ``zero_grad``, too.
    """
    found: dict[MemoryPhase, str] = {
        "h2d": f"[Strategy]{strategy}.batch_to_device",
        "forward": f"[Strategy]{strategy}.training_step",
    }
    if manual:
        found["backward"] = f"[LightningModule]{module}.on_after_backward"
        found["optimizer"] = "optimizer_step"
    else:
        found["zero_grad"] = f"[LightningModule]{module}.optimizer_zero_grad"
        found["backward"] = f"[Strategy]{strategy}.backward"
        found["optimizer"] = f"[LightningModule]{module}.optimizer_step"
    return found


@dataclass(eq=False, repr=False, slots=True)
class _Edge:
    """Reports an action's end."""

    _context: Context
    _phase: MemoryPhase
    _edge: Callable[[MemoryPhase, object], None]

    def __enter__(self) -> object:
        return self._context.__enter__()

    def __exit__(self, *exc: object) -> bool | None:
        result = self._context.__exit__(*exc)  # type: ignore[arg-type]
        self._edge(self._phase, exc[0] if exc else None)
        return result


@dataclass(eq=False, repr=False)
class MemoryEdges:
    """Reads the allocator in the steps that :meth:`ask` asks for. All else belongs to the main thread.

    No method of the main thread's raises.
    """

    backend: Allocator
    _: KW_ONLY
    endings: Mapping[MemoryPhase, str]
    """The action with which each phase ends."""
    wrap_action: Callable[[str, Callable[[Context], Context]], Callable[[], None]]
    """Puts a wrapper around one action's contexts and returns the way back."""
    on_failure: Callable[[Exception], None]
    """Called once; nothing is read from then on."""
    now: Callable[[], int] = time.perf_counter_ns
    """The run's clock in ns."""

    def __post_init__(self) -> None:
        self.readings: deque[EdgeReading] = deque(maxlen=MAX_READINGS)
        """Whoever takes one removes it."""
        self.marks: list[PhaseMark] = []
        self.witness: Callable[[], Any] | None = None
        """A parameter that gets gradients."""
        self._order = [phase for phase in MEMORY_PHASES if phase == "step" or phase in self.endings]
        self._asked = False
        self._off = False
        self._steps = 0
        self._rotation = 0
        self._batch = 0
        self._waiting: set[MemoryPhase] = set()
        self._unwrap: list[Callable[[], None]] = []
        self._edges: dict[tuple[Context, MemoryPhase], Context] = {}
        self._marking = False

    def ask(self) -> None:
        """Have the next step read; from any thread."""
        self._asked = True

    @property
    def is_waiting(self) -> bool:
        """Whether the next boundary is to be reported in any case."""
        return not self._off and (self._steps < FULL_STEPS or bool(self._unwrap))

    def begin_step(self, batch: int) -> None:
        """A step begins; it is read if it is one of the first or was asked for."""
        whole = self._steps < FULL_STEPS
        if self._off or not (whole or self._asked):
            return
        self._steps += 1
        try:
            self._asked = False
            self._batch = batch
            if whole:
                self._read("step")  # the end of the step before
                self._watch(self.endings)
                return
            phase = self._order[self._rotation % len(self._order)]
            self._rotation += 1
            if phase == "step":
                self._read(phase)
            else:
                self._watch({phase: self.endings[phase]})
        except Exception as error:
            self._switch_off(error)

    def mark_step(self) -> None:
        """A step begins in which only the times of the phases' ends are noted."""
        if self._off:
            return
        try:
            self._marking = True
            self.marks.append(PhaseMark(time.time_ns(), "step"))
            self._watch(self.endings)
        except Exception as error:
            self._switch_off(error)

    def end_step(self) -> None:
        """The step is over; before anybody else puts the actions' contexts back. A second call does nothing."""
        self._waiting.clear()
        self._marking = False
        unwrap, self._unwrap = self._unwrap, []
        failure: Exception | None = None
        for back in reversed(unwrap):
            try:
                back()
            except Exception as error:
                failure = failure or error
        if failure is not None:
            self._switch_off(failure)

    def take_marks(self) -> list[PhaseMark]:
        """All marks so far; they are forgotten here."""
        marks, self.marks = self.marks, []
        return marks

    def _watch(self, endings: Mapping[MemoryPhase, str]) -> None:
        self._waiting = set(endings)
        for phase, action in endings.items():
            self._unwrap.append(self.wrap_action(action, partial(self._edge_of, phase)))

    def _edge_of(self, phase: MemoryPhase, context: Context) -> Context:
        if not is_timed(context):
            return context
        key = (context, phase)
        found = self._edges.get(key)
        if found is None:
            found = self._edges[key] = _Edge(context, phase, self._edge)
        return found

    def _edge(self, phase: MemoryPhase, error: object) -> None:
        try:
            if error is not None:
                return
            if self._marking:
                self.marks.append(PhaseMark(time.time_ns(), phase))
            elif phase in self._waiting:
                self._waiting.discard(phase)
                self._read(phase)
        except Exception as failure:
            self._switch_off(failure)

    def _read(self, phase: MemoryPhase) -> None:
        counters = self.backend.read()
        self.readings.append(EdgeReading(self._batch, phase, self.now(), counters, self._gradients_live()))

    def _gradients_live(self) -> bool | None:
        parameter = None if self.witness is None else self.witness()
        return None if parameter is None else parameter.grad is not None

    def _switch_off(self, error: Exception) -> None:
        self._waiting.clear()
        if not self._off:
            self._off = True
            self.on_failure(error)
