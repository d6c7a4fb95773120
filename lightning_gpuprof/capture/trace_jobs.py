"""Hands finished traces to a process of their own, which compresses and analyses them at low priority."""

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

JOB_MODULE = "lightning_gpuprof.trace.job"

_START = f"""
import os, runpy, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the training: the trace is to be whole
if hasattr(signal, "SIGUSR2"):
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # a request for a window, sent to all processes of a job
os.nice(19)
try:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # only on CPUs that nobody else wants
except (AttributeError, OSError):
    pass
runpy.run_module({JOB_MODULE!r}, run_name="__main__", alter_sys=True)
"""


MAX_DISTURBING_S = 5.0
"""The analysis of a window yields to everything else; on a full machine it may wait for the end of the run."""

_LOOK_EVERY_S = 0.05


class TraceJobs:
    """Starts one process per trace, from a thread, so that the main thread waits neither for its start nor its end.

    Args:
        max_disturbing_s: A job counts as being beside the training for so long at the most.
        python: The interpreter that runs them.
    """

    def __init__(self, max_disturbing_s: float = MAX_DISTURBING_S, python: str = sys.executable) -> None:
        self._python = python
        self._max_disturbing_s = max_disturbing_s
        self._threads: list[threading.Thread] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._submitted = 0
        self._done: deque[None] = deque()
        self._leaving = threading.Event()

    def submit(
        self,
        plain: Path,
        final: Path,
        facts: Path,
        start_step: int,
        stop_step: int,
        *,
        on_done: Callable[[], None],
    ) -> None:
        """Compress ``plain`` to ``final`` and write the window's facts to ``facts``.

        Args:
            plain: The trace as it was recorded.
            final: Where it goes.
            facts: Appears last.
            start_step: First optimizer step of the window.
            stop_step: Last optimizer step of the window.
            on_done: Called from another thread when the job has ended or no longer counts as beside the training.
        """
        arguments = [str(plain), str(final), str(facts), str(start_step), str(stop_step)]
        thread = threading.Thread(target=self._run, args=(arguments, on_done), name="gpuprof-trace-job", daemon=True)
        thread.start()
        self._submitted += 1
        self._threads.append(thread)

    def is_disturbing(self) -> bool:
        """Whether a job counts as being beside the training; costs no system call."""
        return len(self._done) < self._submitted

    def running(self) -> bool:
        """Whether a job is at work or about to be."""
        return self.is_disturbing() or any(p.poll() is None for p in self._processes)

    def wait(self, timeout_s: float) -> int:
        """Wait for all jobs, at most so long.

        Returns:
            How many are still running; they go on and finish their files by themselves.
        """
        deadline = time.monotonic() + timeout_s
        while self.running() and (left_s := deadline - time.monotonic()) > 0:
            time.sleep(min(_LOOK_EVERY_S, left_s))
        self._leaving.set()  # threads beside a job that goes on end now
        for thread in self._threads:
            thread.join(1.0)
        return sum(p.poll() is None for p in self._processes)

    def _run(self, arguments: list[str], on_done: Callable[[], None]) -> None:
        try:
            process = self._launch(arguments)
            deadline = time.monotonic() + self._max_disturbing_s
            while process.poll() is None and time.monotonic() < deadline and not self._leaving.is_set():
                self._leaving.wait(_LOOK_EVERY_S)
        except OSError:  # no process could be started: the plain trace is there, and the report says "not analysed"
            pass
        finally:
            self._done.append(None)
            on_done()

    def _launch(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        package_parent = str(Path(__file__).resolve().parents[2])
        paths = [package_parent, os.environ.get("PYTHONPATH", "")]
        # A process group of its own keeps Ctrl-C away from the first moment on. No session of its own: the kernel may
        # share CPUs out by session, and look at priorities only within one (sched_autogroup).
        start: Any = subprocess.Popen
        if sys.version_info >= (3, 11):
            start = partial(start, process_group=0)
        process: subprocess.Popen[bytes] = start(
            [self._python, "-c", _START, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)},
        )
        self._processes.append(process)
        return process
