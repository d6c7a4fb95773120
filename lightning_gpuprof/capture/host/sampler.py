"""Samples the main process, its threads, its workers and the host, from this machine's files."""

import contextlib
import math
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

import torch
import torch.multiprocessing

from lightning_gpuprof.capture.host import machine, proc_file
from lightning_gpuprof.capture.host.cgroups import ControlGroup, Groups, affinity
from lightning_gpuprof.capture.host.children import Children
from lightning_gpuprof.capture.host.proc_file import CostLimiter, Growth
from lightning_gpuprof.capture.host.process_files import proportional_bytes, read_process, resident_bytes
from lightning_gpuprof.capture.host.process_tree import descendants, own_pid
from lightning_gpuprof.capture.host.sources import Roots, examine
from lightning_gpuprof.capture.host.thread_groups import ThreadGroups, python_threads
from lightning_gpuprof.capture.recorder import Reading, Sampler, SourceUnavailableError
from lightning_gpuprof.capture.thread_state import KeptFile
from lightning_gpuprof.model.journal import Conditions, Notice, Sample, Value

MAX_SAMPLES = 7200
"""In the time so far; from then on they become rarer."""
_CPU_COST_RATIO = 0.0005
"""Share of a core for ``/proc/stat``, which takes milliseconds on machines with hundreds of CPUs."""
_GROUP_COST_RATIO = 0.0005
"""Likewise for the control group's memory, whose counters the kernel adds up when they are read."""
_THREADS_COST_RATIO = 0.0005
_THREADS_AT_LEAST_S = 5.0
_PROPORTIONAL_COST_RATIO = 0.0005
_PROPORTIONAL_AT_LEAST_S = 30.0
_PROPORTIONAL_FROM_S = 10.0
"""In shorter runs it is not read: it takes 7 ms, in which training may wait to map memory."""
SECOND_S = 0.4
"""After which the second whole sample is taken at the latest: rates, of a run that is shorter than an interval, too."""
_MEMORY_AT_LEAST_S = 0.05
_MEMORY_LOOKS = 40
"""At the process's memory, while the time so far grows by a factor of e: also a leak of the first seconds is seen."""


def _boot_s() -> float:
    """Seconds since the machine's start, as the start of processes counts them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(eq=False, repr=False)
class HostSampler(Sampler):
    """Samples this process, its threads, its workers, the machine and the control group.

    ==================  ===========================================================================================
    subject             values
    ==================  ===========================================================================================
    ``process``         ``cpu_cpus`` (CPU seconds per second) and of it ``cpu_user_cpus``, ``cpu_system_cpus``;
                        ``main_thread_cpus``, ``run_delay_ratio``, ``voluntary_switches_per_s`` and
                        ``involuntary_switches_per_s`` of the main thread; ``io_wait_ratio``; ``disk_sleep_ratio``
                        (1: waited for a disk when looked at);
                        ``rss_bytes``, ``shared_bytes``, now and then ``pss_bytes``, ``uss_bytes``;
                        ``minor_faults_per_s``, ``major_faults_per_s``; ``read_bytes_per_s``, ``write_bytes_per_s``
                        (disk), ``read_call_bytes_per_s``, ``write_call_bytes_per_s`` (disk, page cache and all else
                        that is read); ``threads_count``
    ``process_memory``  ``rss_bytes``, ``shared_bytes`` in between, while the run is young
    ``worker<N>``       the same of each DataLoader worker
    ``workers``         their sums (of shares: means), and ``count``
    ``children``        likewise for processes below this one that are neither workers nor this package's own
    ``thread.<kind>``   ``cpu_cpus``, ``run_delay_ratio``, ``threads_count``; every fifth second
    ``host``            ``cpu_busy_ratio``, ``cpu_others_cpus`` (work of other processes on the usable CPUs),
                        ``cpu_steal_cpus``, ``cpu_user_ratio``, ``cpu_system_ratio``, ``cpu_io_wait_ratio``; ``load``;
                        ``memory_total_bytes``, ``memory_available_bytes``; ``swap_used_bytes``,
                        ``swap_in_bytes_per_s``, ``swap_out_bytes_per_s``; ``network_received_bytes_per_s``,
                        ``network_sent_bytes_per_s``;
                        ``shm_size_bytes``, ``shm_free_bytes``, ``shm_used_ratio``;
                        ``pressure_<cpu|memory|io>_<some|full>_ratio``
    ``cgroup``          ``memory_used_bytes``, ``memory_working_bytes`` (without cached files), ``memory_used_ratio``;
                        since the sample before: ``memory_high_count``, ``memory_max_count``, ``oom_kill_count``,
                        ``cpu_periods_count``, ``cpu_throttled_count``, ``cpu_throttled_s``; pressure as of the host
    ==================  ===========================================================================================

    Of a long run a journal of bounded size is wanted: after two hours the interval grows to a 7,200th of the time, and
    after the first minute a worker's own values are handed over with each tenth sample. Rates are of the whole time
    since the sample before, but of a worker's row: of the last interval.

    A value that cannot be had is absent. The first sample has no rates. CPU time that a child used between its last
    sample and its end is in ``cpu_cpus`` of ``workers`` or ``children``, and in no worker's row.
    """

    interval_s: float = 1.0
    """Seconds between two samples."""
    _: KW_ONLY
    roots: Roots = field(default_factory=Roots)
    """Where the kernel's files are mounted."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    """The environment, for settings of pools of threads."""
    other_ranks: Callable[[], Collection[int]] = tuple
    """Processes below this one that are ranks of their own."""
    cpus: Callable[[], Collection[int] | None] = affinity
    """Numbers of the usable CPUs; None: all."""
    named_threads: Callable[[], Mapping[int, str]] = python_threads
    """Python's names of threads."""
    thread_cpu_s: Callable[[], float] = time.thread_time
    """CPU clock of the calling thread, by which costly readings limit themselves."""
    boot_s: Callable[[], float] = _boot_s
    """Seconds since the machine's start."""

    name = "host"

    def __post_init__(self) -> None:
        self._wanted_s = self.interval_s
        self._first_ns: int | None = None
        self._whole_due_ns = 0
        self._proc = str(self.roots.proc)
        self._pid = own_pid(self.roots.proc)
        self._own = f"{self._proc}/{self._pid}"
        self._threads = ThreadGroups(self._proc, self._pid, self.named_threads)
        self._process, self._machine = Growth(), Growth()
        self._cpu_times, self._group_events, self._group_pressure = Growth(), Growth(), Growth()
        self._own_cpu_s, self._ended_children_s = 0.0, 0.0
        self._limited_cpu = CostLimiter(_CPU_COST_RATIO, self.thread_cpu_s)
        self._limited_group = CostLimiter(_GROUP_COST_RATIO, self.thread_cpu_s)
        self._limited_threads = CostLimiter(_THREADS_COST_RATIO, self.thread_cpu_s, _THREADS_AT_LEAST_S)
        self._limited_proportional = CostLimiter(_PROPORTIONAL_COST_RATIO, time.monotonic, _PROPORTIONAL_AT_LEAST_S)
        self._facts: dict[str, Value] = {}
        self._with_shm = False
        self._statm: KeptFile | None = None
        self._notices: list[Notice] = []
        self._reported: set[str] = set()

    def open(self) -> None:
        """Look once at what there is.

        Raises:
            SourceUnavailableError: Nothing is known of this process: no ``/proc``.
        """
        try:
            read_process(self._own)
        except (OSError, ValueError) as error:
            raise SourceUnavailableError(
                f"not measured: {self._own}/stat cannot be read ({type(error).__name__}: {error})"
            ) from error
        with contextlib.suppress(OSError):  # the whole reading reports it
            self._statm = KeptFile(f"{self._own}/statm")
        sources = examine(self.roots, self.environ)
        self._io_wait = sources.io_wait
        self._group = ControlGroup(Groups.find(self.roots.cgroup, self.roots.proc))
        self._facts = sources.facts()
        self._read_part("the CPUs of the affinity", self._record_cpus)
        self._with_shm = sources.shm_size_bytes is not None
        self._read_part("settings of threads", lambda: self._facts.update(thread_settings(self.environ)))
        if absent := sources.absent():
            self._notices.append(Notice(part=self.name, message=f"not measured here: {', '.join(absent)}"))
        self._children = Children(
            self._proc,
            lambda: descendants(self._pid, self.roots.proc, self.other_ranks()),
            names_workers=hasattr(torch.multiprocessing, "_set_thread_name"),
            io_wait=sources.io_wait,
            thread_cpu_s=self.thread_cpu_s,
            boot_s=self.boot_s,
        )

    def sample(self, t_ns: int) -> Sequence[Reading]:
        """One sample of each subject that can be read; in the first seconds mostly the process's memory alone."""
        if self._first_ns is None:
            self._first_ns = self._whole_due_ns = t_ns
        elapsed_s = (t_ns - self._first_ns) / 1e9
        whole_s = max(self._wanted_s, elapsed_s / MAX_SAMPLES)
        self.interval_s = min(whole_s, max(_MEMORY_AT_LEAST_S, elapsed_s / _MEMORY_LOOKS))
        if t_ns + self.interval_s * 5e8 < self._whole_due_ns:  # half of a tick is near enough
            return self._memory_alone(t_ns)
        whole_ns = round((min(whole_s, SECOND_S) if elapsed_s == 0 else whole_s) * 1e9)
        due_ns = self._whole_due_ns + whole_ns
        self._whole_due_ns = due_ns if due_ns > t_ns else t_ns + whole_ns
        found: dict[str, dict[str, float]] = {"process": {}, "host": {}, "cgroup": {}}
        self._read_part("process", lambda: self._read_process(t_ns, found["process"]))
        self._read_part("workers", lambda: found.update(self._children.sample(t_ns, self._ended_children_s)))
        if self._children.problem:
            self._report("workers", self._children.problem)
        self._read_part("host.cpu", lambda: self._read_cpus(t_ns, found["host"]))
        self._read_part("host.memory", lambda: found["host"].update(machine.memory(self._read("meminfo"))))
        self._read_part("host.load", lambda: found["host"].update(load=machine.load(self._read("loadavg"))))
        self._read_part("host.rates", lambda: self._read_machine_rates(t_ns, found["host"]))
        if self._with_shm:
            self._read_part("host.shm", lambda: found["host"].update(machine.shared_memory(str(self.roots.shm))))
        self._read_part(
            "cgroup", lambda: self._limited_group.run(t_ns, lambda: self._read_group(t_ns, found["cgroup"]))
        )
        self._read_part(
            "threads", lambda: found.update(self._limited_threads.run(t_ns, lambda: self._threads.sample(t_ns)) or {})
        )
        facts: list[Reading] = []
        if self._facts:
            facts, self._facts = [Conditions(values=self._facts)], {}
        notices, self._notices = self._notices, []
        samples = [
            Sample(source=self.name, subject=subject, t_ns=t_ns, values={n: _rounded(n, v) for n, v in values.items()})
            for subject, values in found.items()
            if values
        ]
        return [*facts, *samples, *notices]

    def close(self) -> Sequence[Reading]:
        """Nothing is held back."""
        if self._statm is not None:
            self._statm.close()
        return ()

    def _memory_alone(self, t_ns: int) -> Sequence[Reading]:
        if self._statm is None or self._statm.note() <= 0:
            return ()
        try:
            values: dict[str, float | None] = {**resident_bytes(self._statm.noted())}
        except ValueError:  # the whole reading reports it
            return ()
        return [Sample(source=self.name, subject="process_memory", t_ns=t_ns, values=values)] if values else ()

    def _record_cpus(self) -> None:
        """By their numbers: ranks on one machine share them, or have some each."""
        if cpus := self.cpus():
            self._facts["host.cpu_set"] = ",".join(map(str, sorted(cpus)))

    def _read(self, name: str) -> bytes:
        return proc_file.read(f"{self._proc}/{name}")

    def _read_process(self, t_ns: int, values: dict[str, float]) -> None:
        reading = read_process(self._own, io_wait=self._io_wait)
        values |= self._process.per_s(reading.counters, t_ns)
        if "cpu_user_cpus" in values and "cpu_system_cpus" in values:
            values["cpu_cpus"] = values["cpu_user_cpus"] + values["cpu_system_cpus"]
        values |= reading.levels
        self._own_cpu_s = reading.counters["cpu_user_cpus"] + reading.counters["cpu_system_cpus"]
        self._ended_children_s = reading.ended_children_s
        if t_ns - (self._first_ns or 0) >= _PROPORTIONAL_FROM_S * 1e9:
            rss_bytes = reading.levels["rss_bytes"]
            with contextlib.suppress(OSError):
                values |= (
                    self._limited_proportional.run(t_ns, lambda: proportional_bytes(self._own, rss_bytes, own=True))
                    or {}
                )

    def _read_cpus(self, t_ns: int, values: dict[str, float]) -> None:
        times = self._limited_cpu.run(t_ns, lambda: machine.cpu_times(self._read("stat"), self.cpus()))
        if times is None:
            return
        ours_s = self._own_cpu_s + self._children.used_s
        counters = {"busy": times.busy_s, "idle": times.idle_s, "io_wait": times.io_wait_s, "steal": times.steal_s}
        counters |= {"user": times.user_s, "ours": ours_s}
        grown = self._cpu_times.per_s(counters, t_ns)
        if not {"busy", "idle", "steal"} <= grown.keys():
            return
        total = grown["busy"] + grown["idle"] + grown["steal"]
        if total <= 0:
            return
        values["cpu_busy_ratio"] = (grown["busy"] + grown["steal"]) / total
        values["cpu_steal_cpus"] = grown["steal"]
        if "user" in grown:
            values["cpu_user_ratio"] = grown["user"] / total
            values["cpu_system_ratio"] = max(0.0, grown["busy"] - grown["user"]) / total
        if "ours" in grown:
            values["cpu_others_cpus"] = max(0.0, grown["busy"] - grown["ours"])
        if "io_wait" in grown:  # the kernel may take some of it back
            values["cpu_io_wait_ratio"] = grown["io_wait"] / total

    def _read_machine_rates(self, t_ns: int, values: dict[str, float]) -> None:
        counters = machine.paging(proc_file.read_if_there(f"{self._proc}/vmstat") or b"")
        counters |= machine.network(proc_file.read_if_there(f"{self._own}/net/dev", records=True) or b"")
        counters |= machine.pressure(self._proc)
        values |= self._machine.per_s(counters, t_ns)

    def _read_group(self, t_ns: int, values: dict[str, float]) -> None:
        levels, counters = self._group.memory()
        values |= levels
        values |= self._group_events.since(counters | self._group.cpu_counters(), t_ns)
        folder = self._group.pressure_folder
        if folder is not None:
            values |= self._group_pressure.per_s(machine.group_pressure(str(folder)), t_ns)

    def _read_part(self, what: str, read: Callable[[], object]) -> None:
        """Read one part; what fails is absent from the sample and reported once."""
        try:
            read()
        except Exception as error:
            self._report(what, f"{type(error).__name__}: {error}")

    def _report(self, what: str, why: str) -> None:
        if what not in self._reported:
            self._reported.add(what)
            self._notices.append(Notice(part=self.name, message=f"{what} is not measured: {why}"))


def _rounded(name: str, value: float) -> float | None:
    """Four decimals: the clock ticks behind the numbers are coarser, and the journal stays small.

    A share that is above 1 because its counter was read a moment later than the clock is 1.
    """
    if not math.isfinite(value):
        return None
    return round(min(value, 1.0) if name.endswith("_ratio") else value, 4)


_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def thread_settings(environ: Mapping[str, str]) -> dict[str, Value]:
    """Threads between operators of torch, and the variables that size pools, where they hold a number.

    ``torch.get_num_threads()`` is not asked here: OMP answers for the thread that asks.
    """
    found: dict[str, Value] = {"host.torch_interop_threads": torch.get_num_interop_threads()}
    for name in _VARIABLES:
        value = environ.get(name, "").strip()
        if value.isascii() and value.isdigit():
            found[f"host.{name.lower()}"] = int(value)
    return found
