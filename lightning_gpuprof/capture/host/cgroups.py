"""Limits of this process's control groups (versions 1 and 2), what they held back, and the CPUs that they leave it."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import msgspec

from lightning_gpuprof.capture.host import proc_file
from lightning_gpuprof.errors import ArgumentError

V1_CPU = ("cpu", "cpu,cpuacct", "cpuacct,cpu")
_NO_LIMIT_BYTES = 1 << 60
"""Version 1 shows no limit as a number near 2**63."""


class Groups(msgspec.Struct, frozen=True, kw_only=True):
    """Folders of the groups that hold this process, own group first, then those above it; some may not exist."""

    v2: tuple[Path, ...]
    v1_cpu: tuple[Path, ...]
    v1_memory: tuple[Path, ...]

    @classmethod
    def find(cls, cgroup_root: Path, proc_root: Path) -> Groups:
        """From ``/proc/self/cgroup``.

        Args:
            cgroup_root: Where control groups are mounted, as ``/sys/fs/cgroup``.
            proc_root: Where the processes are, as ``/proc``.

        Returns:
            Without a line for it, a group is the root alone: which one it is is not known, but a container's own root
            still shows its limits.
        """
        unified = cpu = memory = PurePosixPath("/")
        try:
            lines = (proc_root / "self" / "cgroup").read_text().splitlines()
        except (OSError, UnicodeDecodeError):
            lines = []
        for line in lines:
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if not controllers:
                unified = PurePosixPath(path)
            elif "cpu" in controllers.split(","):
                cpu = PurePosixPath(path)
            elif "memory" in controllers.split(","):
                memory = PurePosixPath(path)
        return cls(
            v2=tuple(g for mount in (cgroup_root, cgroup_root / "unified") for g in _and_parents(mount, unified)),
            v1_cpu=tuple(g for name in V1_CPU for g in _and_parents(cgroup_root / name, cpu)),
            v1_memory=tuple(_and_parents(cgroup_root / "memory", memory)),
        )

    @property
    def version(self) -> str:
        """``v2``, ``v1``, ``hybrid``, or empty if none is mounted."""
        v2 = any((group / "cgroup.procs").exists() for group in self.v2)
        v1 = any((group / "cgroup.procs").exists() for group in (*self.v1_cpu, *self.v1_memory))
        return "hybrid" if v1 and v2 else "v2" if v2 else "v1" if v1 else ""


def _and_parents(mount: Path, group: PurePosixPath) -> list[Path]:
    """The group and all groups above it up to the mount.

    In a container without a cgroup namespace the path is the host's and does not exist below the mount, which shows
    the container's own group as its root; a process outside the namespace's root has a path with ``..``.
    """
    parts = [part for part in group.parts if part not in ("/", "..")]
    return [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]


def cpu_quotas(groups: Groups) -> dict[Path, float]:
    """Groups that limit CPU time, and their limits in CPUs.

    ``cpu.max`` of version 2, ``cpu.cfs_quota_us / cpu.cfs_period_us`` of version 1 (kernel documentation,
    admin-guide/cgroup-v2 and scheduler/sched-bwc). A group whose files are absent or unreadable sets no limit.
    """
    found: dict[Path, float] = {}
    for group in groups.v2:
        quota, _, period = (proc_file.read_if_there(f"{group}/cpu.max") or b"").strip().partition(b" ")
        _add_quota(found, group, quota, period)
    for group in groups.v1_cpu:
        quota = proc_file.read_if_there(f"{group}/cpu.cfs_quota_us") or b""
        _add_quota(found, group, quota, proc_file.read_if_there(f"{group}/cpu.cfs_period_us") or b"")
    return found


def _add_quota(found: dict[Path, float], group: Path, quota: bytes, period: bytes) -> None:
    quota_us, period_us = proc_file.number(quota), proc_file.number(period)
    if quota_us and period_us and quota_us > 0 and period_us > 0:
        found[group] = quota_us / period_us


class ControlGroup:
    """The groups whose limits bind: of all that hold this process, those with the smallest quota and memory limit.

    Where none sets a limit, its own group counts, as far as it has the files.
    """

    def __init__(self, groups: Groups) -> None:
        quotas = cpu_quotas(groups)
        self.quota_cpus = min(quotas.values(), default=None)
        self._cpu = (
            min(quotas, key=lambda group: quotas[group])
            if quotas
            else _first((*groups.v2, *groups.v1_cpu), "cpu.stat", b"nr_periods")
        )
        limits = {g: limit for g in groups.v2 if (limit := _limit(g, "memory.max")) is not None}
        limits |= {g: limit for g in groups.v1_memory if (limit := _limit(g, "memory.limit_in_bytes")) is not None}
        self.memory_limit_bytes = min(limits.values(), default=None)
        binding = min(limits, key=lambda group: limits[group]) if limits else None
        self._memory_v2 = binding if binding in groups.v2 else None
        self._memory_v1 = binding if binding in groups.v1_memory else None
        if binding is None:
            self._memory_v2 = _first(groups.v2, "memory.current")
            self._memory_v1 = _first(groups.v1_memory, "memory.usage_in_bytes") if self._memory_v2 is None else None
        self.pressure_folder = _first(groups.v2, "cpu.pressure")

    def cpu_counters(self) -> dict[str, float]:
        """Periods of the quota so far, those in which the group was held back, and for how long (all CPUs together)."""
        if self._cpu is None:
            return {}
        found = proc_file.keyed(proc_file.read_if_there(f"{self._cpu}/cpu.stat"))
        counters: dict[str, float] = {}
        if b"nr_periods" in found and b"nr_throttled" in found:
            counters["cpu_periods_count"] = float(found[b"nr_periods"])
            counters["cpu_throttled_count"] = float(found[b"nr_throttled"])
        if b"throttled_usec" in found:
            counters["cpu_throttled_s"] = found[b"throttled_usec"] / 1e6
        elif b"throttled_time" in found:
            counters["cpu_throttled_s"] = found[b"throttled_time"] / 1e9
        return counters

    def memory(self) -> tuple[dict[str, float], dict[str, float]]:
        """Levels of memory, and counters of what happened at its limits."""
        folder = self._memory_v1 if self._memory_v2 is None else self._memory_v2
        if folder is None:
            return {}, {}
        stat = proc_file.keyed(proc_file.read_if_there(f"{folder}/memory.stat"))
        if self._memory_v2 is not None:
            used = proc_file.number(proc_file.read_if_there(f"{folder}/memory.current"))
            cached = stat.get(b"inactive_file")
            events = proc_file.keyed(proc_file.read_if_there(f"{folder}/memory.events"))
        else:
            used = proc_file.number(proc_file.read_if_there(f"{folder}/memory.usage_in_bytes"))
            cached = stat.get(b"total_inactive_file", stat.get(b"inactive_file"))
            events = proc_file.keyed(proc_file.read_if_there(f"{folder}/memory.oom_control"))
            if (failed := proc_file.number(proc_file.read_if_there(f"{folder}/memory.failcnt"))) is not None:
                events[b"max"] = failed
        names = {b"high": "memory_high_count", b"max": "memory_max_count", b"oom_kill": "oom_kill_count"}
        counters = {name: float(events[key]) for key, name in names.items() if key in events}
        levels: dict[str, float] = {}
        if used is not None:
            levels["memory_used_bytes"] = float(used)
            if cached is not None:
                levels["memory_working_bytes"] = float(max(0, used - cached))
            if self.memory_limit_bytes:
                levels["memory_used_ratio"] = used / self.memory_limit_bytes
        return levels, counters


def _limit(group: Path, name: str) -> int | None:
    found = proc_file.number(proc_file.read_if_there(f"{group}/{name}"))
    return found if found is not None and 0 < found < _NO_LIMIT_BYTES else None


def _first(groups: tuple[Path, ...], name: str, holding: bytes = b"") -> Path | None:
    for group in groups:
        text = proc_file.read_if_there(f"{group}/{name}")
        if text is not None and holding in text:
            return group
    return None


def affinity() -> frozenset[int] | None:
    """Numbers of the CPUs that the scheduler may put this process on; None where the system does not say."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def usable_cpus(
    *,
    affinity: int,
    cgroup_root: Path = Path("/sys/fs/cgroup"),
    proc_root: Path = Path("/proc"),
    local_ranks: int = 1,
) -> float:
    """CPUs that this rank may use: min(affinity, quota) / ranks on this host.

    The quota is the smallest of the process's control group and all groups above it.

    Args:
        affinity: CPUs that the scheduler may put this process on, ``len(os.sched_getaffinity(0))``.
        cgroup_root: Where control groups are mounted.
        proc_root: Where ``self/cgroup`` lies.
        local_ranks: Training processes on this host that share the CPUs.

    Returns:
        CPUs, greater than 0; 1.0 is one full CPU, a quota gives fractions.

    Raises:
        ArgumentError: ``affinity`` or ``local_ranks`` is less than 1.
    """
    if affinity < 1:
        raise ArgumentError("affinity", affinity, "be at least 1")
    if local_ranks < 1:
        raise ArgumentError("local_ranks", local_ranks, "be at least 1")
    quotas = cpu_quotas(Groups.find(cgroup_root, proc_root))
    return min([float(affinity), *quotas.values()]) / local_ranks
