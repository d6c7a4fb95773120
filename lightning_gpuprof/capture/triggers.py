"""How a person asks a running job for a window, and how its ranks open it at the same step: files, or a signal."""

import math
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from lightning_gpuprof.capture.fence import must_propagate
from lightning_gpuprof.capture.step_clock import ClosedStep

TRIGGER_FILE = "trigger"
"""In the run's folder. Ranks compare when it was last touched, and nobody deletes it, so that all of them see it."""

LOOK_EVERY_S = 0.5

SIGNAL_NAME = "SIGUSR2"
"""SIGUSR1 is what SLURM and Lightning use to requeue a job."""

PLAN_FILE = "window"
"""In the run's folder: first step and reason of the window that was planned last."""

LEAD_S = 3.0
"""From the plan to its step. The ranks look twice a second; a network file system may show a file 1 or 2 s late."""


@dataclass(eq=False, repr=False)
class TriggerFile:
    """Looks at the file's time of change; what it was at the start does not count."""

    path: Path
    """Need not exist."""
    _: KW_ONLY
    now: Callable[[], float] = time.monotonic
    """Clock in seconds."""

    def __post_init__(self) -> None:
        self._due_s = 0.0
        self._seen = self._changed_ns()

    def touched(self) -> bool:
        """Whether it was touched since the last call that said so; asks the file system twice a second at most."""
        now = self.now()
        if now < self._due_s:
            return False
        self._due_s = now + LOOK_EVERY_S
        changed = self._changed_ns()
        before, self._seen = self._seen, changed
        return changed is not None and changed != before

    def _changed_ns(self) -> int | None:
        try:
            return self.path.stat().st_mtime_ns
        except OSError:
            return None


class RequestSignal:
    """Answers SIGUSR2 while a run goes on, if nobody else does.

    Processes that are forked meanwhile, such as DataLoader workers, inherit the handler and ignore the signal with it;
    those that are spawned start again and die of it, as they would without us.

    Args:
        on_signal: Called on the main thread between two of its bytecodes, whatever it is doing: may only set something.
    """

    def __init__(self, on_signal: Callable[[], None]) -> None:
        self._on_signal: Callable[[], None] | None = on_signal
        self._number: signal.Signals | None = getattr(signal, SIGNAL_NAME, None)  # not on Windows
        self._pid = os.getpid()
        self._installed = False

    def install(self) -> str:
        """Begin to answer.

        Returns:
            Why the signal is not answered; empty if it is, or where there is nothing to say.
        """
        if self._number is None or self._installed or threading.current_thread() is not threading.main_thread():
            return ""
        if signal.getsignal(self._number) is not signal.SIG_DFL or _is_caught(self._number):
            return f"{SIGNAL_NAME} has a handler already, which is left alone: ask for a window with `gpuprof trigger`"
        self._installed = True  # first, so that whatever fails from here on is undone
        signal.signal(self._number, self)
        signal.siginterrupt(self._number, False)  # system calls of C libraries go on as if nothing had been
        return ""

    def restore(self) -> None:
        """End. A handler that was set after ours stays, also if it calls ours."""
        self._on_signal = None
        if not self._installed or self._number is None or threading.current_thread() is not threading.main_thread():
            return
        current: object = signal.getsignal(self._number)
        if current is self:
            signal.signal(self._number, signal.SIG_DFL)
        self._installed = False

    def __call__(self, number: int, frame: object) -> None:
        """The handler itself."""
        try:
            if self._on_signal is not None and os.getpid() == self._pid:
                self._on_signal()
        except Exception as error:  # it would come up in whatever the user's code is doing at this moment
            self._on_signal = None
            if must_propagate(error):
                raise

    def __reduce__(self) -> tuple[object, ...]:
        """In a copy or pickle of what holds us, such as a trainer's list of handlers, stands what was there before."""
        return signal.Handlers, (signal.SIG_DFL.value,)


def _is_caught(number: signal.Signals) -> bool:
    """Whether the process has a handler that Python knows nothing of, such as faulthandler's (Linux only)."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    for line in status.splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


@dataclass(eq=False, repr=False)
class SharedPlan:
    """Windows that are not planned from the start, for the traced ranks that share a folder.

    One of them writes the step into a file, and all look there: nobody is asked and nobody waits. A rank that sees the
    file only after that step opens its window later than the others.
    """

    folder: Path
    """Theirs."""
    _: KW_ONLY
    leads: bool
    """This rank makes the plans, also those that it is asked for by the others."""
    warmup: int
    """Steps before a window that are traced and discarded."""
    now: Callable[[], int] = time.perf_counter_ns
    """The clock of the steps, in ns."""

    def __post_init__(self) -> None:
        self._file = TriggerFile(self.folder / PLAN_FILE, now=lambda: self.now() / 1e9)
        self._wishes: deque[str] = deque(maxlen=8)
        self._last: ClosedStep | None = None
        self._steps_per_ns = 0.0

    def wish(self, reason: str) -> None:
        """Ask for a window; callable from any thread and from a signal handler."""
        self._wishes.append(reason)

    def look(self, steps: Sequence[ClosedStep]) -> tuple[int, str] | None:
        """Pass on what was wished for, and see what is planned; called with the steps that ended since the last call.

        Returns:
            First step and reason of a window that was planned since the last call; None: nothing new is planned.
        """
        if steps:
            first, self._last = steps[0], steps[-1]
            self._steps_per_ns = (self._last.global_step - first.global_step + 1) / (self._last.end_ns - first.start_ns)
        if self._wishes and not self.leads:
            self._wishes.clear()
            (self.folder / TRIGGER_FILE).touch()
        elif self._wishes and self._last is not None:
            # One that has lasted for long is none: validation, or a checkpoint.
            begun = min(1.0, (self.now() - self._last.end_ns) * self._steps_per_ns)
            ahead = math.ceil(begun + LEAD_S * 1e9 * self._steps_per_ns)
            start = self._last.global_step + 1 + ahead + self.warmup
            self._write(start, "; ".join(dict.fromkeys(self._wishes.popleft() for _ in range(len(self._wishes)))))
        if not self._file.touched():
            return None
        start_step, _, reason = (self.folder / PLAN_FILE).read_text("utf-8").partition(" ")
        return int(start_step), reason

    def _write(self, start: int, reason: str) -> None:
        """Whole, or not at all."""
        temporary = self.folder / f".{PLAN_FILE}.{os.getpid()}.tmp"
        temporary.write_text(f"{start} {reason}", "utf-8")
        temporary.replace(self.folder / PLAN_FILE)
