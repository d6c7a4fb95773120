import math
import multiprocessing
import time
from collections.abc import Callable, Collection
from pathlib import Path

import pytest
import torch
from fake_machine import OWN, FakeMachine, FakeProcess
from torch.utils.data import DataLoader, Dataset

from lightning_gpuprof.capture.host.children import WORKER_NAME, Children, daemonic_children
from lightning_gpuprof.capture.host.process_tree import descendants
from lightning_gpuprof.capture.trace_jobs import JOB_MODULE

SECOND = 1_000_000_000
NOW_S = 1000.0


class World:
    """A fake machine with children, and their watcher."""

    def __init__(self, root: Path, *, names_workers: bool = True, daemons: Collection[int] = ()) -> None:
        self.machine = FakeMachine(root)
        self.now_s = NOW_S
        self.daemons = set(daemons)
        self.children = Children(
            str(self.machine.proc),
            lambda: descendants(OWN, self.machine.proc),
            names_workers=names_workers,
            daemons=lambda: self.daemons,
            thread_cpu_s=lambda: 0.0,
            wall_s=lambda: 0.0,
            boot_s=lambda: self.now_s,
        )

    def have(self, *pids: int, name: str = WORKER_NAME, **values: float) -> None:
        self.machine.children(OWN, *pids)
        for pid in pids:
            if pid not in self.machine.processes:
                self.machine.process(pid, FakeProcess(name=name, **values))  # type: ignore[arg-type]

    def use(self, pid: int, cpu_s: float) -> None:
        process = self.machine.processes[pid]
        process.user_s += cpu_s
        self.machine.process(pid)

    def sample(self, second: float, ended_s: float = 0.0) -> dict[str, dict[str, float]]:
        return self.children.sample(round(second * SECOND), ended_s)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_workers_are_told_by_the_name_they_take_and_each_has_a_row(world: World) -> None:
    world.have(11, 12, rss_bytes=4096, shared_bytes=0)
    world.machine.process(13, FakeProcess(name="ffmpeg", rss_bytes=8192))
    world.machine.children(OWN, 11, 12, 13)
    world.sample(0)
    world.use(11, 1.0)
    world.use(12, 0.5)
    world.use(13, 0.25)
    found = world.sample(2)
    assert found.keys() == {"workers", "worker0", "worker1", "children"}
    assert [found[s]["cpu_cpus"] for s in ("workers", "worker0", "worker1", "children")] == [0.75, 0.5, 0.25, 0.125]
    assert [found[s]["rss_bytes"] for s in ("workers", "children")] == [8192, 8192]
    assert [found[s]["count"] for s in ("workers", "children")] == [2, 1]
    assert world.children.used_s == pytest.approx(1.75)


def test_shares_of_several_are_means(world: World) -> None:
    world.have(11, 12)
    world.sample(0)
    world.machine.processes[11].delay_s, world.machine.processes[12].state = 0.5, "D"
    world.machine.process(11)
    world.machine.process(12)
    found = world.sample(1)
    assert (found["workers"]["run_delay_ratio"], found["workers"]["disk_sleep_ratio"]) == (0.25, 0.5)
    assert found["worker1"]["disk_sleep_ratio"] == 1


def test_the_workers_of_the_next_epoch_take_the_places_of_those_that_ended(world: World) -> None:
    world.have(11, 12)
    world.sample(0)
    world.machine.end(11)
    world.have(12, 13)
    assert world.sample(1).keys() >= {"worker0", "worker1"}
    assert {pid: child.number for pid, child in world.children._children.items()} == {12: 1, 13: 0}


def test_without_children_the_workers_use_nothing(world: World) -> None:
    world.sample(0)
    assert world.sample(1)["workers"] == {"count": 0, "cpu_cpus": 0, "rss_bytes": 0}


@pytest.mark.parametrize(("user_s", "age_s", "cpus"), [(0.5, 1, 0.25), (50.0, 100, 0.5)])
def test_a_child_that_is_new_counts_with_all_it_used_if_it_is_young_and_else_with_its_mean(
    world: World, user_s: float, age_s: float, cpus: float
) -> None:
    world.sample(0)
    world.have(11, user_s=user_s, started_s=NOW_S - age_s)
    assert world.sample(2)["workers"]["cpu_cpus"] == cpus


def test_a_worker_that_vanishes_between_search_and_reading_is_no_error(world: World) -> None:
    world.have(11, 12)
    world.sample(0)
    (world.machine.proc / "12" / "stat").unlink()
    found = world.sample(1)
    assert (found["workers"]["count"], "worker1" in found, world.children.problem) == (1, False, "")


def test_a_zombie_is_no_worker_any_more(world: World) -> None:
    world.have(11)
    world.sample(0)
    world.machine.processes[11].state = "Z"
    world.machine.process(11)
    assert world.sample(1)["workers"] == {"count": 0, "cpu_cpus": 0, "rss_bytes": 0}
    assert world.children.problem == ""


def test_what_a_worker_used_after_its_last_sample_is_counted_once_it_was_waited_for(world: World) -> None:
    world.have(11, 12)
    world.sample(0, ended_s=5.0)
    world.use(11, 0.5)
    assert world.sample(1, ended_s=5.0)["workers"]["cpu_cpus"] == 0.5
    world.machine.end(11)  # not waited for yet
    world.use(12, 0.25)
    world.have(12)
    assert world.sample(2, ended_s=5.0)["workers"]["cpu_cpus"] == 0.25
    found = world.sample(3, ended_s=6.25)  # 0.75 s more than was seen
    assert (found["workers"]["cpu_cpus"], found["worker1"]["cpu_cpus"]) == (0.75, 0)
    assert world.sample(4, ended_s=6.25)["workers"]["cpu_cpus"] == 0
    assert world.children.used_s == pytest.approx(1.5)


def test_workers_between_whose_start_and_end_no_sample_falls_are_no_other_programs(world: World) -> None:
    world.have(11)
    world.sample(0)
    world.machine.end(11)
    world.have(13)
    assert world.sample(1, ended_s=0.75)["workers"]["cpu_cpus"] == 0.75  # of 11 and 12
    assert world.children.used_s == pytest.approx(0.75)


def test_what_a_worker_s_own_children_used_counts_once(world: World) -> None:
    world.have(11)
    world.have(12, name="ffmpeg")
    world.machine.children(OWN, 11)
    world.machine.children(11, 12)
    world.sample(0)
    world.use(12, 0.5)
    assert world.sample(1)["children"]["cpu_cpus"] == 0.5
    world.machine.end(12)
    world.machine.children(11)
    world.machine.processes[11].ended_children_s = 0.75
    world.machine.process(11)
    assert world.sample(2)["children"]["cpu_cpus"] == 0.25
    assert world.children.used_s == pytest.approx(0.75)


def test_python_s_and_our_own_helpers_are_no_workers_and_no_children(world: World) -> None:
    tracker = b"python\0-c\0from multiprocessing.resource_tracker import main;main(5)\0"
    for pid, command in ((11, f"python\0-m\0{JOB_MODULE}\0".encode()), (12, tracker), (13, b"python\0train.py\0")):
        world.machine.process(pid, FakeProcess(command=command))
    world.machine.children(OWN, 11, 12, 13)
    found = world.sample(0)
    assert (found["workers"]["count"], found["children"]["count"]) == (0, 1)


def test_a_spawned_worker_counts_before_it_has_its_name(tmp_path: Path) -> None:
    world = World(tmp_path, daemons={11, 12})
    world.have(11, 12, name="python", started_s=NOW_S - 5)
    assert world.sample(0)["workers"]["count"] == 2
    world.machine.processes[11].name = WORKER_NAME
    world.machine.process(11)
    world.now_s += 100
    found = world.sample(100)
    assert (found["workers"]["count"], found["children"]["count"]) == (1, 1)  # a daemon that never takes the name


def test_where_torch_names_none_daemons_are_workers(tmp_path: Path) -> None:
    world = World(tmp_path, names_workers=False, daemons={11})
    world.have(11, 12, name="python", started_s=0)
    found = world.sample(0)
    assert (found["workers"]["count"], found["children"]["count"]) == (1, 1)


def test_one_that_may_not_be_read_takes_the_sums_and_says_why(world: World) -> None:
    world.have(11, 12)
    world.sample(0)
    world.machine.put("proc/12/stat", "hidden")
    found = world.sample(1)
    assert found["workers"] == {"count": 2}
    assert found.keys() >= {"worker0", "children"}
    assert world.children.problem == "ValueError: stat has too few fields"


def test_children_that_cannot_be_found_are_absent_and_said(machine: FakeMachine) -> None:

    def not_permitted() -> Collection[int]:
        raise PermissionError("/proc")

    children = Children(str(machine.proc), not_permitted, boot_s=lambda: 0.0)
    assert children.sample(0) == {}
    assert children.problem == "PermissionError: /proc"


def test_the_search_takes_at_most_a_thousandth_of_a_core(tmp_path: Path) -> None:
    cost_s, clock_s, looks = 0.04, 0.0, 0

    def find() -> Collection[int]:
        nonlocal clock_s, looks
        clock_s += cost_s
        looks += 1
        return ()

    children = Children(str(tmp_path), find, thread_cpu_s=lambda: clock_s, boot_s=lambda: 0.0)
    for second in range(1000):
        children.sample(second * SECOND)
    assert looks == math.ceil(1000 * 0.001 / cost_s)


def test_after_a_minute_a_worker_s_row_is_in_each_tenth_sample(world: World) -> None:
    world.have(11)
    rows = ["worker0" in world.sample(second) for second in range(100)]
    assert all(rows[:60])
    assert sum(rows[60:]) == 4


class Slow(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.01)
        return torch.zeros(1)


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_of_a_real_loader_are_found(context: str) -> None:
    import os

    loader = DataLoader(Slow(), batch_size=1, num_workers=2, multiprocessing_context=context)
    batches = iter(loader)
    next(batches)
    own = os.getpid()
    children = Children("/proc", lambda: descendants(own), boot_s=lambda: time.clock_gettime(time.CLOCK_BOOTTIME))
    found = children.sample(0)
    assert found["workers"]["count"] == 2
    assert found["workers"]["rss_bytes"] == found["worker0"]["rss_bytes"] + found["worker1"]["rss_bytes"] > 2**20


def wait_for(end: Callable[[], bool]) -> None:
    while not end():
        time.sleep(0.01)


def test_looking_for_daemons_collects_no_ended_process() -> None:
    context = multiprocessing.get_context("fork")
    process = context.Process(target=time.sleep, args=(0,), daemon=True)
    process.start()
    wait_for(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
    assert process.pid in daemonic_children()
    assert Path(f"/proc/{process.pid}").exists()  # its status is still to be asked for
    process.join()
    assert process.exitcode == 0
