"""How long the thread waited for a CPU, as the kernel tells it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lightning_gpuprof.capture.host.process_files import RunDelay


def test_a_thread_that_competes_for_its_cpu_waits_and_one_that_sleeps_does_not() -> None:
    delay = RunDelay.of_this_thread()
    if delay is None:
        pytest.skip("this kernel does not tell run delays")
    cpus = os.sched_getaffinity(0)
    rival = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.sched_setaffinity(0, {min(cpus)})
        os.sched_setaffinity(rival.pid, {min(cpus)})
        begin, cpu = delay.read_ns(), time.thread_time_ns()
        wall = time.perf_counter_ns()
        while time.thread_time_ns() - cpu < 60_000_000:
            pass
        waited = delay.read_ns() - begin
        wall = time.perf_counter_ns() - wall
        missing = wall - 60_000_000
        assert waited == pytest.approx(missing, rel=0.3, abs=10_000_000)
        assert waited > 10_000_000
    finally:
        rival.kill()
        rival.wait()
        os.sched_setaffinity(0, cpus)
    begin, wall = delay.read_ns(), time.perf_counter_ns()
    time.sleep(0.05)
    wall = time.perf_counter_ns() - wall
    assert delay.read_ns() - begin <= wall - 50_000_000  # all but the sleep, where the machine wakes it late
    delay.close()


def test_a_kernel_that_does_not_tell_is_no_error(tmp_path: Path) -> None:
    assert RunDelay.of_this_thread(tmp_path) is None
