"""The time between the edges of a sampled step on the device's own clock, without ever waiting for it.

An event is recorded on the main thread's current stream at each edge. Sampled steps later, when all events of a
step have been passed by the device, the times between neighbours are read. A span thus begins when the device has done
what was queued before the edge, and contains the gaps in which the device waits for the host's next launch.

Everything that touches the device happens on the main thread, which alone knows that it is not capturing a CUDA
graph: to query an event in another thread breaks a capture that is going on (pytorch/pytorch#104555, #148594; with ROCm
even one in thread-local mode, #176251). Other threads only fetch what was read, see :meth:`DeviceSpans.collect`.
"""

import itertools
import time
from collections import deque
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

import msgspec
import torch

from lightning_gpuprof.model.journal import DeviceBlock

EVERY_NS = 100_000_000
"""At most one step in so long a time is measured: an event costs 2 to 5 µs, a step has some thirty edges."""

DENSE_STEPS = 1000
"""After so many measured steps one in ten times as long a time has to do, so that long runs do not pile up numbers."""

MAX_PENDING = 64
"""Steps whose events the device has not passed yet; more are not begun, so that memory stays bounded."""

MAX_EDGES = 256
"""A step with more edges is given up: it holds a validation, and is no step that statistics rest on."""

_BACKLOG, _CAPTURING, _UNUSABLE = range(3)

MAX_READS = 2
"""Steps that are read in one go, so that a backlog is caught up with but no single step pays for it."""

TIMED_DEVICES = ("cuda", "xpu")
"""Device types whose events answer without waiting. Not ``mps``: its ``elapsed_time`` synchronises (torch 2.13); not
``cpu``: an event can be made there, but not recorded. What nobody has looked at stays off."""


class DeviceEvents(msgspec.Struct, frozen=True, kw_only=True):
    """Timed events of one device; :func:`backend_for` makes it. Nothing that is asked of one waits for the device."""

    new_event: Callable[[], torch.Event]
    """The driver's part of an event is made when it is recorded for the first time."""
    is_capturing: Callable[[], bool]
    """Whether the current stream is being captured into a graph, which an event would become part of."""


def backend_for(device: torch.device) -> DeviceEvents | None:
    """Events of the trainer's device, or None where there are none that can be read without waiting.

    Never initialises a device: one that is not in use yet has no events.
    """
    if device.type not in TIMED_DEVICES or not hasattr(torch, "Event"):
        return None
    module: Any = getattr(torch, device.type, None)
    if module is None or not module.is_initialized():
        return None
    return DeviceEvents(
        new_event=partial(torch.Event, device, enable_timing=True),
        is_capturing=getattr(module, "is_current_stream_capturing", bool),
    )


@dataclass(eq=False, repr=False)
class DeviceSpans:
    """Measures one step at a time; all methods but :meth:`collect` belong to the main thread, and none raises."""

    backend: DeviceEvents
    """Events of the device."""
    _: KW_ONLY
    on_failure: Callable[[Exception], None]
    """Called once when the device fails; nothing is measured from then on."""
    every_ns: int = EVERY_NS
    """At most one step in so many ns is measured."""
    max_pending: int = MAX_PENDING
    """Steps that may wait to be read."""
    now: Callable[[], int] = time.perf_counter_ns
    """Monotonic clock in ns."""

    def __post_init__(self) -> None:
        self._due_ns = 0
        self._begun = 0
        self._off = False
        self._open = False
        self._batch = 0
        self._slots: list[int] = []
        self._events: list[torch.Event] = []
        """The i-th event of the open step begins the time of the i-th slot; all of them are recorded."""
        self._free: list[torch.Event] = []
        self._pending: deque[tuple[int, list[int], list[torch.Event]]] = deque()
        """Batch, slots and events of steps that are over; one event more than slots."""
        self._read: deque[tuple[int, dict[int, int]]] = deque()
        self._dropped = [0, 0, 0]
        self._reported = [0, 0, 0]
        """Of ``_dropped``, what :meth:`collect` has handed over."""

    @property
    def interval_ns(self) -> int:
        """At most one step in so long a time is measured from now on."""
        return self.every_ns if self._begun < DENSE_STEPS else 10 * self.every_ns

    def begin_step(self, batch: int, slot: int) -> bool:
        """A step begins, and its time belongs to ``slot`` at first.

        Args:
            batch: Index of the step's batch.
            slot: Id of the first slot.

        Returns:
            Whether the step is measured: not before the interval is over, nor while too many others are to be read.
        """
        self.end_step()
        now_ns = self.now()
        if now_ns < self._due_ns:
            return False
        self._due_ns = now_ns + self.interval_ns
        self.read(MAX_READS)
        if self._off:
            return False
        if len(self._pending) >= self.max_pending:
            self._dropped[_BACKLOG] += 1
            return False
        self._open = True
        self._begun += 1
        self._batch = batch
        self._mark(slot)
        return self._open

    def edge(self, slot: int) -> None:
        """From now on time belongs to ``slot``."""
        try:
            if self._open and slot != self._slots[-1]:
                self._mark(slot)
        except Exception as error:
            self._switch_off(error)

    def end_step(self) -> None:
        """The step is over; without an open one nothing happens."""
        if not self._open:
            return
        self._mark(-1)
        if self._open:
            self._open = False
            self._slots.pop()
            self._pending.append((self._batch, self._slots, self._events))
            self._slots, self._events = [], []

    def cancel_step(self) -> None:
        """What was begun is no step."""
        if self._open:
            self._abandon()

    def close(self) -> None:
        """Training is over: read what is done; what is not is dropped."""
        self.cancel_step()
        self.read(len(self._pending))
        self._dropped[_BACKLOG] += len(self._pending)
        self._off = True
        self._pending.clear()
        self._free.clear()

    def read(self, most: int) -> None:
        """Read at most so many steps, of those that the device is done with."""
        if not self._pending:
            return
        try:
            if self.backend.is_capturing():
                return
            waiting: list[tuple[int, list[int], list[torch.Event]]] = []
            while self._pending and most > 0:
                step = self._pending.popleft()
                batch, slots, events = step
                # The last is asked first. The others, too: on another stream an earlier one may be done later.
                if not (events[-1].query() and all(event.query() for event in events)):
                    waiting.append(step)
                    continue
                most -= 1
                # The driver resolves about half a microsecond.
                spans = [round(first.elapsed_time(second) * 1e6) for first, second in itertools.pairwise(events)]
                self._free += events
                if min(spans) < 0:
                    self._dropped[_UNUSABLE] += 1
                else:
                    self._read.append((batch, _by_slot(slots, spans)))
            self._pending.extendleft(reversed(waiting))
        except Exception as error:
            self._switch_off(error)

    def collect(self) -> DeviceBlock | None:
        """Take what was read since the call before; None if there is nothing. For one other thread."""
        steps = [self._read.popleft() for _ in range(len(self._read))]
        dropped = self._dropped.copy()
        news = [count - before for count, before in zip(dropped, self._reported, strict=True)]
        self._reported = dropped
        if not steps and not any(news):
            return None
        used = sorted({slot for _, charged in steps for slot in charged})
        return DeviceBlock(
            batch=[batch for batch, _ in steps],
            charged={slot: [charged.get(slot, 0) for _, charged in steps] for slot in used},
            dropped_backlog=news[_BACKLOG],
            dropped_capturing=news[_CAPTURING],
            dropped_unusable=news[_UNUSABLE],
        )

    def _mark(self, slot: int) -> None:
        try:
            if self.backend.is_capturing():
                self._abandon()
                self._dropped[_CAPTURING] += 1
                return
            if len(self._events) >= MAX_EDGES:
                self._abandon()
                self._dropped[_UNUSABLE] += 1
                return
            event = self._free.pop() if self._free else self.backend.new_event()
            event.record()
        except Exception as error:
            self._switch_off(error)
            return
        self._slots.append(slot)
        self._events.append(event)

    def _abandon(self) -> None:
        self._open = False
        self._free += self._events
        self._slots, self._events = [], []

    def _switch_off(self, error: Exception) -> None:
        self._off = True
        self._open = False
        self._slots, self._events = [], []
        self._pending.clear()
        self._free.clear()
        self.on_failure(error)


def _by_slot(slots: list[int], spans: list[int]) -> dict[int, int]:
    charged: dict[int, int] = {}
    for slot, span in zip(slots, spans, strict=True):
        charged[slot] = charged.get(slot, 0) + span
    return charged
