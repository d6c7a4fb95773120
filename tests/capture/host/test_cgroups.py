from pathlib import Path

import pytest
from fake_machine import OWN, FakeMachine

from lightning_gpuprof.capture.host.cgroups import ControlGroup, Groups, usable_cpus
from lightning_gpuprof.errors import ArgumentError


def group_of(machine: FakeMachine) -> ControlGroup:
    return ControlGroup(Groups.find(machine.roots.cgroup, machine.proc))


def version(machine: FakeMachine) -> str:
    return Groups.find(machine.roots.cgroup, machine.proc).version


def test_version_2_limits_and_events(machine: FakeMachine) -> None:
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


def test_the_group_whose_limit_binds_is_read(machine: FakeMachine) -> None:
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


def test_version_1_limits_and_events(machine: FakeMachine) -> None:
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


def test_no_limit_is_none_and_its_own_group_is_read(machine: FakeMachine) -> None:
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
def test_what_is_no_limit_in_version_1_is_none(machine: FakeMachine, limit: str) -> None:
    machine.put("sys/fs/cgroup/memory/memory.limit_in_bytes", limit)
    assert group_of(machine).memory_limit_bytes is None


def test_without_control_groups_there_is_nothing(tmp_path: Path) -> None:
    group = group_of(FakeMachine(tmp_path))
    assert (group.quota_cpus, group.memory_limit_bytes, group.pressure_folder) == (None, None, None)
    assert (group.cpu_counters(), group.memory()) == ({}, ({}, {}))
    assert version(FakeMachine(tmp_path / "other")) == ""


V1 = {f"{folder}/cpu.cfs_period_us": "100000" for folder in ("cpu/a", "cpu,cpuacct", "cpu,cpuacct/docker/job")}


@pytest.mark.parametrize(
    ("groups", "files", "affinity", "ranks", "expected"),
    [
        pytest.param("", {}, 6, 1, 6, id="no control groups: the affinity counts"),
        ("0::/job", {"job/cpu.max": "250000 100000"}, 16, 1, 2.5),
        pytest.param("0::/job", {"job/cpu.max": "800000 100000"}, 4, 1, 4, id="an affinity below the quota"),
        ("0::/job", {"job/cpu.max": "max 100000"}, 16, 1, 16),
        pytest.param("0::/job", {"job/cpu.max": "600000 100000"}, 16, 4, 1.5, id="ranks share the CPUs"),
        ("0::/a/b", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "800000 100000"}, 16, 1, 2),
        ("0::/a/b", {"a/cpu.max": "800000 100000", "a/b/cpu.max": "200000 100000"}, 16, 1, 2),
        pytest.param("0::/", {"cpu.max": "150000 100000"}, 16, 1, 1.5, id="a container's mount is its own group"),
        pytest.param("0::/docker/0123abc", {"cpu.max": "300000 100000"}, 16, 1, 3, id="the host's path"),
        pytest.param(
            "0::/../other",
            {"cpu.max": "300000 100000", "../other/cpu.max": "100000 100000"},
            16,
            1,
            3,
            id="a path outside of the namespace stays below the mount",
        ),
        *(
            (
                "5:cpuset:/\n3:cpu,cpuacct:/docker/job\n0::/elsewhere",
                {f"{one}/docker/job/cpu.cfs_quota_us": "350000", f"{one}/docker/job/cpu.cfs_period_us": "100000"},
                16,
                1,
                3.5,
            )
            for one in ("cpu", "cpu,cpuacct", "cpuacct,cpu")
        ),
        pytest.param(
            "3:cpu,cpuacct:/docker/job",
            {**V1, "cpu,cpuacct/docker/job/cpu.cfs_quota_us": "-1", "cpu,cpuacct/cpu.cfs_quota_us": "-1"},
            16,
            1,
            16,
            id="version 1 without a quota",
        ),
        pytest.param(
            "3:cpu:/a\n0::/b",
            {**V1, "cpu/a/cpu.cfs_quota_us": "500000", "unified/b/cpu.max": "400000 100000"},
            16,
            1,
            4,
            id="a mixed host",
        ),
        *(
            ("0::/job", {"job/cpu.max": text}, 16, 1, 16)
            for text in ("", "nonsense", "100000", "0 100000", "100000 0", "max")
        ),
    ],
)
def test_a_rank_may_use_the_smallest_of_affinity_and_quotas(
    tmp_path: Path, groups: str, files: dict[str, str], affinity: int, ranks: int, expected: float
) -> None:
    machine = FakeMachine(tmp_path)
    if groups:
        machine.put(f"proc/{OWN}/cgroup", f"{groups}\n")
    for name, text in files.items():
        machine.put(f"sys/fs/cgroup/{name}", f"{text}\n")
    roots = {"cgroup_root": machine.roots.cgroup, "proc_root": machine.proc}
    assert usable_cpus(affinity=affinity, local_ranks=ranks, **roots) == expected


@pytest.mark.parametrize(("affinity", "ranks", "name"), [(0, 1, "affinity"), (1, 0, "local_ranks")])
def test_numbers_that_cannot_be_are_named(affinity: int, ranks: int, name: str) -> None:
    with pytest.raises(ArgumentError, match=f"{name} must be at least 1, got 0"):
        usable_cpus(affinity=affinity, local_ranks=ranks)
