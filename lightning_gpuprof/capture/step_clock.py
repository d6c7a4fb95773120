"""The clock that charges every nanosecond of a fit to exactly one slot, and cuts the time into steps and segments.

Flow: action edges call :meth:`Timed.__enter__` / ``__exit__``; each edge charges the time since the last edge to the
slot that was current (exclusive accounting on a stack). At a boundary the charges so far become a step or a segment
and go to ``closed``, a queue that the journal's thread empties.

Why closures: an edge runs about twenty times a step. State in closure cells costs half of what attributes do. All slots
share one class per kind of context: an edge between two pieces of a model's work finds the caches cold, so that what
counts is how much memory it touches.
"""

import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, ContextDecorator
from functools import partial
from typing import NamedTuple

import msgspec

from lightning_gpuprof.model.journal import CPU_SAMPLED, FIRST_OF_EPOCH, LAST_OF_EPOCH, Slot
from lightning_gpuprof.model.phases import Phase, Region, SegmentKind

Context = AbstractContextManager[object]

_ANYTHING: Callable[..., str] = "".format
"""A C function that takes any arguments and returns something false: half the price of an empty Python function."""


def _new_context(enter: Callable[..., object], leave: Callable[..., object]) -> Context:
    kind = type("Timed", (ContextDecorator,), {"__slots__": (), "__enter__": enter, "__exit__": leave})
    context: Context = kind()
    return context


def _reraise(error: Exception) -> None:
    raise error


_new_step = tuple.__new__
"""Makes a named tuple without the Python frame of its class."""

NULL_CONTEXT = _new_context(staticmethod(_ANYTHING), staticmethod(_ANYTHING))
"""For actions that are not timed: one shared object, no Python frame."""


class Untimed(ContextDecorator):
    """For actions of the user's own, which are not timed either: gives its result to ``with ... as``."""

    __slots__ = ("_result",)

    def __init__(self, result: object) -> None:
        self._result = result

    def __enter__(self) -> object:
        return self._result

    def __exit__(self, *exc: object) -> None:
        return None


def is_timed(context: Context) -> bool:
    """Whether anything happens in it."""
    return context is not NULL_CONTEXT and not isinstance(context, Untimed)


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


BoundaryListener = Callable[[int, int, int], int]
"""Called on the main thread at a step's start, once ``global_step`` has reached the step it asked for: with the batch,
``global_step`` and the time in ns. Returns the ``global_step`` from which on to be called again."""

NEVER = 1 << 62

CPU_SAMPLES_AT_FIRST = 40
"""Those of about a second. A sampled step takes 80 µs longer, so later samples of short steps are rarer."""
RARER_CPU_SAMPLES = 4
"""By this factor, if at least so many steps lie between two samples: with fewer, samples could keep step with the
accumulation of gradients."""
CPU_SAMPLES_PER_AGE = 10_000
"""In a long run CPU time is read once in this part of its age, so that its samples stay few beside its steps."""

SEPARATOR = " > "
"""Between the names of annotated regions that lie in one another."""


class StepClock:
    """Exclusive accounting of one fit. All methods but ``take`` belong to the main thread.

    Args:
        now: Monotonic clock in ns.
        cpu_now: CPU clock of the calling thread in ns.
        delay_now: Total time in ns for which the main thread was ready to run but had no CPU, or None; -1 if it
            cannot be read any more.
        cpu_every_ns: Main-thread CPU time is read at the edges of one step in every such stretch of time: a read is a
            system call (0.3 µs), so that reading it in each step of a fast loop would be felt. Where steps are short,
            only in every fourth stretch after the first second.
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
        self.slots: list[Slot] = []
        self._slot_ids: dict[tuple[str, ...], int] = {}
        self._now = now
        self._cpu_now = cpu_now

        stack: list[int] = []
        push, pop = stack.append, stack.pop
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
        cpu_samples = cpu_batch = 0
        wake_at = NEVER
        poked = False
        listener: BoundaryListener | None = None
        on_cpu_mode: Callable[[bool], object] = _ANYTHING
        on_failure: Callable[[Exception], object] = _reraise
        closed_append = self.closed.append
        recent: deque[ClosedStep] | None = None
        base_depth = 0

        class Timed(ContextDecorator):  # users may decorate with what ``profiler.profile`` gives
            """Charges its inside to ``slot``."""

            __slots__ = ("slot",)

            def __init__(self, slot: int) -> None:
                self.slot = slot

            # Lightning calls an edge directly: it must not raise, and a `try` costs nothing until then.
            def __enter__(self) -> None:
                nonlocal last, cur
                try:
                    t = now()
                    acc[cur] += t - last
                    last = t
                    push(cur)
                    cur = self.slot
                except Exception as error:
                    on_failure(error)

            def __exit__(self, *exc: object) -> None:
                nonlocal last, cur
                try:
                    t = now()
                    acc[cur] += t - last
                    last = t
                    cur = pop() if stack else 0
                except Exception as error:
                    on_failure(error)

        class TimedThen(Timed):
            """What follows on the same level goes to ``then``."""

            __slots__ = ("then",)

            def __init__(self, slot: int, then: int) -> None:
                self.slot = slot
                self.then = then

            def __exit__(self, *exc: object) -> None:
                nonlocal last, cur
                try:
                    t = now()
                    acc[cur] += t - last
                    last = t
                    if stack:
                        pop()
                    cur = self.then
                except Exception as error:
                    on_failure(error)

        class TimedCount(Timed):
            """Its end completes an optimizer step."""

            __slots__ = ()

            def __exit__(self, *exc: object) -> None:
                nonlocal last, cur, global_step
                try:
                    t = now()
                    acc[cur] += t - last
                    last = t
                    cur = pop() if stack else 0
                    if not exc or exc[0] is None:
                        global_step += 1
                except Exception as error:
                    on_failure(error)

        def timed(slot: int, then: int, counts: bool) -> Context:
            if counts:
                return TimedCount(slot)
            return Timed(slot) if then < 0 else TimedThen(slot, then)

        def charge_cpu() -> None:
            """An edge of a sampled step; one in fifty, so that a frame more does not matter."""
            nonlocal last, cpu_last
            t = now()
            c = cpu_now()
            acc[cur] += t - last
            cpu_acc[cur] += c - cpu_last
            last = t
            cpu_last = c

        def timed_cpu(slot: int, then: int, counts: bool) -> Context:
            def enter(_: object) -> None:
                nonlocal cur
                try:
                    charge_cpu()
                    push(cur)
                    cur = slot
                except Exception as error:
                    on_failure(error)

            def leave(_: object, *exc: object) -> None:
                nonlocal cur, global_step
                try:
                    charge_cpu()
                    below = pop() if stack else 0
                    cur = below if then < 0 else then
                    if counts and (not exc or exc[0] is None):
                        global_step += 1
                except Exception as error:
                    on_failure(error)

            return _new_context(enter, leave)

        def marker(then: int) -> Context:
            def enter(_: object) -> None:
                nonlocal last, cur
                try:
                    t = now()
                    acc[cur] += t - last
                    last = t
                    cur = then
                except Exception as error:
                    on_failure(error)

            return _new_context(enter, staticmethod(_ANYTHING))

        def marker_cpu(then: int) -> Context:
            def enter(_: object) -> None:
                nonlocal cur
                try:
                    charge_cpu()
                    cur = then
                except Exception as error:
                    on_failure(error)

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
                if recent is not None:
                    recent.append(step)
            elif kind is not None:
                closed_append(ClosedSegment(kind, opened, t, epoch, acc))
            acc = [0] * len(acc)
            opened = t

        def begin_step() -> None:
            nonlocal kind, batch, step_global, flags, cpu_on, cpu_due, cpu_acc, cpu_last, wake_at, cur, last
            nonlocal delay_first, poked, opened, acc, cpu_samples, cpu_batch
            if not training:  # a tuner's trial before the training proper
                return
            t = now()
            if kind == "step" and not flags & CPU_SAMPLED:  # `close` for nearly all steps, at half its price
                first = False
                acc[cur] += t - last
                last = t
                step = _new_step(ClosedStep, (batch, opened, t, step_global, epoch, flags, acc, None, -1))
                closed_append(step)
                if recent is not None:
                    recent.append(step)
                acc = [0] * len(acc)
                opened = t
            else:
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
                poked = False
                wake_at = listener(batch, global_step, t)
                if poked:  # from another thread, meanwhile
                    wake_at = 0
                after = now()
                acc[own_slot] += after - last
                last = after
            flags |= before | standing_flags
            if t >= cpu_due:
                cpu_samples += 1
                rarer = cpu_samples > CPU_SAMPLES_AT_FIRST and batch - cpu_batch >= RARER_CPU_SAMPLES
                cpu_batch = batch
                every_ns = cpu_every_ns * RARER_CPU_SAMPLES if rarer else cpu_every_ns
                cpu_due = t + max(every_ns, (t - begin) // CPU_SAMPLES_PER_AGE)
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

        def drop_step(instead: SegmentKind) -> None:
            """What was begun is no step: the fetch found no batch, or an exception left it unfinished."""
            nonlocal kind, batch, flags
            if kind == "step":
                kind = instead
                batch -= 1
                flags = 0

        def end_epoch() -> None:
            nonlocal kind
            if kind == "step":
                close(now(), LAST_OF_EPOCH)
                kind = "epoch_gap"
            leave_cpu_mode()

        def count() -> None:
            """A step of a loop without optimizer is completed."""
            nonlocal global_step
            global_step += 1

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

        def wake() -> None:
            """Have the listener called at the next boundary; callable from any thread."""
            nonlocal poked, wake_at
            poked = True
            wake_at = 0

        def set_optimizer_steps(value: int) -> None:
            """Optimizer steps completed by now, by the trainer's count."""
            nonlocal global_step
            global_step = value

        def keep_recent(steps: int) -> deque[ClosedStep]:
            """The last so many finished steps, from now on; whoever reads one may remove it."""
            nonlocal recent
            recent = deque(maxlen=steps)
            return recent

        def set_standing_flags(value: int) -> None:
            """Flags of this and all later steps, until set again."""
            nonlocal standing_flags
            standing_flags = value

        def set_cpu_mode_listener(function: Callable[[bool], None]) -> None:
            nonlocal on_cpu_mode
            on_cpu_mode = function

        def set_failure_listener(function: Callable[[Exception], None]) -> None:
            """Called when an edge fails, which is not raised then."""
            nonlocal on_failure
            on_failure = function

        def current() -> int:
            return cur

        def charged_since() -> int:
            return last

        def grow() -> None:
            acc.append(0)
            cpu_acc.append(0)

        self._timed = timed
        self._timed_cpu = timed_cpu
        self._marker = marker
        self._marker_cpu = marker_cpu
        self._grow = grow
        self.begin_step = begin_step
        self.cancel_step = partial(drop_step, "epoch_gap")
        self.abort_step = partial(drop_step, "teardown")
        self.begin_epoch = begin_epoch
        self.end_epoch = end_epoch
        self.count = count
        self.begin_training = begin_training
        self.open_segment = open_segment
        self.listen = listen
        self.wake = wake
        self.keep_recent = keep_recent
        self.set_optimizer_steps = set_optimizer_steps
        self.set_standing_flags = set_standing_flags
        self.set_cpu_mode_listener = set_cpu_mode_listener
        self.set_failure_listener = set_failure_listener
        self.current_slot = current
        self.charged_since_ns = charged_since
        self.counters: Callable[[], tuple[int, int]] = lambda: (batch, global_step)

        self.other_slot = self.slot("other", "loop")
        loop_slot = self.loop_slot = self.slot("loop", "loop")
        own_slot = self.own_slot = self.slot("profiler", "callbacks", callback="GpuProfiler", hook="step boundary")

    def slot(self, action: str, phase: Phase, region: Region = "main", *, callback: str = "", hook: str = "") -> int:
        """The id of a slot, made at its first use.

        Args:
            action: As Lightning names it.
            phase: Phase of its time.
            region: Loop in which it is.
            callback: Whose hook it is; empty for none.
            hook: Name of the hook.

        Returns:
            Its index in :attr:`slots`, the same for the same arguments.
        """
        return self._slot(Slot(id=-1, action=action, phase=phase, region=region, callback=callback, hook=hook))

    def annotated(self, name: str, *, nested: bool = True) -> int:
        """The id of the slot for a region of the user's own inside the slot that is current.

        Args:
            name: Of the region.
            nested: Put the names of the regions around it before its own.

        Returns:
            Its index in :attr:`slots`, the same for the same name in the same slot.
        """
        around = self.slots[self.current_slot()]
        path = f"{around.annotation}{SEPARATOR}{name}" if nested and around.annotation else name
        return self._slot(msgspec.structs.replace(around, id=-1, annotation=path))

    def _slot(self, wanted: Slot) -> int:
        key = (wanted.action, wanted.phase, wanted.region, wanted.callback, wanted.hook, wanted.annotation)
        found = self._slot_ids.get(key)
        if found is None:
            found = self._slot_ids[key] = len(self.slots)
            self._grow()
            self.slots.append(msgspec.structs.replace(wanted, id=found))
        return found

    def context(self, slot: int, *, then: int = -1, counts: bool = False, cpu: bool = False) -> Context:
        """A context that charges its inside to ``slot``.

        Args:
            slot: Where the time inside goes.
            then: Slot of the time that follows on the same level; -1 = what it was before.
            counts: An optimizer step is completed when it ends.
            cpu: Also charge CPU time of the thread; only valid in steps that sample it.

        Returns:
            A new one at each call; it may be entered again and nested.
        """
        return self._timed_cpu(slot, then, counts) if cpu else self._timed(slot, then, counts)

    def mark(self, then: int, *, cpu: bool = False) -> Context:
        """A context without an inside: from its start on, time goes to ``then``.

        Args:
            then: Id of the slot that time goes to.
            cpu: Also charge CPU time of the thread; only valid in steps that sample it.

        Returns:
            A new one at each call; it may be entered again, and its end does nothing.
        """
        return self._marker_cpu(then) if cpu else self._marker(then)

    def measure_edge_ns(self, rounds: int = 200) -> float:
        """Measured cost of entering or leaving a timed context on this machine, in ns; charges nothing to the run."""
        probe = StepClock(now=self._now, cpu_now=self._cpu_now)
        context = probe.context(probe.loop_slot)
        start = self._now()
        for _ in range(rounds):
            with context:
                pass
        return (self._now() - start) / (2 * rounds)
