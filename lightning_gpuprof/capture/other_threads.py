"""How much CPU each of the program's other Python threads used, and where it was sampled."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType

from lightning_gpuprof.capture.host import proc_file
from lightning_gpuprof.model.journal import ThreadLooks

_READ_NS = 1_000_000_000
_MAX_THREADS = 32
_NAMES_OF_OTHERS = ("gpuprof", "pin_memory")
"""In names of threads that are ours, or torch's and do their work without the interpreter."""


@dataclass(eq=False, repr=False)
class OtherThreads:
    """Watches all Python threads but the main thread.

    CPU times are read from ``/proc/self/task/<thread>/schedstat``, about once a second: the C library's clock of a
    thread that has just ended would crash the process.
    """

    training_thread: int
    """``threading.get_ident()`` of the main thread."""
    site_of: Callable[[FrameType | None], str | None]
    """Names the place of a frame in the user's code."""
    task_root: str = "/proc/self/task"
    """Folder of this process's threads in the process table."""
    threads: Callable[[], Sequence[threading.Thread]] = threading.enumerate
    """All Python threads."""

    def __post_init__(self) -> None:
        self._found: dict[str, ThreadLooks] = {}
        self._last_cpu_ns: dict[int, int] = {}
        self._last_ns: int | None = None
        self._elapsed_ns = 0
        self._ids: frozenset[int] = frozenset()
        self._watched: list[threading.Thread] = []

    def look(self, t_ns: int, frames: Mapping[int, FrameType], *, last: bool = False) -> None:
        """Count where each is now, and read its CPU time if that was long ago, or if it is for the last time.

        Args:
            t_ns: When.
            frames: Thread id -> its innermost frame.
            last: Whether it is the last look.
        """
        reads = last or self._last_ns is None or t_ns - self._last_ns >= _READ_NS
        if reads:
            self._elapsed_ns += 0 if self._last_ns is None else t_ns - self._last_ns
            self._last_ns = t_ns
        if reads or frames.keys() != self._ids:
            self._ids = frozenset(frames)
            self._watched = [
                thread
                for thread in self.threads()[:_MAX_THREADS]
                if thread.ident != self.training_thread and not any(name in thread.name for name in _NAMES_OF_OTHERS)
            ]
        for thread in self._watched:
            place = self.site_of(frames.get(thread.ident or 0))
            if place is not None:
                sites = self._found.setdefault(thread.name, ThreadLooks()).sites
                sites[place] = sites.get(place, 0) + 1
        if reads:
            self._read_cpus({one.native_id: one.name for one in self._watched if one.native_id is not None})

    def take(self) -> tuple[dict[str, ThreadLooks], int]:
        """What was seen since it was taken the last time, and the time in ns in which CPU times were read."""
        found, elapsed_ns = self._found, self._elapsed_ns
        self._found, self._elapsed_ns = {}, 0
        return found, elapsed_ns

    def _read_cpus(self, names: Mapping[int, str]) -> None:
        before, self._last_cpu_ns = self._last_cpu_ns, {}
        for thread, name in names.items():
            try:
                now_ns = int(proc_file.read(f"{self.task_root}/{thread}/schedstat").split()[0])
            except (OSError, ValueError, IndexError):  # it has just ended; no Linux
                continue
            self._last_cpu_ns[thread] = now_ns
            before_ns = before.get(thread)
            if before_ns is not None and now_ns > before_ns:
                self._found.setdefault(name, ThreadLooks()).cpu_ns += now_ns - before_ns
