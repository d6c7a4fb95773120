"""A search takes no more CPUs and memory than are there."""

import os
import subprocess
import sys

import pytest

from lightning_gpuprof.errors import TrialError
from lightning_gpuprof.trial.room import check_cpus, check_memory, own_bytes

GIB = 1024**3


@pytest.mark.parametrize(("workers", "ranks", "cpus"), [(8, 1, 8), (4, 2, 8), (0, 8, 2), (1, 8, 2)])
def test_there_is_a_cpu_for_each_worker(workers: int, ranks: int, cpus: float) -> None:
    check_cpus(workers, ranks=ranks, cpus=cpus)


@pytest.mark.parametrize(
    ("workers", "ranks", "cpus", "words"),
    [
        (4, 4, 8, "4 ranks would start 4 workers each on 8 CPUs"),
        (2, 1, 1.5, "2 workers would start on 1.5 CPUs"),
    ],
)
def test_more_workers_than_cpus_are_not_tried(workers: int, ranks: int, cpus: float, words: str) -> None:
    with pytest.raises(TrialError, match=words):
        check_cpus(workers, ranks=ranks, cpus=cpus)


def test_more_workers_than_this_machine_has_cpus_are_not_tried() -> None:
    with pytest.raises(TrialError, match="workers would start on"):
        check_cpus((os.cpu_count() or 1) + 1, ranks=1)


def test_workers_need_memory() -> None:
    check_memory(4, worker_bytes=2.0 * GIB, free_bytes=10.0 * GIB)
    check_memory(4, worker_bytes=0.0, free_bytes=0.0)
    check_memory(1, worker_bytes=1.0)
    with pytest.raises(TrialError, match="5 workers need about 10 GiB of memory; 10 GiB is free"):
        check_memory(5, worker_bytes=2.0 * GIB, free_bytes=10.0 * GIB)
    with pytest.raises(TrialError, match="is free"):
        check_memory(1, worker_bytes=1e18)


def test_the_largest_worker_counts() -> None:
    line = "import time; held = bytearray(50_000_000); print(flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", line], stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        assert 50e6 < own_bytes([process.pid]) < 100e6
        assert own_bytes([os.getpid(), process.pid]) >= own_bytes([os.getpid()])
    finally:
        process.kill()
        process.communicate()
    assert own_bytes([process.pid]) == own_bytes([]) == 0.0
