"""Hands finished traces to a process of their own, which compresses and analyses them at low priority."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

JOB_MODULE = "lightning_gpuprof.trace.job"

_START = f"""
import os, runpy, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the training: the trace is to be whole
os.nice(19)
try:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # only on CPUs that nobody else wants
except (AttributeError, OSError):
    pass
runpy.run_module({JOB_MODULE!r}, run_name="__main__", alter_sys=True)
"""


class TraceJobs:
    """Starts one process per trace, from a thread, so that the training thread does not wait for the start."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    def submit(self, plain: Path, final: Path, facts: Path, start_step: int, stop_step: int) -> None:
        """Compress ``plain`` to ``final`` and write the window's facts to ``facts``."""
        arguments = [str(plain), str(final), str(facts), str(start_step), str(stop_step)]
        thread = threading.Thread(target=self._launch, args=(arguments,), name="gpuprof-trace-job", daemon=True)
        self._threads.append(thread)
        thread.start()

    def running(self) -> bool:
        """Whether a job is at work or about to be."""
        return any(t.is_alive() for t in self._threads) or any(p.poll() is None for p in self._processes)

    def wait(self, timeout_s: float) -> int:
        """Wait for all jobs, at most so long.

        Returns:
            How many are still running; they go on and finish their files by themselves.
        """
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        running = 0
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                running += 1
        return running

    def _launch(self, arguments: list[str]) -> None:
        package_parent = str(Path(__file__).resolve().parents[2])
        paths = [package_parent, os.environ.get("PYTHONPATH", "")]
        # A process group of its own keeps Ctrl-C away from the first moment on. No session of its own: the kernel may
        # share CPUs out by session, and look at priorities only within one (sched_autogroup).
        start: Any = subprocess.Popen
        if sys.version_info >= (3, 11):
            start = partial(start, process_group=0)
        self._processes.append(
            start(
                [sys.executable, "-c", _START, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)},
            )
        )
