"""Where a process id means the same process: one boot of one machine, and one PID namespace, as of a container."""

from functools import cache
from pathlib import Path


@cache
def pid_space() -> str:
    """That of this process; empty where it cannot be read, as on other systems than Linux."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
