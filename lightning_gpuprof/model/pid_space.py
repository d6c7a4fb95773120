"""Where a process id means the same process, and whether the process that wrote a journal lives there."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightning_gpuprof.model.journal import Header
    from lightning_gpuprof.model.rank_summary import RankSummary


@cache
def pid_space() -> str:
    """One boot of one machine, and one PID namespace, as of a container: that of this process.

    Empty where it cannot be read, as on other systems than Linux.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def is_running(of: Header | RankSummary) -> bool | None:
    """Whether the process of a rank lives; None where that cannot be known, as on another host."""
    if not of.pid_space or of.pid_space != pid_space():
        return None
    import psutil  # not for the start of a run, which asks for pid_space() only

    try:
        process = psutil.Process(of.pid)
        if process.create_time() > of.epoch_ns / 1e9 + 1:  # another one of the same number, or the clock was set
            return None
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return None
