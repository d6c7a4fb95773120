"""Whether the machine has CPUs and memory for the workers of a search."""

from collections.abc import Iterable
from pathlib import Path

import psutil

from lightning_gpuprof.capture.host.cgroups import ControlGroup, Groups, affinity, usable_cpus
from lightning_gpuprof.errors import TrialError
from lightning_gpuprof.model import numbers

LEFT_RATIO = 0.1
"""Share of the free memory that stays free. Heuristic: a worker grows while it loads its first batches."""


def check_cpus(workers: int, *, ranks: int, cpus: float | None = None) -> None:
    """Refuse more workers than there are CPUs; one worker is always tried.

    Args:
        workers: Of one rank.
        ranks: On this machine.
        cpus: Usable CPUs that they share; None: those of this process.

    Raises:
        TrialError: There are fewer.
    """
    if workers < 2:
        return
    cpus = usable_cpus(affinity=len(affinity() or (0,))) if cpus is None else cpus
    if workers * ranks > cpus:
        each = f"{ranks} ranks would start {workers} workers each" if ranks > 1 else f"{workers} workers would start"
        raise TrialError(f"{each} on {cpus:.3g} CPUs")


def check_memory(workers: int, *, worker_bytes: float, free_bytes: float | None = None) -> None:
    """Refuse more workers than there is memory for.

    Args:
        workers: To be started by all ranks on this machine.
        worker_bytes: Memory that each needs for itself; 0: not known.
        free_bytes: Free memory; None: that of this machine or, if less, of the control group.

    Raises:
        TrialError: There is less.
    """
    need = workers * worker_bytes
    if not need:
        return
    free = _free_bytes() if free_bytes is None else free_bytes
    if need > (1 - LEFT_RATIO) * free:
        raise TrialError(f"{workers} workers need about {numbers.size(need)} of memory; {numbers.size(free)} is free")


def own_bytes(processes: Iterable[int]) -> float:
    """Memory in bytes that only the process has, of the largest of some processes; 0: not known."""
    found = [0.0]
    for number in processes:
        try:
            found.append(float(psutil.Process(number).memory_full_info().uss))
        except (psutil.Error, AttributeError):  # it has ended, or the system does not say
            continue
    return max(found)


def _free_bytes() -> float:
    free = float(psutil.virtual_memory().available)
    group = ControlGroup(Groups.find(Path("/sys/fs/cgroup"), Path("/proc")))
    used = group.memory()[0].get("memory_working_bytes")
    if group.memory_limit_bytes is None or used is None:
        return free
    return min(free, group.memory_limit_bytes - used)
