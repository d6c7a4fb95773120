"""Now and then a step's actions get edges by which device spans know what their time belongs to.

A sampler's thread gives the beat, so that steps in between cost nothing, and hands over what was read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lightning_gpuprof.capture.device_spans import DeviceSpans
from lightning_gpuprof.capture.recorder import Sampler
from lightning_gpuprof.capture.step_clock import Context, StepClock, is_timed
from lightning_gpuprof.model.journal import DeviceBlock

HAND_OVER_NS = 2_000_000_000
"""What was read is handed over as one record in so long a time."""


@dataclass(eq=False, repr=False, slots=True)
class _Edges:
    """Reports the slot that is current after an action's start and end."""

    _context: Context
    _current: Callable[[], int]
    _edge: Callable[[int], None]

    def __enter__(self) -> object:
        result = self._context.__enter__()
        self._edge(self._current())
        return result

    def __exit__(self, *exc: object) -> bool | None:
        result = self._context.__exit__(*exc)  # type: ignore[arg-type]
        self._edge(self._current())
        return result


@dataclass(eq=False, repr=False)
class DeviceSteps:
    """Wraps the actions of the steps that are measured. No method raises; all belong to the main thread."""

    spans: DeviceSpans
    """Measures them."""
    clock: StepClock
    """Knows the current slot."""
    wrap_actions: Callable[[Callable[[str, Context], Context]], Callable[[], None]]
    """Puts a wrapper around the known actions' contexts and returns the way back."""

    def __post_init__(self) -> None:
        self._edges: dict[Context, Context] = {}
        self._unwrap: Callable[[], None] | None = None
        self._batch = 0

    def begin_step(self, batch: int) -> bool:
        """A step begins; returns whether it is measured, and :meth:`end_step` must be called at its end."""
        if not self.spans.begin_step(batch, self.clock.loop_slot):
            return False
        self._batch = batch
        self._unwrap = self.wrap_actions(self._wrap)
        return True

    def end_step(self) -> None:
        """The step that was measured is over; before anybody else puts the actions' contexts back."""
        unwrap, self._unwrap = self._unwrap, None
        if unwrap is None:
            return
        unwrap()
        self.spans.end_step()

    def end_epoch(self) -> None:
        """The epoch's last step is over; what was begun after it is no step."""
        if self._unwrap is not None and self.clock.counters()[0] != self._batch:
            self.spans.cancel_step()
        self.end_step()

    def close(self) -> None:
        """Training is over; a second call does nothing."""
        self.end_epoch()
        self.spans.close()

    def _wrap(self, action: str, context: Context) -> Context:
        if not is_timed(context):
            return context
        found = self._edges.get(context)
        if found is None:
            found = self._edges[context] = _Edges(context, self.clock.current_slot, self.spans.edge)
        return found


@dataclass(eq=False, repr=False)
class DeviceSpanSampler(Sampler):
    """Has a step measured every now and then, and hands the journal what was read; from a sampler's thread."""

    spans: DeviceSpans
    wake: Callable[[], None]
    """Has the next step's beginning looked at."""

    name = "device spans"

    def __post_init__(self) -> None:
        self._due_ns = 0
        self.interval_s = self.spans.interval_ns / 1e9

    def sample(self, t_ns: int) -> Sequence[DeviceBlock]:
        """Ask for a step, and now and then hand over."""
        self.wake()
        self.interval_s = self.spans.interval_ns / 1e9
        if t_ns < self._due_ns:
            return ()
        self._due_ns = t_ns + HAND_OVER_NS
        return self.close()

    def close(self) -> Sequence[DeviceBlock]:
        """Hand over what is left."""
        block = self.spans.collect()
        return () if block is None else (block,)
