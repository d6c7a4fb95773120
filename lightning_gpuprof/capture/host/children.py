"""Reads the child processes: DataLoader workers one by one, their sum, and all others together."""

import multiprocessing.process
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Literal

import msgspec

from lightning_gpuprof.capture.host import proc_file
from lightning_gpuprof.capture.host.proc_file import CostLimiter, Growth
from lightning_gpuprof.capture.host.process_files import ProcessReading, proportional_bytes, read_process
from lightning_gpuprof.capture.trace_jobs import JOB_MODULE

Kind = Literal["workers", "children", "ours"]

WORKER_NAME = "pt_data_worker"
"""What a DataLoader worker calls itself from torch 2.6 on."""

_NAMING_TIMEOUT_S = 60.0
"""A spawned worker imports torch before it takes its name."""
_ALL_ROWS = 60
"""In the first so many samples each worker is handed over; after them, so that journals stay small, in every tenth."""
_ROWS_EVERY = 10

_SEARCH_COST_RATIO = 0.001
_PROPORTIONAL_COST_RATIO = 0.0005
_PROPORTIONAL_AT_LEAST_S = 30.0

_RESOURCE_TRACKER = b"from multiprocessing.resource_tracker import"
"""In the command line of the process that Python starts beside spawned workers; it does no work."""

_AVERAGED = frozenset({"run_delay_ratio", "io_wait_ratio", "disk_sleep_ratio"})
"""Values of several processes of which the mean is taken; of all others the sum."""


def daemonic_children() -> Collection[int]:
    """Children that ``multiprocessing`` started as daemons: what DataLoader workers are, whatever their name.

    The module's own list is read as it stands: ``active_children()`` would collect the status of ended ones, which
    torch wants to see.
    """
    found: Iterable[object] = list(getattr(multiprocessing.process, "_children", ()))
    return {pid for child in found if getattr(child, "daemon", False) and isinstance(pid := _pid_of(child), int)}


def _pid_of(child: object) -> object:
    return getattr(getattr(child, "_popen", None), "pid", None)  # ``.pid`` would check which process asks


class _Child(msgspec.Struct):
    number: int
    kind: Kind
    growth: Growth = msgspec.field(default_factory=Growth)
    seen: bool = False
    named: bool = False
    """Whether it has said itself that it is a DataLoader worker."""
    used_s: float = 0.0
    """CPU time, when it was last read."""
    ended_children_s: float = 0.0
    """Likewise of its own children that have ended."""
    rates: dict[str, float] = {}
    levels: dict[str, float] = {}
    proportional: dict[str, float] = {}
    """PSS and USS; read now and then, and handed over once."""


@dataclass(eq=False, repr=False)
class Children:
    """Watches the processes below this one.

    Workers are known by the name that they take, also under ``spawn`` and ``forkserver``. Until they have it, for a
    minute at most, and where torch names none (before 2.6), any daemon of ``multiprocessing`` counts as one. A worker
    has the smallest number that is free when it is first seen, so that each epoch's new workers take the places of
    those that ended.
    """

    proc_root: str
    """Where the process table is mounted."""
    find: Callable[[], Collection[int]]
    """Finds all processes below this one."""
    _: KW_ONLY
    names_workers: bool = True
    """Whether torch names its workers."""
    daemons: Callable[[], Collection[int]] = daemonic_children
    """Processes that are workers if they have no name."""
    io_wait: bool = False
    """Whether the kernel keeps the time that processes wait for disks."""
    thread_cpu_s: Callable[[], float] = time.thread_time
    """CPU clock of the calling thread, by which the search limits itself."""
    wall_s: Callable[[], float] = time.monotonic
    """The clock by which reading of the slow files limits itself."""
    boot_s: Callable[[], float]
    """The clock to which the start of processes refers."""

    def __post_init__(self) -> None:
        self._search = CostLimiter(_SEARCH_COST_RATIO, self.thread_cpu_s)
        self._proportional = CostLimiter(_PROPORTIONAL_COST_RATIO, self.wall_s, _PROPORTIONAL_AT_LEAST_S)
        self._children: dict[int, _Child] = {}
        self._known = False
        self._samples = 0
        self._last_ns: int | None = None
        self._ended: set[Kind] = set()
        self._counted_s: float | None = None
        """CPU time of all processes below this one, alive or ended, as far as it is in a sample."""
        self.used_s = 0.0
        """CPU time that all of them have used since the first sample, our own helpers too."""
        self.problem = ""
        """Why something of the children cannot be read; empty if all can."""

    def sample(self, t_ns: int, ended_s: float = 0.0) -> dict[str, dict[str, float]]:
        """Look at all children once.

        Args:
            t_ns: When.
            ended_s: CPU time of children that have ended and were waited for: what they used after their last sample is
                only seen there.

        Returns:
            Name with its unit → value, by subject: ``workers``, ``worker0``, …, ``children``; rates from the second
            sample on, single workers not in each sample of a long run. Empty if children cannot be found.
        """
        elapsed_s = None if self._last_ns is None or t_ns <= self._last_ns else (t_ns - self._last_ns) / 1e9
        self._last_ns = t_ns
        try:
            self._search.run(t_ns, self._look)
        except (OSError, ValueError) as error:
            self.problem = f"{type(error).__name__}: {error}"
        if not self._known:
            return {}
        unread = {
            child.kind for pid, child in tuple(self._children.items()) if not self._read(pid, child, t_ns, elapsed_s)
        }
        unseen_s = self._unseen_s(ended_s)
        if elapsed_s is not None:
            self.used_s += elapsed_s * sum(child.rates.get("cpu_cpus", 0.0) for child in self._children.values())
            self.used_s += unseen_s
        self._proportional.run(t_ns, self._read_proportional)
        values = self._values(elapsed_s, unread)
        if unseen_s and elapsed_s:
            ended = values.get(self._kind_of_ended(), {})
            if "cpu_cpus" in ended:
                ended["cpu_cpus"] += unseen_s / elapsed_s
            self._ended.clear()
        return values

    def _unseen_s(self, ended_s: float) -> float:
        """CPU time that processes used between their last sample and their end, since that was last asked."""
        alive = self._children.values()
        total_s = ended_s + sum(child.used_s + child.ended_children_s for child in alive)
        if self._counted_s is None:
            self._counted_s = total_s
        unseen_s = max(0.0, total_s - self._counted_s)  # below 0 while one that has ended was not waited for
        self._counted_s += unseen_s
        return unseen_s

    def _kind_of_ended(self) -> Kind:
        """Whose CPU time was not seen: mostly that of workers, which many loaders start again in each epoch."""
        ended = self._ended or {child.kind for child in self._children.values()}
        kinds: tuple[Kind, ...] = ("workers", "children", "ours")
        return next((kind for kind in kinds if kind in ended), "children")

    def _look(self) -> None:
        found = set(self.find())
        self._known = True
        for pid in self._children.keys() - found:
            self._forget(pid)
        daemons = self.daemons()
        for pid in sorted(found - self._children.keys()):
            kind: Kind = "workers" if pid in daemons else "ours" if self._is_helper(pid) else "children"
            self._children[pid] = _Child(self._free_number() if kind == "workers" else -1, kind)

    def _free_number(self) -> int:
        taken = {child.number for child in self._children.values()}
        return next(number for number in range(len(taken) + 1) if number not in taken)

    def _is_helper(self, pid: int) -> bool:
        command = proc_file.read_if_there(f"{self.proc_root}/{pid}/cmdline") or b""
        return JOB_MODULE.encode() in command or _RESOURCE_TRACKER in command

    def _read(self, pid: int, child: _Child, t_ns: int, elapsed_s: float | None) -> bool:
        """Whether it could be read; one that has ended is forgotten, which is no failure."""
        try:
            reading = read_process(f"{self.proc_root}/{pid}", io_wait=self.io_wait)
        except (FileNotFoundError, ProcessLookupError):
            self._forget(pid)
            return True
        except (OSError, ValueError) as error:
            self.problem = f"{type(error).__name__}: {error}"
            child.rates, child.levels = {}, {}
            return False
        if reading.ended:
            self._forget(pid)
            return True
        if reading.name == WORKER_NAME:
            child.named = True
            if child.kind != "workers":
                child.kind, child.number = "workers", self._free_number()
        elif child.kind == "workers" and not child.named and self._is_too_old(reading):
            child.kind, child.number = "children", -1
        used_s = reading.counters["cpu_user_cpus"] + reading.counters["cpu_system_cpus"]
        if self._counted_s is not None:
            self._counted_s += used_s - child.used_s
        child.used_s, child.ended_children_s = used_s, reading.ended_children_s
        child.rates = self._rates(child, reading, t_ns, elapsed_s)
        child.levels = reading.levels
        return True

    def _forget(self, pid: int) -> None:
        self._ended.add(self._children.pop(pid).kind)

    def _is_too_old(self, reading: ProcessReading) -> bool:
        """Whether it would have the name of a worker by now, if it were one."""
        return self.names_workers and self.boot_s() - reading.started_s > _NAMING_TIMEOUT_S

    def _rates(self, child: _Child, reading: ProcessReading, t_ns: int, elapsed_s: float | None) -> dict[str, float]:
        """Growth per second; a process that is new counts with its mean since its start, or with all if it is young."""
        new, child.seen = not child.seen, True
        rates = child.growth.per_s(reading.counters, t_ns)
        if new and elapsed_s is not None:
            age_s = max(elapsed_s, self.boot_s() - reading.started_s)
            rates = {name: value / age_s for name, value in reading.counters.items()}
        if "cpu_user_cpus" in rates and "cpu_system_cpus" in rates:
            rates["cpu_cpus"] = rates["cpu_user_cpus"] + rates["cpu_system_cpus"]
        return rates

    def _read_proportional(self) -> None:
        for pid, child in self._children.items():
            if child.kind == "workers":
                try:
                    child.proportional = proportional_bytes(
                        f"{self.proc_root}/{pid}", child.levels.get("rss_bytes", 0.0)
                    )
                except OSError:
                    child.proportional = {}

    def _values(self, elapsed_s: float | None, unread: set[Kind]) -> dict[str, dict[str, float]]:
        values: dict[str, dict[str, float]] = {}
        kinds: tuple[Kind, ...] = ("workers", "children")
        for kind in kinds:
            members = [child for child in self._children.values() if child.kind == kind]
            values[kind] = {"count": float(len(members))}
            if kind in unread:
                continue
            values[kind] |= _aggregate([child.rates | child.levels | child.proportional for child in members])
            if not members:
                values[kind] |= {"rss_bytes": 0.0} if elapsed_s is None else {"rss_bytes": 0.0, "cpu_cpus": 0.0}
        with_rows = self._samples < _ALL_ROWS or self._samples % _ROWS_EVERY == 0
        self._samples += 1
        for child in self._children.values():
            if with_rows and child.kind == "workers" and child.levels:
                values[f"worker{child.number}"] = child.rates | child.levels | child.proportional
            child.proportional = {}
        return values


def _aggregate(several: list[dict[str, float]]) -> dict[str, float]:
    """Sums, or means of shares, of the values that all of them have."""
    if not several:
        return {}
    names: Mapping[str, float] = {name: 0.0 for name in several[0] if all(name in each for each in several)}
    return {name: sum(each[name] for each in several) / (len(several) if name in _AVERAGED else 1) for name in names}
