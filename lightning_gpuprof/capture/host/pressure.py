"""Pressure stall information: the share of time in which tasks waited for CPU, memory or disks.

From Linux 4.20 on (documentation: accounting/psi), of the machine and, with cgroup v2, of each group.
"""

from __future__ import annotations

from lightning_gpuprof.capture.host import proc_file

RESOURCES = ("cpu", "memory", "io")


def stalled(files: dict[str, str]) -> dict[str, float]:
    """Total time in which some or all tasks were stalled, in seconds, named for its growth per second.

    ``full`` of the machine's CPU is always 0 and left out: there is always one task that runs.

    Args:
        files: Resource → its file.
    """
    totals: dict[str, float] = {}
    for resource, path in files.items():
        for line in (proc_file.read_if_there(path) or b"").splitlines():
            kind, _, rest = line.partition(b" ")
            _, found, total_us = rest.rpartition(b"total=")
            if found and kind in (b"some", b"full") and (resource, kind) != ("cpu", b"full"):
                try:
                    totals[f"pressure_{resource}_{kind.decode()}_ratio"] = int(total_us) / 1e6
                except ValueError:
                    continue
    return totals


def machine_files(proc_root: str) -> dict[str, str]:
    """Files of the machine."""
    return {resource: f"{proc_root}/pressure/{resource}" for resource in RESOURCES}


def group_files(folder: str) -> dict[str, str]:
    """Files of a control group of version 2."""
    return {resource: f"{folder}/{resource}.pressure" for resource in RESOURCES}
