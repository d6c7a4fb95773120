"""Runs the samplers: each has a thread and a schedule of its own, and all write to one sink."""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from lightning_gpuprof.capture.fence import must_propagate
from lightning_gpuprof.errors import GpuProfError
from lightning_gpuprof.model.journal import (
    CallSites,
    Compilation,
    CompilerCounts,
    Conditions,
    DeviceBlock,
    KernelBlock,
    KernelNames,
    Notice,
    Sample,
)

Reading: TypeAlias = (
    Sample | CallSites | Compilation | CompilerCounts | Conditions | DeviceBlock | KernelBlock | KernelNames | Notice
)
"""What a sampler may hand over for the journal."""

Sink: TypeAlias = Callable[[Reading], None]
"""Takes one reading; called from the samplers' threads, never from two of them at once."""

STOP_TIMEOUT_S = 1.0
"""Samplers that do not end within it are left behind."""


class SourceUnavailableError(GpuProfError):
    """A sampler's source is not there, or is gone for good; the text is what the user reads, as a full sentence."""


class Sampler(Protocol):
    """A source that is read at intervals. All three methods are called in the sampler's own thread.

    ``interval_s`` is read again before each wait, so a sampler may vary it. ``close`` is called once, also after
    ``open`` or ``sample`` has failed. Whoever has nothing to do in ``open`` or ``close`` derives from this.
    """

    name: str
    interval_s: float

    def open(self) -> None:
        """Get ready, e.g. load the driver's library.

        Raises:
            SourceUnavailableError: There is nothing to read; the sampler is not asked again.
        """
        return

    def sample(self, t_ns: int) -> Sequence[Reading]:
        """Read once; ``t_ns`` is the run's clock just before.

        Raises:
            SourceUnavailableError: The source is gone; the sampler is not asked again.
        """

    def close(self) -> Sequence[Reading]:
        """Let go of everything and hand over what was held back."""
        return ()


def next_due_ns(due_ns: int, interval_ns: int, now_ns: int) -> int:
    """The tick after ``due_ns`` that is still to come, on the grid of the ticks before.

    A reading that takes long does not move the grid, so the mean interval does not drift; ticks that were missed
    altogether are left out rather than made up for.

    Args:
        due_ns: The last tick.
        interval_ns: Between two ticks.
        now_ns: The clock.

    Returns:
        Later than ``now_ns``, whole intervals after ``due_ns``.
    """
    missed = max(0, (now_ns - due_ns) // interval_ns)
    return due_ns + (missed + 1) * interval_ns


class _Worker:
    """One sampler in its daemon thread."""

    def __init__(self, sampler: Sampler, sink: Sink, now: Callable[[], int]) -> None:
        self.sampler = sampler
        self.cpu_ns = 0
        self.busy_since_ns: int | None = None
        """When the call that is under way began; None between calls."""
        self._sink = sink
        self._now = now
        self._stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, name=f"gpuprof-{sampler.name}", daemon=True)

    def ask_to_stop(self) -> None:
        self._stopping.set()

    def _run(self) -> None:
        notice = self._sample_until_stopped()
        try:
            self.busy_since_ns = self._now()
            for reading in self.sampler.close():
                self._sink(reading)
        except Exception as error:
            notice = notice or Notice(part=self.sampler.name, message=f"could not be closed: {_text(error)}")
        self.busy_since_ns = None
        if notice is not None:
            with contextlib.suppress(Exception):  # the sink itself may be what failed
                self._sink(notice)
        self.cpu_ns = time.thread_time_ns()

    def _sample_until_stopped(self) -> Notice | None:
        """Run the schedule; a notice says why it ended before it was asked to."""
        try:
            self.busy_since_ns = self._now()
            self.sampler.open()
            due_ns = self._now()
            while True:  # once in any case: the first sample brings what is known of the machine
                self.busy_since_ns = self._now()
                for reading in self.sampler.sample(self.busy_since_ns):
                    self._sink(reading)
                self.busy_since_ns = None
                self.cpu_ns = time.thread_time_ns()
                now_ns = self._now()
                due_ns = next_due_ns(due_ns, max(1, round(self.sampler.interval_s * 1e9)), now_ns)
                if self._stopping.wait((due_ns - now_ns) / 1e9):
                    return None
        except SourceUnavailableError as error:
            return Notice(part=self.sampler.name, message=str(error))
        except Exception as error:
            return Notice(part=self.sampler.name, message=f"switched off after a failure: {_text(error)}")


class Recorder:
    """Runs samplers beside training, each in a thread of its own, so that a hanging driver call hurts only itself.

    A sampler that raises is switched off with one :class:`~lightning_gpuprof.model.journal.Notice`; nothing that a
    sampler, the sink or the threads do is raised into the caller. A recorder runs once: make a new one for another run.

    Args:
        samplers: What to read.
        sink: Takes each reading. Calls do not overlap, and none comes after :meth:`stop` has returned.
        now: The run's clock in ns.
    """

    def __init__(self, samplers: Sequence[Sampler], sink: Sink, now: Callable[[], int] = time.perf_counter_ns) -> None:
        self._sink = sink
        self._now = now
        self._lock = threading.Lock()
        self._sealed = False
        self._started = False
        self._workers = [_Worker(sampler, self._deliver, now) for sampler in samplers]

    @property
    def cpu_s(self) -> float:
        """CPU seconds used by all samplers' threads; complete once :meth:`stop` has returned.

        The time of a thread that was left behind is that up to its last whole reading.
        """
        return sum(worker.cpu_ns for worker in self._workers) / 1e9

    def start(self) -> None:
        """Start all threads and return at once; a second call does nothing."""
        if self._started:
            return
        self._started = True
        for worker in self._workers:
            try:
                worker.thread.start()
            except RuntimeError as error:  # the system gives no more threads
                if must_propagate(error):
                    raise
                self._notify(worker, f"could not be started: {_text(error)}")

    def ask_to_stop(self) -> None:
        """Have all threads end by themselves, each after the call that is under way; returns at once."""
        for worker in self._workers:
            worker.ask_to_stop()

    def stop(self, timeout_s: float | None = None) -> None:
        """End all threads; one that hangs in a call is left behind as a daemon, with a notice.

        All together are waited for no longer than ``timeout_s``, by default :data:`STOP_TIMEOUT_S`.
        """
        if self._sealed:
            return
        deadline = time.monotonic() + (STOP_TIMEOUT_S if timeout_s is None else timeout_s)
        self.ask_to_stop()
        for worker in self._workers:
            if worker.thread.ident is not None:
                worker.thread.join(max(0.0, deadline - time.monotonic()))
        for worker in self._workers:
            if worker.thread.is_alive():
                since_ns = worker.busy_since_ns
                waited = "" if since_ns is None else f" for {(self._now() - since_ns) / 1e9:.1f} s"
                self._notify(worker, f"no answer{waited}; its samples end there")
        # A sink that hangs must not hold up the caller either: without the lock the flag still closes the door.
        locked = self._lock.acquire(timeout=max(0.1, deadline - time.monotonic()))
        self._sealed = True
        if locked:
            self._lock.release()

    def _deliver(self, reading: Reading) -> None:
        with self._lock:
            if not self._sealed:
                self._sink(reading)

    def _notify(self, worker: _Worker, message: str) -> None:
        """Send a notice from the caller's thread, if the sink takes one."""
        if not self._lock.acquire(timeout=0.1):
            return
        try:
            self._sink(Notice(part=worker.sampler.name, message=message))
        except Exception as error:
            if must_propagate(error):
                raise
            # else the sink is broken; the caller is a training run
        finally:
            self._lock.release()


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
