"""The clock that charges every nanosecond of a fit to exactly one slot, and cuts the time into steps and segments.

Flow: action edges call :meth:`Timed.__enter__` / ``__exit__``; each edge charges the time since the last edge to the
slot that was current (exclusive accounting on a stack). At a boundary the charges so far become a step or a segment
and go to ``closed``, a queue that the journal's thread empties.

Why closures: an edge runs about fifty times a step. State in closure cells costs half of what attributes do, and one
small class per slot lets ``with`` find the functions without binding arguments.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from lightning_gpuprof.model.journal import CPU_SAMPLED, FIRST_OF_EPOCH, LAST_OF_EPOCH, Slot
from lightning_gpuprof.model.phases import Phase, Region, SegmentKind

Context = AbstractContextManager[object]

_ANYTHING: Callable[..., str] = "".format
"""A C function that takes any arguments and returns something false: half the price of an empty Python function."""


def _new_context(enter: Callable[..., object], leave: Callable[..., object]) -> Context:
    kind = type("Timed", (), {"__slots__": (), "__enter__": enter, "__exit__": leave})
    context: Context = kind()
    return context


NULL_CONTEXT = _new_context(staticmethod(_ANYTHING), staticmethod(_ANYTHING))
"""For actions that are not timed: one shared object, no Python frame."""


class ClosedStep(NamedTuple):
    """One finished step as the clock hands it over; ``charged`` and ``cpu_charged`` are indexed by slot id, ns."""

    batch: int
    start_ns: int
    end_ns: int
    global_step: int
    epoch: int
    flags: int
    charged: list[int]
    cpu_charged: list[int] | None
    run_delay_ns: int
    """In steps that sample CPU time: how long the thread was ready to run but had no CPU; -1 if not known."""


class ClosedSegment(NamedTuple):
    """Finished time outside the steps."""

    kind: SegmentKind
    start_ns: int
    end_ns: int
    epoch: int
    charged: list[int]


class BoundaryListener(Protocol):
    """Called on the training thread at a step's start, once ``global_step`` has reached the step it asked for."""

    def __call__(self, batch: int, global_step: int, now_ns: int, /) -> int:
        """Return the ``global_step`` from which on to be called again."""
        ...


NEVER = 1 << 62


class StepClock:
    """Exclusive accounting of one fit. All methods but ``take`` belong to the training thread.

    Args:
        now: Monotonic clock in ns.
        cpu_now: CPU clock of the calling thread in ns.
        delay_now: Total time in ns for which the training thread was ready to run but had no CPU, or None; -1 if it
            cannot be read any more.
        cpu_every_ns: Main-thread CPU time is read at the edges of one step in every such stretch of time: a read is a
            system call (0.3 us), so that reading it in each step of a fast loop would be felt.
        start_ns: When the run began, if before now.
    """

    def __init__(
        self,
        *,
        now: Callable[[], int] = time.perf_counter_ns,
        cpu_now: Callable[[], int] = time.thread_time_ns,
        delay_now: Callable[[], int] | None = None,
        cpu_every_ns: int = 25_000_000,
        start_ns: int | None = None,
    ) -> None:
        self.closed: deque[ClosedStep | ClosedSegment] = deque()
        """Finished steps and segments in order; whoever takes one removes it."""
        self.recent: deque[ClosedStep] = deque(maxlen=1024)
        """The last finished steps, for live values."""
        self.slots: list[Slot] = []
        self._slot_ids: dict[tuple[str, Phase, Region, str, str], int] = {}
        self._now = now
        self._cpu_now = cpu_now

        stack: list[int] = []
        acc: list[int] = []
        cpu_acc: list[int] = []
        begin = now() if start_ns is None else start_ns
        last = opened = begin
        cpu_last = 0
        delay_first = 0
        cur = 0
        kind: SegmentKind | None = "setup"
        batch = -1
        global_step = step_global = 0
        epoch = 0
        flags = 0
        standing_flags = 0
        training = False
        cpu_on = False
        cpu_due = begin
        wake_at = NEVER
        listener: BoundaryListener | None = None
        on_cpu_mode: Callable[[bool], object] = _ANYTHING
        closed_append = self.closed.append
        recent_append = self.recent.append
        base_depth = 0

        def timed(slot: int, then: int, counts: bool) -> Context:
            def enter(_: object) -> None:
                nonlocal last, cur
                t = now()
                acc[cur] += t - last
                last = t
                stack.append(cur)
                cur = slot

            def leave(_: object, *exc: object) -> None:
                nonlocal last, cur
                t = now()
                acc[cur] += t - last
                last = t
                cur = stack.pop() if stack else 0

            def leave_then(_: object, *exc: object) -> None:
                nonlocal last, cur
                t = now()
                acc[cur] += t - last
                last = t
                if stack:
                    stack.pop()
                cur = then

            def leave_count(_: object, *exc: object) -> None:
                nonlocal last, cur, global_step
                t = now()
                acc[cur] += t - last
                last = t
                cur = stack.pop() if stack else 0
                global_step += 1

            if counts:
                return _new_context(enter, leave_count)
            return _new_context(enter, leave if then < 0 else leave_then)

        def timed_cpu(slot: int, then: int, counts: bool) -> Context:
            def enter(_: object) -> None:
                nonlocal last, cpu_last, cur
                t = now()
                c = cpu_now()
                acc[cur] += t - last
                cpu_acc[cur] += c - cpu_last
                last = t
                cpu_last = c
                stack.append(cur)
                cur = slot

            def leave(_: object, *exc: object) -> None:
                nonlocal last, cpu_last, cur, global_step
                t = now()
                c = cpu_now()
                acc[cur] += t - last
                cpu_acc[cur] += c - cpu_last
                last = t
                cpu_last = c
                below = stack.pop() if stack else 0
                cur = below if then < 0 else then
                if counts:
                    global_step += 1

            return _new_context(enter, leave)

        def marker(then: int) -> Context:
            def enter(_: object) -> None:
                nonlocal last, cur
                t = now()
                acc[cur] += t - last
                last = t
                cur = then

            return _new_context(enter, staticmethod(_ANYTHING))

        def marker_cpu(then: int) -> Context:
            def enter(_: object) -> None:
                nonlocal last, cpu_last, cur
                t = now()
                c = cpu_now()
                acc[cur] += t - last
                cpu_acc[cur] += c - cpu_last
                last = t
                cpu_last = c
                cur = then

            return _new_context(enter, staticmethod(_ANYTHING))

        def close(t: int, extra_flags: int) -> None:
            """Charge up to t and hand over what is open."""
            nonlocal acc, cpu_acc, last, opened, flags
            acc[cur] += t - last
            last = t
            if kind == "step":
                cpu: list[int] | None = None
                delay = -1
                if flags & CPU_SAMPLED:
                    cpu_acc[cur] += cpu_now() - cpu_last
                    cpu = cpu_acc
                    cpu_acc = [0] * len(acc)
                    if delay_now is not None and (delay_last := delay_now()) >= 0:
                        delay = delay_last - delay_first
                step = ClosedStep(batch, opened, t, step_global, epoch, flags | extra_flags, acc, cpu, delay)
                closed_append(step)
                recent_append(step)
            elif kind is not None:
                closed_append(ClosedSegment(kind, opened, t, epoch, acc))
            acc = [0] * len(acc)
            opened = t

        def begin_step() -> None:
            nonlocal kind, batch, step_global, flags, cpu_on, cpu_due, cpu_acc, cpu_last, wake_at, cur, last
            nonlocal delay_first
            if not training:  # a tuner's trial before the training proper
                return
            t = now()
            first = kind != "step"
            close(t, 0)
            if stack and len(stack) != base_depth:
                del stack[base_depth:]
            kind = "step"
            batch += 1
            step_global = global_step
            flags = FIRST_OF_EPOCH if first else 0
            before = standing_flags
            if global_step >= wake_at and listener is not None:
                wake_at = listener(batch, global_step, t)
                after = now()
                acc[own_slot] += after - last
                last = after
            flags |= before | standing_flags
            if t >= cpu_due:
                cpu_due = t + cpu_every_ns
                flags |= CPU_SAMPLED
                cpu_acc = [0] * len(acc)
                if not cpu_on:
                    cpu_on = True
                    on_cpu_mode(True)
                cpu_last = cpu_now()
                if delay_now is not None:
                    delay_first = max(0, delay_now())
            elif cpu_on:
                cpu_on = False
                on_cpu_mode(False)
            cur = loop_slot

        def cancel_step() -> None:
            """The fetch found no batch: what was begun is no step."""
            nonlocal kind, batch, flags
            if kind == "step":
                kind = "epoch_gap"
                batch -= 1
                flags = 0

        def abort_step() -> None:
            """An exception left the step unfinished: it is no step, and what follows is the end."""
            nonlocal kind, batch, flags
            if kind == "step":
                kind = "teardown"
                batch -= 1
                flags = 0

        def end_epoch() -> None:
            nonlocal kind
            if kind == "step":
                close(now(), LAST_OF_EPOCH)
                kind = "epoch_gap"
            leave_cpu_mode()

        def leave_cpu_mode() -> None:
            nonlocal cpu_on, flags
            flags = 0
            if cpu_on:
                cpu_on = False
                on_cpu_mode(False)

        def open_segment(new: SegmentKind | None) -> None:
            nonlocal kind, training
            close(now(), 0)
            kind = new
            training = False
            leave_cpu_mode()

        def begin_epoch(number: int, batch_before: int) -> None:
            nonlocal epoch, base_depth, batch
            epoch = number
            batch = batch_before
            base_depth = len(stack)

        def begin_training(batch_before: int, optimizer_steps: int) -> None:
            nonlocal batch, global_step, training
            batch = batch_before
            global_step = optimizer_steps
            training = True

        def listen(to: BoundaryListener | None, at: int) -> None:
            nonlocal listener, wake_at
            listener = to
            wake_at = at if to is not None else NEVER

        def set_standing_flags(value: int) -> None:
            """Flags of this and all later steps, until set anew."""
            nonlocal standing_flags
            standing_flags = value

        def set_cpu_mode_listener(function: Callable[[bool], None]) -> None:
            nonlocal on_cpu_mode
            on_cpu_mode = function

        def current() -> int:
            return cur

        def grow() -> None:
            acc.append(0)
            cpu_acc.append(0)

        self._timed = timed
        self._timed_cpu = timed_cpu
        self._marker = marker
        self._marker_cpu = marker_cpu
        self._grow = grow
        self.begin_step = begin_step
        self.cancel_step = cancel_step
        self.abort_step = abort_step
        self.begin_epoch = begin_epoch
        self.end_epoch = end_epoch
        self.begin_training = begin_training
        self.open_segment = open_segment
        self.listen = listen
        self.set_standing_flags = set_standing_flags
        self.set_cpu_mode_listener = set_cpu_mode_listener
        self.current_slot = current
        self.counters: Callable[[], tuple[int, int]] = lambda: (batch, global_step)

        self.other_slot = self.slot("other", "loop")
        loop_slot = self.loop_slot = self.slot("loop", "loop")
        own_slot = self.own_slot = self.slot("profiler", "callbacks", callback="GpuProfiler", hook="step boundary")

    def slot(self, action: str, phase: Phase, region: Region = "train", *, callback: str = "", hook: str = "") -> int:
        """The id of a slot, made at its first use."""
        key = (action, phase, region, callback, hook)
        found = self._slot_ids.get(key)
        if found is None:
            found = self._slot_ids[key] = len(self.slots)
            self._grow()
            self.slots.append(Slot(id=found, action=action, phase=phase, region=region, callback=callback, hook=hook))
        return found

    def context(self, slot: int, *, then: int = -1, counts: bool = False, cpu: bool = False) -> Context:
        """A context that charges its inside to ``slot``; it may be entered again and nested.

        Args:
            slot: Where the time inside goes.
            then: Slot of the time that follows on the same level; -1 = what it was before.
            counts: An optimizer step is completed when it ends.
            cpu: Also charge CPU time of the thread; only valid in steps that sample it.
        """
        return self._timed_cpu(slot, then, counts) if cpu else self._timed(slot, then, counts)

    def mark(self, then: int, *, cpu: bool = False) -> Context:
        """A context without an inside: from its start on, time goes to ``then``."""
        return self._marker_cpu(then) if cpu else self._marker(then)

    def cost_of_one_edge_ns(self, rounds: int = 2000) -> float:
        """Measured cost of entering or leaving a timed context on this machine, in ns; charges nothing to the run."""
        probe = StepClock(now=self._now, cpu_now=self._cpu_now)
        context = probe.context(probe.loop_slot)
        start = self._now()
        for _ in range(rounds):
            with context:
                pass
        return (self._now() - start) / (2 * rounds)
