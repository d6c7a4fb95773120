"""How many processes NVML lists on a GPU, whose memory it is, and whether ours is among them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from lightning_gpuprof.capture.nvml.backend import Answer

_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""Of the machine itself (PROC_PID_INIT_INO in Linux' proc_ns.h); containers have others."""


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that has a context on a GPU."""

    pid: int
    """As the driver counts, which is in the machine's namespace, not in a container's."""
    memory_bytes: float | None


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """This process and its children, by process id.

    Args:
        pid: Of this process.
        sees_all: This process has the machine's process ids, as the driver has.
        parent_of: The parent of a process; 0 if it is not known.
    """

    pid: int
    sees_all: bool
    parent_of: Callable[[int], int]

    @classmethod
    def of_this_process(cls, proc_root: Path = Path("/proc")) -> Family:
        """The main process, with its DataLoader workers."""
        try:
            sees_all = str((proc_root / "self" / "ns" / "pid").readlink()) == _FIRST_PID_NAMESPACE
        except OSError:
            sees_all = False
        return cls(pid=os.getpid(), sees_all=sees_all, parent_of=lambda pid: _parent_of(pid, proc_root))

    def holds(self, pid: int) -> bool:
        """Whether a process is this one or descends from it."""
        seen: set[int] = set()
        while pid > 1 and pid not in seen:
            if pid == self.pid:
                return True
            seen.add(pid)
            pid = self.parent_of(pid)
        return False


def _parent_of(pid: int, proc_root: Path) -> int:
    try:
        stat = (proc_root / str(pid) / "stat").read_text(errors="replace")
        return int(stat.rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def summary(compute: Sequence[GpuProcess], graphics: Sequence[GpuProcess] | None, family: Family) -> Answer:
    """The answer to the query ``processes``.

    In a container the driver's process ids are not ours: if ours is not in the list there, nobody can say which
    entry we are, so neither our memory nor the others' is known.

    Args:
        compute: Processes with a compute context.
        graphics: Processes with a graphics context; None if the driver does not say.
        family: Who we are.

    Returns:
        In the order of :data:`VALUES`, memory in bytes; None for what is not known.
    """
    memory = {process.pid: process.memory_bytes for process in (*(graphics or ()), *compute)}
    own = {pid for pid in memory if family.holds(pid)}
    foreign = set(memory) - own
    known = bool(own) or family.sees_all or not memory
    return (
        float(len(compute)),
        None if graphics is None else float(len(graphics)),
        float(len(foreign)) if known else None,
        _sum([memory[pid] for pid in own]) if own else None,
        _sum([memory[pid] for pid in foreign]) if known else None,
    )


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
