"""CPU time and run-queue waits of this process's threads, by kind of thread."""

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lightning_gpuprof.capture.host import proc_file
from lightning_gpuprof.capture.host.proc_file import Growth
from lightning_gpuprof.capture.host.process_files import cpu_s, run_delay_ns, stat_fields

_NATIVE_NAMES: tuple[tuple[str, str], ...] = (
    ("pt_data_pin", "pin_memory"),
    ("pt_autograd", "autograd"),
    ("pt_nccl", "nccl"),
    ("NCCL", "nccl"),
    ("cuda", "cuda"),
)
"""How names begin that torch, NCCL and the CUDA driver give their threads."""


def python_threads() -> dict[int, str]:
    """Number of the thread in the system → its name in Python."""
    return {thread.native_id: thread.name for thread in threading.enumerate() if thread.native_id is not None}


def thread_kind(thread: int, pid: int, name: str, python_name: str | None) -> str:
    """Which kind a thread is of.

    Args:
        thread: Its number in the system.
        pid: The process's.
        name: As the system has it.
        python_name: As Python has it; None for a thread that Python did not start.

    Returns:
        One of the kinds of :class:`ThreadGroups`; ``native`` for one that Python did not start and whose name shows no
        other.
    """
    if thread == pid:
        return "main"
    if python_name is not None and python_name.startswith("gpuprof"):
        return "gpuprof"
    if python_name is not None and "_pin_memory_loop" in python_name:
        return "pin_memory"
    for begin, kind in _NATIVE_NAMES:
        if name.startswith(begin):
            return kind
    return "native" if python_name is None else "python"


@dataclass(eq=False, repr=False)
class ThreadGroups:
    """Watches the threads of this process by kind.

    The kinds: ``main``, ``pin_memory``, ``gpuprof``, ``python`` (all others that Python started), ``autograd``,
    ``nccl``, ``cuda``, ``native`` (pools of OMP, BLAS and other libraries).
    """

    proc_root: str
    """Where the process table is mounted."""
    pid: int
    """This process's number there."""
    named: Callable[[], Mapping[int, str]] = python_threads
    """Python's names of threads."""

    def __post_init__(self) -> None:
        self._folder = f"{self.proc_root}/{self.pid}/task"
        self._threads: dict[int, Growth] = {}

    def sample(self, t_ns: int) -> dict[str, dict[str, float]]:
        """Values by ``thread.<kind>``; two files are read per thread.

        Raises:
            OSError: The process's threads cannot be listed.
        """
        names = self.named()
        found: dict[str, dict[str, float]] = defaultdict(lambda: {"threads_count": 0.0})
        seen: dict[int, Growth] = {}
        for entry in os.listdir(self._folder):  # noqa: PTH208 - names suffice
            folder = f"{self._folder}/{entry}"
            try:
                thread = int(entry)
                name, _, fields = stat_fields(proc_file.read(f"{folder}/stat"))
            except (OSError, ValueError):  # it has just ended
                continue
            growth = seen[thread] = self._threads.get(thread) or Growth()
            counters = {"cpu_cpus": cpu_s(fields)}
            if (delay_ns := run_delay_ns(f"{folder}/schedstat")) >= 0:
                counters["run_delay_ratio"] = delay_ns / 1e9
            group = found[f"thread.{thread_kind(thread, self.pid, name, names.get(thread))}"]
            group["threads_count"] += 1
            for value, grown in growth.per_s(counters, t_ns).items():
                group[value] = group.get(value, 0.0) + grown
        self._threads = seen
        for group in found.values():
            if "run_delay_ratio" in group:
                group["run_delay_ratio"] /= group["threads_count"]
        return dict(found)
