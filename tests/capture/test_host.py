from __future__ import annotations

import math
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from lightning_gpuprof.capture.host import HostSampler, descendants
from lightning_gpuprof.capture.recorder import Reading
from lightning_gpuprof.capture.trace_jobs import JOB_MODULE
from lightning_gpuprof.model.journal import Notice, Sample

SECOND = 1_000_000_000
RATES = {("process", "cpu_cpus"), ("workers", "cpu_cpus"), ("host", "cpu_busy_ratio")}

BURN = """
import sys, time
while time.process_time() < 0.2:
    pass
print("burnt", flush=True)
sys.stdin.read()
"""


class Child:
    """A process that says when it is ready and ends when it is told to."""

    def __init__(self, program: str = "import sys\nprint('ready', flush=True)\nsys.stdin.read()") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline().strip()

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self) -> None:
        self.process.communicate()


@pytest.fixture
def children() -> Iterator[Callable[..., Child]]:
    started: list[Child] = []

    def start(program: str | None = None) -> Child:
        started.append(Child() if program is None else Child(program))
        return started[-1]

    yield start
    for child in started:
        child.process.kill()
        child.process.communicate()


def opened(
    find_children: Callable[[int], Collection[int]] = lambda pid: (), **clocks: Callable[[], float]
) -> HostSampler:
    sampler = HostSampler(find_children=find_children, **clocks)
    sampler.open()
    return sampler


def values(readings: Sequence[Reading]) -> dict[str, dict[str, float | None]]:
    return {each.subject: each.values for each in readings if isinstance(each, Sample)}


def notices(readings: Sequence[Reading]) -> list[str]:
    return [each.message for each in readings if isinstance(each, Notice)]


def test_the_first_sample_has_no_rates_and_everything_else() -> None:
    readings = opened().sample(0)
    assert values(readings).keys() == {"process", "workers", "host"}
    for subject, of_subject in values(readings).items():
        for name, value in of_subject.items():
            assert (value is None) == ((subject, name) in RATES), (subject, name)
    assert notices(readings) == []


def test_the_cpu_of_this_process_is_its_cpu_time_per_second() -> None:
    sampler = opened()
    before_s = sum(psutil.Process().cpu_times()[:2])
    sampler.sample(0)
    while sum(psutil.Process().cpu_times()[:2]) < before_s + 0.2:
        pass
    used = values(sampler.sample(2 * SECOND))["process"]["cpu_cpus"]
    after_s = sum(psutil.Process().cpu_times()[:2])
    assert used is not None
    assert 0.05 < used <= (after_s - before_s) / 2 + 1e-9


def test_memory_is_that_of_the_process_and_the_host() -> None:
    measured = values(opened().sample(0))
    rss_bytes, available_bytes = measured["process"]["rss_bytes"], measured["host"]["memory_available_bytes"]
    assert rss_bytes is not None
    assert available_bytes is not None
    assert 2**20 < rss_bytes < psutil.virtual_memory().total
    assert 0 < available_bytes <= psutil.virtual_memory().total


def test_the_host_s_busy_share_is_a_ratio() -> None:
    sampler = opened()
    sampler.sample(0)
    before = psutil.cpu_times()
    while psutil.cpu_times() == before:
        pass
    busy = values(sampler.sample(SECOND))["host"]["cpu_busy_ratio"]
    assert busy is not None
    assert 0 <= busy <= 1


def test_without_children_the_workers_use_nothing() -> None:
    sampler = opened()
    sampler.sample(0)
    assert values(sampler.sample(SECOND))["workers"] == {"cpu_cpus": 0.0, "count": 0.0, "rss_bytes": 0.0}


def test_children_are_found_and_summed(children: Callable[..., Child]) -> None:
    one = children()
    sampler = opened(descendants)
    first = values(sampler.sample(0))["workers"]
    children()
    second = values(sampler.sample(60 * SECOND))["workers"]
    assert first["count"] == 1
    assert second["count"] == 2
    assert first["rss_bytes"] is not None
    assert second["rss_bytes"] is not None
    assert second["rss_bytes"] > first["rss_bytes"] >= psutil.Process(one.pid).memory_info().rss * 0.9


def test_a_child_that_is_new_counts_with_all_it_used_if_it_is_younger_than_the_interval(
    children: Callable[..., Child],
) -> None:
    found: list[int] = []
    sampler = opened(lambda pid: found)
    sampler.sample(0)
    child = children(BURN)
    found.append(child.pid)
    used_s = sum(psutil.Process(child.pid).cpu_times()[:2])
    assert used_s >= 0.15
    # It cannot be older than an hour-long interval.
    cpus = values(sampler.sample(3600 * SECOND))["workers"]["cpu_cpus"]
    assert cpus == pytest.approx(used_s / 3600)


def test_a_child_that_is_seen_late_counts_with_its_mean(children: Callable[..., Child]) -> None:
    found: list[int] = []
    child = children(BURN)
    process = psutil.Process(child.pid)
    sampler = opened(lambda pid: found, unix_time_s=lambda: process.create_time() + 100)
    sampler.sample(0)
    found.append(child.pid)
    cpus = values(sampler.sample(2 * SECOND))["workers"]["cpu_cpus"]
    assert cpus == pytest.approx(sum(process.cpu_times()[:2]) / 100)


def test_a_known_child_counts_with_what_it_used_since(children: Callable[..., Child]) -> None:
    child = children(BURN)
    sampler = opened(lambda pid: [child.pid])
    sampler.sample(0)
    assert values(sampler.sample(SECOND))["workers"]["cpu_cpus"] == pytest.approx(0, abs=0.03)


def test_a_child_that_has_ended_is_no_error(children: Callable[..., Child]) -> None:
    stays, goes = children(), children()
    sampler = opened(lambda pid: [stays.pid, goes.pid])
    assert values(sampler.sample(0))["workers"]["count"] == 2
    goes.end()
    readings = sampler.sample(SECOND)
    assert values(readings)["workers"]["count"] == 1
    assert None not in values(readings)["workers"].values()
    assert notices(readings) == []


def test_a_child_that_nobody_has_waited_for_is_no_worker_any_more(children: Callable[..., Child]) -> None:
    child = children()
    sampler = opened(lambda pid: [child.pid])
    sampler.sample(0)
    child.process.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    readings = sampler.sample(SECOND)
    assert values(readings)["workers"] == {"cpu_cpus": 0.0, "count": 0.0, "rss_bytes": 0.0}
    assert notices(readings) == []


def test_python_s_and_our_own_children_are_no_workers(children: Callable[..., Child]) -> None:
    ready = "import sys\nprint('ready', flush=True)\nsys.stdin.read()"
    job = subprocess.Popen(
        [sys.executable, "-c", ready, "-m", JOB_MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    tracker = children(f"0 and '''from multiprocessing.resource_tracker import main;main(5)'''\n{ready}")
    # A user's command line may name this package; its forked workers have the same.
    worker = children(f"0 and 'trainer.callbacks=lightning_gpuprof.GpuProfiler'\n{ready}")
    try:
        assert job.stdout is not None
        assert job.stdout.readline()
        counted: list[float | None] = []
        for pids in ([job.pid], [tracker.pid], [worker.pid]):
            sampler = opened(lambda pid, pids=pids: pids)
            counted.append(values(sampler.sample(0))["workers"]["count"])
        assert counted == [0, 0, 1]
    finally:
        job.communicate()


def test_the_search_for_children_takes_at_most_half_a_percent_of_a_core() -> None:
    cost_s = 0.04
    clock_s = 0.0
    looks = 0

    def find(pid: int) -> Collection[int]:
        nonlocal clock_s, looks
        clock_s += cost_s
        looks += 1
        return ()

    sampler = opened(find, thread_cpu_s=lambda: clock_s)
    seconds = 1000
    for second in range(seconds):
        sampler.sample(second * SECOND)
    assert looks == math.ceil(seconds * 0.005 / cost_s)


def test_what_cannot_be_read_is_none_with_one_notice() -> None:
    def not_permitted(pid: int) -> Collection[int]:
        raise PermissionError("/proc")

    sampler = opened(not_permitted)
    readings = [*sampler.sample(0), *sampler.sample(SECOND)]
    assert values(readings)["workers"] == {"cpu_cpus": None, "count": None, "rss_bytes": None}
    assert notices(readings) == ["workers is not measured: PermissionError: /proc"]
    assert values(readings)["process"]["cpu_cpus"] is not None


def test_psutil_s_own_cpu_percent_is_left_as_found() -> None:
    sampler = opened()
    before = dict(vars(psutil)["_last_cpu_times"])
    sampler.sample(0)
    assert vars(psutil)["_last_cpu_times"] == before


# The process table --------------------------------------------------------------------------------------------------


class FakeProc:
    def __init__(self, root: Path) -> None:
        self.root = root

    def thread(self, pid: int, tid: int, *children: int) -> None:
        folder = self.root / str(pid) / "task" / str(tid)
        folder.mkdir(parents=True)
        (folder / "children").write_text("".join(f"{child} " for child in children))


def test_descendants_of_all_threads_and_of_children_are_found(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.thread(10, 10, 20, 21)
    proc.thread(10, 11, 22)
    proc.thread(20, 20)
    proc.thread(21, 21, 30)
    proc.thread(21, 25, 31)
    proc.thread(22, 22)
    proc.thread(30, 30)
    proc.thread(99, 99, 100)
    # 31 has ended between the two looks.
    assert descendants(10, tmp_path) == {20, 21, 22, 30, 31}


def test_a_process_without_children_has_none(tmp_path: Path) -> None:
    FakeProc(tmp_path).thread(10, 10)
    assert descendants(10, tmp_path) == frozenset()


def test_a_table_that_changes_while_it_is_read_ends(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.thread(10, 10, 20)
    proc.thread(20, 20, 10)  # numbers were given anew
    assert descendants(10, tmp_path) == {10, 20}


def test_without_the_kernel_s_lists_psutil_finds_them(children: Callable[..., Child], tmp_path: Path) -> None:
    child = children()
    assert child.pid in descendants(os.getpid(), tmp_path)


def test_a_process_that_has_ended_has_no_children(children: Callable[..., Child], tmp_path: Path) -> None:
    child = children()
    child.end()
    assert descendants(child.pid, tmp_path) == frozenset()
