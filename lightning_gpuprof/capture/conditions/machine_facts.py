"""CPUs, memory, NUMA nodes and the container around the process, from the machine's files."""

import os
import platform
from collections.abc import Collection

from lightning_gpuprof.capture.conditions.reading import Reader, Subject
from lightning_gpuprof.capture.host import machine, proc_file
from lightning_gpuprof.capture.host.cgroups import affinity, usable_cpus
from lightning_gpuprof.capture.host.sources import container, numa_nodes


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
        cgroup_root=subject.around.cgroup,
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
    total = machine.memory(proc_file.read_if_there(f"{subject.around.proc}/meminfo") or b"").get("memory_total_bytes")
    return None if total is None else int(total)


def _affinity_nodes(subject: Subject) -> str | None:
    cpus = frozenset(_affinity())
    nodes = numa_nodes(subject.around)
    return ", ".join(str(node) for node in sorted(nodes) if cpus & nodes[node]) or None


FACTS: dict[str, Reader] = {
    "machine.system": lambda s: f"{platform.system()} {platform.machine()}",
    "machine.cpu": _cpu_model,
    "machine.memory_bytes": _memory_bytes,
    "machine.numa_nodes": lambda s: len(numa_nodes(s.around)) or None,
    "machine.affinity_numa_nodes": _affinity_nodes,
    "machine.container": lambda s: container(s.around, s.around.environ) or "none",
    "cpu.count": lambda s: os.cpu_count(),
    "cpu.affinity": lambda s: len(_affinity()),
    "cpu.quota": _quota,
    "cpu.usable": lambda s: _usable(s, len(_affinity()), _local_ranks(s)),
}
