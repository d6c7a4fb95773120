"""From the process's affinity and the container's CPU quota to the number of CPUs that one rank may use."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from lightning_gpuprof.errors import ArgumentError

_V1_CONTROLLERS = ("cpu", "cpu,cpuacct", "cpuacct,cpu")


def usable_cpus(
    *,
    affinity: int,
    cgroup_root: Path = Path("/sys/fs/cgroup"),
    proc_root: Path = Path("/proc"),
    local_ranks: int = 1,
) -> float:
    """CPUs that this rank may use: min(affinity, quota) / ranks on this host.

    The quota is the smallest of the process's control group and all groups above it: ``cpu.max`` of cgroup v2,
    ``cpu.cfs_quota_us / cpu.cfs_period_us`` of v1 (kernel documentation, admin-guide/cgroup-v2 and
    scheduler/sched-bwc). A group whose files are absent or cannot be read sets no limit.

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
    return min([float(affinity), *_quotas(cgroup_root, proc_root)]) / local_ranks


def _quotas(cgroup_root: Path, proc_root: Path) -> list[float]:
    """All limits that apply, in CPUs."""
    limits: list[float | None] = []
    # Without a line for it the group is unknown, but a container's own root still shows its limit.
    unified, legacy = PurePosixPath("/"), PurePosixPath("/")
    for line in (_read(proc_root / "self" / "cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            unified = PurePosixPath(path)
        elif "cpu" in controllers.split(","):
            legacy = PurePosixPath(path)
    for mount in (cgroup_root, cgroup_root / "unified"):
        limits += [_v2_limit(group) for group in _and_parents(mount, unified)]
    for controller in _V1_CONTROLLERS:
        limits += [_v1_limit(group) for group in _and_parents(cgroup_root / controller, legacy)]
    return [limit for limit in limits if limit is not None and limit > 0]


def _and_parents(mount: Path, group: PurePosixPath) -> list[Path]:
    """The group and all groups above it up to the mount.

    In a container without a cgroup namespace the path is the host's and does not exist below the mount, which shows
    the container's own group as its root; a process outside the namespace's root has a path with ``..``.
    """
    parts = [part for part in group.parts if part not in ("/", "..")]
    return [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]


def _v2_limit(group: Path) -> float | None:
    quota, _, period = (_read(group / "cpu.max") or "").strip().partition(" ")
    return _ratio(quota, period)


def _v1_limit(group: Path) -> float | None:
    return _ratio(_read(group / "cpu.cfs_quota_us") or "", _read(group / "cpu.cfs_period_us") or "")


def _ratio(quota: str, period: str) -> float | None:
    """CPUs of a quota; None for ``max``, -1 and anything that is no pair of numbers."""
    try:
        quota_us, period_us = int(quota), int(period)
    except ValueError:
        return None
    return quota_us / period_us if quota_us > 0 and period_us > 0 else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return None
