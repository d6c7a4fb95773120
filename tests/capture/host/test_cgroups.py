from __future__ import annotations

from pathlib import Path

import pytest
from fake_machine import OWN, FakeMachine

from lightning_gpuprof.capture.host.cgroups import ControlGroup, Groups


def group_of(machine: FakeMachine) -> ControlGroup:
    return ControlGroup(Groups.find(machine.roots.cgroup, machine.proc))


def version(machine: FakeMachine) -> str:
    return Groups.find(machine.roots.cgroup, machine.proc).version


def test_version_2_limits_and_events(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    folder = machine.v2()
    machine.put(f"{folder}/cpu.max", "150000 100000\n")
    stat = "usage_usec 9\nnr_periods 100\nnr_throttled 25\nthrottled_usec 4000000\n"
    machine.put(f"{folder}/cpu.stat", stat)
    machine.put(f"{folder}/memory.max", "4000\n")
    machine.put(f"{folder}/memory.current", "3000\n")
    machine.put(f"{folder}/memory.stat", "anon 1\ninactive_file 1000\n")
    machine.put(f"{folder}/memory.events", "low 0\nhigh 3\nmax 2\noom 1\noom_kill 1\n")
    group = group_of(machine)
    assert version(machine) == "v2"
    assert (group.quota_cpus, group.memory_limit_bytes) == (1.5, 4000)
    assert group.cpu_counters() == {"cpu_periods_count": 100, "cpu_throttled_count": 25, "cpu_throttled_s": 4.0}
    levels, counters = group.memory()
    assert levels == {"memory_used_bytes": 3000, "memory_working_bytes": 2000, "memory_used_ratio": 0.75}
    assert counters == {"memory_high_count": 3, "memory_max_count": 2, "oom_kill_count": 1}


def test_the_group_whose_limit_binds_is_read(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    folder = machine.v2("/pod/app")
    machine.put(f"{folder}/cpu.max", "max 100000\n")
    machine.put(f"{folder}/cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n")
    machine.put(f"{folder}/memory.max", "9000\n")
    machine.put(f"{folder}/memory.current", "10\n")
    machine.put("sys/fs/cgroup/pod/cpu.max", "200000 100000\n")
    machine.put("sys/fs/cgroup/pod/cpu.stat", "nr_periods 8\nnr_throttled 4\nthrottled_usec 1000000\n")
    machine.put("sys/fs/cgroup/pod/memory.max", "5000\n")
    machine.put("sys/fs/cgroup/pod/memory.current", "4000\n")
    group = group_of(machine)
    assert (group.quota_cpus, group.memory_limit_bytes) == (2.0, 5000)
    assert group.cpu_counters()["cpu_throttled_count"] == 4
    assert group.memory()[0]["memory_used_bytes"] == 4000


def test_version_1_limits_and_events(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    machine.put(f"proc/{OWN}/cgroup", "4:memory:/app\n3:cpu,cpuacct:/app\n0::/\n")
    cpu, memory = "sys/fs/cgroup/cpu,cpuacct/app", "sys/fs/cgroup/memory/app"
    machine.put(f"{cpu}/cgroup.procs", "")
    machine.put(f"{cpu}/cpu.cfs_quota_us", "50000\n")
    machine.put(f"{cpu}/cpu.cfs_period_us", "100000\n")
    machine.put(f"{cpu}/cpu.stat", "nr_periods 10\nnr_throttled 5\nthrottled_time 2500000000\n")
    machine.put(f"{memory}/memory.limit_in_bytes", "8000\n")
    machine.put(f"{memory}/memory.usage_in_bytes", "6000\n")
    machine.put(f"{memory}/memory.stat", "inactive_file 1\ntotal_inactive_file 2000\n")
    machine.put(f"{memory}/memory.failcnt", "7\n")
    machine.put(f"{memory}/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    group = group_of(machine)
    assert version(machine) == "v1"
    assert (group.quota_cpus, group.memory_limit_bytes) == (0.5, 8000)
    assert group.cpu_counters() == {"cpu_periods_count": 10, "cpu_throttled_count": 5, "cpu_throttled_s": 2.5}
    levels, counters = group.memory()
    assert levels["memory_working_bytes"] == 4000
    assert counters == {"memory_max_count": 7, "oom_kill_count": 2}
    machine.put("sys/fs/cgroup/unified/cgroup.procs", "")
    assert version(machine) == "hybrid"


def test_no_limit_is_none_and_its_own_group_is_read(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    folder = machine.v2()
    machine.put(f"{folder}/cpu.max", "max 100000\n")
    machine.put(f"{folder}/memory.max", "max\n")
    machine.put(f"{folder}/memory.current", "3000\n")
    machine.put(f"{folder}/memory.events", "high 0\n")
    group = group_of(machine)
    assert (group.quota_cpus, group.memory_limit_bytes) == (None, None)
    assert group.cpu_counters() == {}
    assert group.memory() == ({"memory_used_bytes": 3000}, {"memory_high_count": 0})


@pytest.mark.parametrize("limit", ["9223372036854771712", "-1", "no number", ""])
def test_what_is_no_limit_in_version_1_is_none(tmp_path: Path, limit: str) -> None:
    machine = FakeMachine(tmp_path)
    machine.put("sys/fs/cgroup/memory/memory.limit_in_bytes", limit)
    assert group_of(machine).memory_limit_bytes is None


def test_without_control_groups_there_is_nothing(tmp_path: Path) -> None:
    group = group_of(FakeMachine(tmp_path))
    assert (group.quota_cpus, group.memory_limit_bytes, group.pressure_folder) == (None, None, None)
    assert (group.cpu_counters(), group.memory()) == ({}, ({}, {}))
    assert version(FakeMachine(tmp_path / "other")) == ""
