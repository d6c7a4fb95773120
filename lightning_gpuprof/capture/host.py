"""From this machine's process table to samples of the training process, its child processes and the host."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from lightning_gpuprof.capture.recorder import Reading
from lightning_gpuprof.capture.trace_jobs import JOB_MODULE
from lightning_gpuprof.model.journal import Notice, Sample

_LOOK_COST_RATIO = 0.005
"""Share of one core that looking for child processes may take; with the readings the sampler stays below 1 %."""

_RESOURCE_TRACKER = "from multiprocessing.resource_tracker import"
"""In the command line of the process that Python starts beside spawned workers; it does no work."""

_UNREADABLE = (OSError, psutil.Error, ValueError, KeyError, IndexError)
"""What psutil raises where ``/proc`` is absent, not permitted or of another form than it knows."""


def descendants(pid: int, proc_root: Path = Path("/proc")) -> frozenset[int]:
    """Process ids of all children of a process, and of theirs.

    Read from ``task/*/children`` where the kernel has it (CONFIG_PROC_CHILDREN): that costs a file per thread.
    Elsewhere psutil reads the whole process table.

    Args:
        pid: The process.
        proc_root: Where the process table is mounted.
    """
    root = proc_root / str(pid) / "task" / str(pid) / "children"
    if not root.exists():
        try:
            return frozenset(child.pid for child in psutil.Process(pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return frozenset()
    found: set[int] = set()
    open_ends = [pid]
    while open_ends:
        children = _listed_children(proc_root / str(open_ends.pop()) / "task")
        open_ends += children - found
        found |= children
    return frozenset(found)


def _listed_children(tasks: Path) -> set[int]:
    """Children that any thread of a process has started; none for a process or thread that has just ended."""
    children: set[int] = set()
    try:
        threads = list(tasks.iterdir())
    except OSError:
        return children
    for thread in threads:
        try:
            children.update(int(child) for child in (thread / "children").read_text().split())
        except OSError:
            continue
    return children


class _Rate:
    """Growth per second of a counter between two readings; the first reading has none."""

    def __init__(self) -> None:
        self._last: tuple[float, int] | None = None

    def update(self, counter: float, t_ns: int) -> float | None:
        last, self._last = self._last, (counter, t_ns)
        if last is None or t_ns <= last[1]:
            return None
        return (counter - last[0]) / ((t_ns - last[1]) / 1e9)


@dataclass
class _Child:
    process: psutil.Process
    cpu_s: float | None = None
    """CPU time at the sample before; None for one that was not read yet."""


class HostSampler:
    """Samples CPU and memory of the training process, of its child processes and of the host.

    ============  =======================================================================================
    subject       values
    ============  =======================================================================================
    ``process``   ``cpu_cpus`` (CPU seconds per second), ``rss_bytes``
    ``workers``   ``cpu_cpus``, ``rss_bytes`` (sums; pages that processes share count in each), ``count``
    ``host``      ``cpu_busy_ratio``, ``memory_available_bytes``, ``load`` (1-minute average)
    ============  =======================================================================================

    ``workers`` are the processes below the training process, without this package's own: with DataLoader workers at
    work, mostly those. CPU time that a child used between its last sample and its end is not seen; a child that is
    seen for the first time counts with its mean since its start. The first sample has no rates.

    Args:
        interval_s: Seconds between two samples.
        pid: The training process; default: this one.
        find_children: Finds all processes below one.
        thread_cpu_s: CPU clock of the calling thread, by which the search for children limits itself.
        unix_time_s: The calendar clock, to which the start of processes refers.
    """

    name = "host"

    def __init__(
        self,
        interval_s: float = 1.0,
        *,
        pid: int | None = None,
        find_children: Callable[[int], Collection[int]] = descendants,
        thread_cpu_s: Callable[[], float] = time.thread_time,
        unix_time_s: Callable[[], float] = time.time,
    ) -> None:
        self.interval_s = interval_s
        self._pid = os.getpid() if pid is None else pid
        self._find_children = find_children
        self._thread_cpu_s = thread_cpu_s
        self._unix_time_s = unix_time_s
        self._process: psutil.Process | None = None
        self._process_cpu = _Rate()
        self._children: dict[int, _Child] = {}
        self._not_workers: set[int] = set()
        """Children that are no workers."""
        self._children_known = False
        self._last_ns: int | None = None
        self._last_host: tuple[float, float] | None = None
        self._look_again_ns: int | None = None
        self._reported: set[str] = set()
        self._notices: list[Notice] = []

    def open(self) -> None:
        """Find the training process.

        Raises:
            psutil.Error: It cannot be read.
        """
        self._process = psutil.Process(self._pid)

    def sample(self, t_ns: int) -> Sequence[Reading]:
        """One sample of each subject."""
        assert self._process is not None
        process = self._process
        elapsed_s = None if self._last_ns is None else (t_ns - self._last_ns) / 1e9
        cpu_s = self._measured("process.cpu_cpus", lambda: _cpu_s(process))
        of_process = {
            "cpu_cpus": None if cpu_s is None else self._process_cpu.update(cpu_s, t_ns),
            "rss_bytes": self._measured("process.rss_bytes", lambda: float(process.memory_info().rss)),
        }
        self._look_for_children(t_ns)
        of_workers = self._read_children(elapsed_s)
        of_host = {
            "cpu_busy_ratio": self._measured("host.cpu_busy_ratio", self._busy_ratio),
            "memory_available_bytes": self._measured(
                "host.memory_available_bytes", lambda: float(psutil.virtual_memory().available)
            ),
            "load": self._measured("host.load", lambda: psutil.getloadavg()[0]),
        }
        self._last_ns = t_ns
        notices, self._notices = self._notices, []
        return [
            Sample(source=self.name, subject="process", t_ns=t_ns, values=of_process),
            Sample(source=self.name, subject="workers", t_ns=t_ns, values=of_workers),
            Sample(source=self.name, subject="host", t_ns=t_ns, values=of_host),
            *notices,
        ]

    def close(self) -> Sequence[Reading]:
        """Nothing is held open."""
        return ()

    def _look_for_children(self, t_ns: int) -> None:
        """Find new children and forget ended ones, as often as its cost allows."""
        if self._look_again_ns is not None and t_ns < self._look_again_ns:
            return
        before_s = self._thread_cpu_s()
        try:
            found = set(self._find_children(self._pid))
        except _UNREADABLE as error:
            self._report("workers", error)
        else:
            self._children_known = True
            self._not_workers &= found
            self._children = {pid: child for pid, child in self._children.items() if pid in found}
            for pid in found - self._children.keys() - self._not_workers:
                self._take_in(pid)
        self._look_again_ns = t_ns + round((self._thread_cpu_s() - before_s) / _LOOK_COST_RATIO * 1e9)

    def _take_in(self, pid: int) -> None:
        try:
            process = psutil.Process(pid)
            command = process.cmdline()
        except psutil.NoSuchProcess:
            return
        except _UNREADABLE:
            command = []
        if any(JOB_MODULE in argument or _RESOURCE_TRACKER in argument for argument in command):
            self._not_workers.add(pid)
        else:
            self._children[pid] = _Child(process)

    def _read_children(self, elapsed_s: float | None) -> dict[str, float | None]:
        used_s = 0.0
        rss_bytes = 0
        all_read = self._children_known
        for pid, child in tuple(self._children.items()):
            try:
                cpu_s = _cpu_s(child.process)
                child_rss_bytes = child.process.memory_info().rss
            except psutil.NoSuchProcess:
                del self._children[pid]
                continue
            except _UNREADABLE as error:
                all_read = False
                self._report("workers", error)
                continue
            if child_rss_bytes == 0:  # it has ended and its parent has not asked for its status yet
                del self._children[pid]
                continue
            used_s += self._used_since_last(child, cpu_s, elapsed_s)
            child.cpu_s = cpu_s
            rss_bytes += child_rss_bytes
        return {
            "cpu_cpus": used_s / elapsed_s if all_read and elapsed_s else None,
            "count": float(len(self._children)) if self._children_known else None,
            "rss_bytes": float(rss_bytes) if all_read else None,
        }

    def _used_since_last(self, child: _Child, cpu_s: float, elapsed_s: float | None) -> float:
        if child.cpu_s is not None and cpu_s >= child.cpu_s:
            return cpu_s - child.cpu_s
        if elapsed_s is None:
            return 0.0
        age_s = self._unix_time_s() - child.process.create_time()
        return cpu_s if age_s <= elapsed_s else cpu_s * elapsed_s / age_s

    def _busy_ratio(self) -> float | None:
        times = psutil.cpu_times()
        # Linux counts guests in user and nice as well; waiting for a disk is not work (as psutil.cpu_percent has it).
        total_s = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        idle_s = times.idle + getattr(times, "iowait", 0.0)
        last, self._last_host = self._last_host, (total_s, idle_s)
        if last is None or total_s <= last[0]:
            return None
        return min(1.0, max(0.0, 1.0 - (idle_s - last[1]) / (total_s - last[0])))

    def _measured(self, what: str, read: Callable[[], float | None]) -> float | None:
        try:
            return read()
        except _UNREADABLE as error:
            self._report(what, error)
            return None

    def _report(self, what: str, error: Exception) -> None:
        if what not in self._reported:
            self._reported.add(what)
            self._notices.append(
                Notice(part=self.name, message=f"{what} is not measured: {type(error).__name__}: {error}")
            )


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
