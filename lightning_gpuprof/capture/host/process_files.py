"""The counters and levels of one process, from its folder under /proc."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import msgspec

from lightning_gpuprof.capture.host import proc_file
from lightning_gpuprof.capture.host.proc_file import PAGE_BYTES, TICK_S

_IO = {
    b"rchar": "read_call_bytes_per_s",
    b"wchar": "write_call_bytes_per_s",
    b"read_bytes": "read_bytes_per_s",
    b"write_bytes": "write_bytes_per_s",
}
_SWITCHES = {b"voluntary_ctxt_switches": "voluntary_switches_per_s"}
_SWITCHES |= {b"nonvoluntary_ctxt_switches": "involuntary_switches_per_s"}


class ProcessReading(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a process."""

    name: str
    """As the kernel has it, at most 15 characters; a thread may have given itself another."""
    state: str
    """``R``, ``S``, ``D`` (waits for a disk or the like), ``Z`` (has ended), …"""
    started_s: float
    """Seconds from the machine's start."""
    counters: dict[str, float]
    """Named for their growth per second. ``main_thread_cpus``, context switches, run-queue delay and waiting for disks
    are of the main thread alone, everything else is of the whole process. What children read and wrote is added when
    they have ended."""
    levels: dict[str, float]
    ended_children_s: float
    """CPU time of the processes that it started, in turn with theirs, as far as they ended and were waited for."""

    @property
    def ended(self) -> bool:
        """Whether it has ended and its parent has not asked for its status yet."""
        return self.state in "ZXx"


def read_process(folder: str, *, io_wait: bool = False) -> ProcessReading:
    """Read a process: ``stat``, and what may be read of ``statm``, ``io``, ``status`` and ``schedstat``.

    Args:
        folder: ``/proc/<pid>``.
        io_wait: Whether the kernel keeps the time that processes wait for disks (``kernel.task_delayacct``, off by
            default from Linux 5.14 on); else its counter is always 0, which is not a measurement.

    Returns:
        Counters are totals since its start, under the names of their rates: ``cpu_user_cpus`` in seconds. What may not
        be read is absent.

    Raises:
        OSError: The process has ended, or may not be read.
        ValueError: ``stat`` is not of the form that is documented.
    """
    name, state, fields = stat_fields(proc_file.read(f"{folder}/stat"))
    counters = {
        "cpu_user_cpus": int(fields[11]) * TICK_S,
        "cpu_system_cpus": int(fields[12]) * TICK_S,
        "minor_faults_per_s": float(fields[7]),
        "major_faults_per_s": float(fields[9]),
    }
    levels = {
        "rss_bytes": float(int(fields[21]) * PAGE_BYTES),
        "threads_count": float(fields[17]),
        "disk_sleep_ratio": float(state == "D"),
    }
    if io_wait and len(fields) > 39:
        counters["io_wait_ratio"] = int(fields[39]) * TICK_S
    # some kernels count the pages of ``stat`` per CPU and add them up late
    levels |= resident_bytes(proc_file.read_if_there(f"{folder}/statm") or b"")
    for key, value in proc_file.keyed(proc_file.read_if_there(f"{folder}/io")).items():
        if key in _IO:
            counters[_IO[key]] = float(value)
    status = proc_file.read_if_there(f"{folder}/status") or b""
    for key, value in proc_file.keyed(status[max(0, status.rfind(b"\nvoluntary_ctxt")) :]).items():
        if key in _SWITCHES:
            counters[_SWITCHES[key]] = float(value)
    with contextlib.suppress(OSError, ValueError):  # no ``CONFIG_SCHED_INFO``
        cpu_ns, delay_ns = map(int, proc_file.read(f"{folder}/schedstat").split()[:2])
        counters |= {"main_thread_cpus": cpu_ns / 1e9, "run_delay_ratio": delay_ns / 1e9}
    return ProcessReading(
        name=name,
        state=state,
        started_s=int(fields[19]) * TICK_S,
        counters=counters,
        levels=levels,
        ended_children_s=ended_children_s(fields),
    )


def resident_bytes(statm: bytes) -> dict[str, float]:
    """Resident memory of a process and what of it is shared, from its ``statm``; empty if that is empty."""
    pages = statm.split()
    if len(pages) < 3:
        return {}
    return {"rss_bytes": float(int(pages[1]) * PAGE_BYTES), "shared_bytes": float(int(pages[2]) * PAGE_BYTES)}


def stat_fields(text: bytes) -> tuple[str, str, list[bytes]]:
    """Name and state of a process or thread, and the fields of its ``stat`` from the state on.

    Raises:
        ValueError: It is not of the form that is documented.
    """
    head, closed, rest = text.rpartition(b")")  # a name may hold blanks and parentheses
    fields = rest.split()
    if not closed or len(fields) < 22:
        raise ValueError("stat has too few fields")
    return head.partition(b"(")[2].decode(errors="replace"), fields[0].decode(), fields


def cpu_s(fields: list[bytes]) -> float:
    """User and system time of ``stat``'s fields."""
    return (int(fields[11]) + int(fields[12])) * TICK_S


def ended_children_s(fields: list[bytes]) -> float:
    """User and system time of children that have ended, of ``stat``'s fields."""
    return (int(fields[13]) + int(fields[14])) * TICK_S


def has_io_wait_times(proc_root: str) -> bool:
    """Whether the kernel keeps the time that processes wait for disks."""
    return proc_file.number(proc_file.read_if_there(f"{proc_root}/sys/kernel/task_delayacct")) == 1


_MAX_WALKED_BYTES = 16 << 30
_MAX_WALKED_OWN_BYTES = 1 << 30
"""Of the main process, which waits when it maps memory meanwhile: 7 ms for a GB."""


def proportional_bytes(folder: str, rss_bytes: float, *, own: bool = False) -> dict[str, float]:
    """Memory with shared pages divided among those who share them (PSS), and what is the process's alone (USS).

    The kernel walks all pages for it, 7 ms per GB (measured on Linux 6.18), and a thread of the process that maps
    memory waits meanwhile: nothing is read of one with more than 16 GiB, nor of our own process with more than 1 GiB.

    Args:
        folder: ``/proc/<pid>``.
        rss_bytes: Its resident memory.
        own: It is the main process.

    Returns:
        ``pss_bytes`` and ``uss_bytes``, as far as the kernel has them; empty for a process that is too large.

    Raises:
        OSError: The process has ended, or may not be read.
    """
    if rss_bytes > (_MAX_WALKED_OWN_BYTES if own else _MAX_WALKED_BYTES):
        return {}
    found = proc_file.keyed(proc_file.read(f"{folder}/smaps_rollup"))
    values: dict[str, float] = {}
    if b"Pss" in found:
        values["pss_bytes"] = found[b"Pss"] * 1024.0
    if b"Private_Clean" in found and b"Private_Dirty" in found:
        values["uss_bytes"] = (found[b"Private_Clean"] + found[b"Private_Dirty"]) * 1024.0
    return values


def run_delay_ns(path: str) -> int:
    """Time so far in ns that a thread was ready to run but had no CPU, from its ``schedstat``; -1: not readable."""
    try:
        return int(proc_file.read(path).split()[1])
    except (OSError, ValueError, IndexError):
        return -1


class RunDelay:
    """The second number of ``/proc/self/task/<thread>/schedstat``; one read is about 1 µs."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def of_this_thread(cls, proc_root: Path = Path("/proc")) -> RunDelay | None:
        """For the calling thread; None where the kernel does not say (no ``CONFIG_SCHED_INFO``, no Linux)."""
        path = proc_root / "self" / "task" / str(threading.get_native_id()) / "schedstat"
        try:
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError:
            return None
        try:
            found = cls(descriptor)
            if found.read_ns() >= 0:
                return found
        except BaseException:
            os.close(descriptor)
            raise
        found.close()
        return None

    def read_ns(self) -> int:
        """Total so far, in ns; -1 if it cannot be read any more."""
        try:
            return int(os.pread(self._descriptor, 64, 0).split()[1])
        except (OSError, ValueError, IndexError):
            return -1

    def close(self) -> None:
        """Let go of the file; a second call does nothing."""
        if self._descriptor >= 0:  # later the number may be somebody else's
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1
