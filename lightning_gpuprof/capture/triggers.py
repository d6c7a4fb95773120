"""How a person asks a running job for a window: a file that was touched, or a signal; out flows that it was asked."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from lightning_gpuprof.capture.fence import must_propagate

TRIGGER_FILE = "trigger"
"""In the run's folder. Ranks compare when it was last touched, and nobody deletes it, so that all of them see it."""

LOOK_EVERY_S = 0.5

SIGNAL_NAME = "SIGUSR2"
"""SIGUSR1 is what SLURM and Lightning use to requeue a job."""


class TriggerFile:
    """Looks at the file's time of change; what it was at the start does not count.

    Args:
        path: The file, which need not exist.
        now: Clock in seconds.
    """

    def __init__(self, path: Path, *, now: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._now = now
        self._due_s = 0.0
        self._seen = self._changed_ns()

    def touched(self) -> bool:
        """Whether it was touched since the last call that said so; asks the file system twice a second at most."""
        now = self._now()
        if now < self._due_s:
            return False
        self._due_s = now + LOOK_EVERY_S
        changed = self._changed_ns()
        before, self._seen = self._seen, changed
        return changed is not None and changed != before

    def _changed_ns(self) -> int | None:
        try:
            return self._path.stat().st_mtime_ns
        except OSError:
            return None


class RequestSignal:
    """Answers SIGUSR2 while a run goes on, if nobody else does.

    Processes that are forked meanwhile, such as DataLoader workers, inherit the handler and ignore the signal with it;
    those that are spawned start anew and die of it, as they would without us.

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
