"""How many CPUs one rank may use, by the process's affinity and the container's CPU quota."""

from __future__ import annotations

import os
from pathlib import Path

from lightning_gpuprof.capture.host.cgroups import Groups, cpu_quotas
from lightning_gpuprof.errors import ArgumentError


def affinity() -> frozenset[int] | None:
    """Numbers of the CPUs that the scheduler may put this process on; None where the system does not tell."""
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
