"""CPUs, memory, NUMA nodes and the container around the process, from the machine's files."""

import os
import platform
import re
from collections.abc import Collection

from lightning_gpuprof.capture.conditions.reading import Reader, Subject, file_text
from lightning_gpuprof.capture.host.cgroups import affinity, usable_cpus

_CGROUP_MARKS = {"kubepods": "kubernetes", "docker": "docker", "libpod": "podman", "containerd": "containerd"}
_FILE_MARKS = {".dockerenv": "docker", "run/.containerenv": "podman", ".singularity.d": "apptainer"}


def _affinity() -> Collection[int]:
    return affinity() or range(os.cpu_count() or 1)


def _local_ranks(subject: Subject) -> int:
    """Of this host; only torchrun says it, Lightning's own launcher and SLURM do not."""
    given = subject.around.environ.get("LOCAL_WORLD_SIZE")
    if given:
        return int(given)
    trainer = subject.trainer
    return max(1, int(getattr(trainer, "world_size", 1)) // max(1, int(getattr(trainer, "num_nodes", 1))))


def _usable(subject: Subject, count: int, local_ranks: int) -> float:
    return usable_cpus(
        affinity=count,
        local_ranks=local_ranks,
        cgroup_root=subject.around.sys / "fs" / "cgroup",
        proc_root=subject.around.proc,
    )


def _quota(subject: Subject) -> float | None:
    no_limit = 1 << 20
    found = _usable(subject, no_limit, 1)
    return found if found < no_limit else None


def _cpu_model(subject: Subject) -> str | None:
    try:
        with open(subject.around.proc / "cpuinfo", errors="replace") as lines:
            for line in lines:  # the first processor says it; a large machine lists hundreds
                name, _, value = line.partition(":")
                if name.strip() in ("model name", "Model", "cpu model"):
                    return value.strip()
                if not line.strip():
                    return None
    except OSError:
        return None
    return None


def _memory_bytes(subject: Subject) -> int | None:
    found = re.search(r"^MemTotal:\s+(\d+) kB", file_text(subject.around.proc / "meminfo") or "", re.MULTILINE)
    return int(found.group(1)) * 1024 if found else None


def _parse_id_list(text: str) -> set[int]:
    """Numbers of a kernel's list: ``0-3,8``."""
    found: set[int] = set()
    for piece in text.strip().split(","):
        first, _, last = piece.partition("-")
        if first:
            found.update(range(int(first), int(last or first) + 1))
    return found


def _numa_nodes(subject: Subject) -> int | None:
    online = file_text(subject.around.sys / "devices" / "system" / "node" / "online")
    return len(_parse_id_list(online)) if online else None


def _affinity_nodes(subject: Subject) -> str | None:
    nodes = subject.around.sys / "devices" / "system" / "node"
    online = file_text(nodes / "online")
    if not online:
        return None
    cpus = frozenset(_affinity())
    own = [
        n
        for n in sorted(_parse_id_list(online))
        if cpus & _parse_id_list(file_text(nodes / f"node{n}" / "cpulist") or "")
    ]
    return ", ".join(map(str, own)) or None


def _container(subject: Subject) -> str:
    around = subject.around
    if "KUBERNETES_SERVICE_HOST" in around.environ:
        return "kubernetes"
    for mark, kind in _FILE_MARKS.items():
        if (around.root / mark).exists():
            return kind
    groups = file_text(around.proc / "self" / "cgroup") or ""
    return next((kind for mark, kind in _CGROUP_MARKS.items() if mark in groups), "none")


FACTS: dict[str, Reader] = {
    "machine.system": lambda s: f"{platform.system()} {platform.machine()}",
    "machine.cpu": _cpu_model,
    "machine.memory_bytes": _memory_bytes,
    "machine.numa_nodes": _numa_nodes,
    "machine.affinity_numa_nodes": _affinity_nodes,
    "machine.container": _container,
    "cpu.count": lambda s: os.cpu_count(),
    "cpu.affinity": lambda s: len(_affinity()),
    "cpu.quota": _quota,
    "cpu.usable": lambda s: _usable(s, len(_affinity()), _local_ranks(s)),
}
