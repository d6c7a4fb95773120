from __future__ import annotations

from pathlib import Path

import pytest

from lightning_gpuprof.capture.host.cgroups import usable_cpus
from lightning_gpuprof.errors import ArgumentError


class FakeHost:
    """A tree with ``proc`` and ``cgroup`` in it."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.cgroup = folder / "cgroup"

    def in_groups(self, *lines: str) -> None:
        self.write(self.proc / "self" / "cgroup", "\n".join(lines) + "\n")

    def v2(self, group: str, cpu_max: str) -> None:
        self.write(self.cgroup / group / "cpu.max", cpu_max + "\n")

    def v1(self, group: str, quota_us: int, period_us: int = 100_000, controller: str = "cpu,cpuacct") -> None:
        self.write(self.cgroup / controller / group / "cpu.cfs_quota_us", f"{quota_us}\n")
        self.write(self.cgroup / controller / group / "cpu.cfs_period_us", f"{period_us}\n")

    def cpus(self, affinity: int, local_ranks: int = 1) -> float:
        return usable_cpus(affinity=affinity, cgroup_root=self.cgroup, proc_root=self.proc, local_ranks=local_ranks)

    @staticmethod
    def write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


def test_without_control_groups_the_affinity_counts(host: FakeHost) -> None:
    assert host.cpus(affinity=6) == 6


def test_a_quota_below_the_affinity_counts(host: FakeHost) -> None:
    host.in_groups("0::/job")
    host.v2("job", "250000 100000")
    assert host.cpus(affinity=16) == 2.5


def test_an_affinity_below_the_quota_counts(host: FakeHost) -> None:
    host.in_groups("0::/job")
    host.v2("job", "800000 100000")
    assert host.cpus(affinity=4) == 4


def test_max_is_no_limit(host: FakeHost) -> None:
    host.in_groups("0::/job")
    host.v2("job", "max 100000")
    assert host.cpus(affinity=16) == 16


@pytest.mark.parametrize(("outer", "inner"), [("200000 100000", "800000 100000"), ("800000 100000", "200000 100000")])
def test_the_smallest_quota_of_all_groups_above_counts(host: FakeHost, outer: str, inner: str) -> None:
    host.in_groups("0::/slice/user/job")
    host.v2("slice", outer)
    host.v2("slice/user", "max 100000")
    host.v2("slice/user/job", inner)
    assert host.cpus(affinity=16) == 2


def test_in_a_container_the_mount_is_its_own_group(host: FakeHost) -> None:
    host.in_groups("0::/")
    host.v2("", "150000 100000")
    assert host.cpus(affinity=16) == 1.5


def test_a_path_of_the_host_that_the_container_does_not_see_leads_to_the_mount(host: FakeHost) -> None:
    host.in_groups("0::/docker/0123abc")
    host.v2("", "300000 100000")
    assert host.cpus(affinity=16) == 3


def test_a_path_outside_of_the_namespace_stays_below_the_mount(host: FakeHost, tmp_path: Path) -> None:
    host.in_groups("0::/../other")
    host.v2("", "300000 100000")
    host.write(tmp_path / "other" / "cpu.max", "100000 100000\n")
    assert host.cpus(affinity=16) == 3


def test_ranks_share_the_cpus(host: FakeHost) -> None:
    host.in_groups("0::/job")
    host.v2("job", "600000 100000")
    assert host.cpus(affinity=16, local_ranks=4) == 1.5


@pytest.mark.parametrize("controller", ["cpu", "cpu,cpuacct", "cpuacct,cpu"])
def test_version_1_quota_counts(host: FakeHost, controller: str) -> None:
    host.in_groups("5:cpuset:/", "3:cpu,cpuacct:/docker/job", "0::/elsewhere")
    host.v1("docker/job", 350_000, controller=controller)
    assert host.cpus(affinity=16) == 3.5


def test_version_1_without_a_quota_is_no_limit(host: FakeHost) -> None:
    host.in_groups("3:cpu,cpuacct:/docker/job")
    host.v1("docker/job", -1)
    host.v1("", -1)
    assert host.cpus(affinity=16) == 16


def test_on_a_mixed_host_both_versions_count(host: FakeHost) -> None:
    host.in_groups("3:cpu:/a", "0::/b")
    host.v1("a", 500_000, controller="cpu")
    host.v2("unified/b", "400000 100000")
    assert host.cpus(affinity=16) == 4


@pytest.mark.parametrize("content", ["", "nonsense", "100000", "0 100000", "100000 0", "max"])
def test_a_file_that_says_nothing_sets_no_limit(host: FakeHost, content: str) -> None:
    host.in_groups("0::/job")
    host.v2("job", content)
    assert host.cpus(affinity=16) == 16


def test_arguments_that_cannot_be_are_named(host: FakeHost) -> None:
    with pytest.raises(ArgumentError, match="affinity must be at least 1, got 0"):
        host.cpus(affinity=0)
    with pytest.raises(ArgumentError, match="local_ranks must be at least 1, got 0"):
        host.cpus(affinity=1, local_ranks=0)
