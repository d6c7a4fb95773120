"""Samples the process, its children and the machine where there is no /proc (macOS, Windows), with psutil."""

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

import psutil

from lightning_gpuprof.capture.host.children import daemonic_children
from lightning_gpuprof.capture.host.proc_file import Growth
from lightning_gpuprof.capture.host.sampler import MAX_SAMPLES, SECOND_S, thread_settings
from lightning_gpuprof.capture.recorder import Reading, Sampler
from lightning_gpuprof.model.journal import Conditions, Notice, Sample

_MISSING = (
    "not measured without /proc: waiting for a CPU, page faults, disks, the network, shared memory, control groups, "
    "groups of threads"
)


@dataclass(eq=False, repr=False)
class PortableHostSampler(Sampler):
    """Of the values of ``HostSampler``, under the same names, those that psutil has on each system.

    ============  =================================================================================================
    subject       values
    ============  =================================================================================================
    ``process``   ``cpu_cpus``, ``cpu_user_cpus``, ``cpu_system_cpus``, ``rss_bytes``, ``threads_count``
    ``workers``   their ``count``, and the sums of the values of ``process``: children that ``multiprocessing`` started
                  as daemons
    ``children``  likewise, of all other processes below this one
    ``host``      ``cpu_busy_ratio``, ``cpu_others_cpus``, ``memory_total_bytes``, ``memory_available_bytes``,
                  ``swap_used_bytes``
    ============  =================================================================================================

    Rates need two samples, so a child counts from its second one on. After two hours the interval grows, as that of
    ``HostSampler``.
    """

    interval_s: float = 1.0
    """Seconds between two samples."""
    _: KW_ONLY
    other_ranks: Callable[[], Collection[int]] = tuple
    """Processes below this one that are ranks of their own."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    """The environment, for settings of pools of threads."""

    name = "host"

    def __post_init__(self) -> None:
        self._wanted_s = self.interval_s
        self._first_ns: int | None = None
        self._machine = Growth()
        self._grown: dict[int, Growth] = {}

    def sample(self, t_ns: int) -> Sequence[Reading]:
        """One sample of each subject; with the first, what is not measured here."""
        first = self._first_ns is None
        if self._first_ns is None:
            self._first_ns = t_ns
        wanted_s = min(self._wanted_s, SECOND_S) if first else self._wanted_s
        self.interval_s = max(wanted_s, (t_ns - self._first_ns) / 1e9 / MAX_SAMPLES)
        own, others = psutil.Process(), self.other_ranks()
        below = [child for child in own.children() if child.pid not in others]
        below += [descendant for child in below for descendant in _children_of(child)]
        found = {"process": self._read(own, t_ns), **self._sums(below, t_ns)}
        ours_cpus = sum(values.get("cpu_cpus", 0.0) for values in found.values())
        found["host"] = self._host(t_ns, ours_cpus)
        self._grown = {process.pid: self._grown[process.pid] for process in (own, *below)}
        readings: list[Reading] = [
            Sample(
                source=self.name, subject=subject, t_ns=t_ns, values={name: round(n, 4) for name, n in values.items()}
            )
            for subject, values in found.items()
        ]
        if first:
            readings += [Conditions(values=thread_settings(self.environ)), Notice(part=self.name, message=_MISSING)]
        return readings

    def _read(self, process: psutil.Process, t_ns: int) -> dict[str, float]:
        """Of one process; empty if it has ended or may not be read."""
        growth = self._grown.setdefault(process.pid, Growth())
        try:
            with process.oneshot():
                times, memory, threads = process.cpu_times(), process.memory_info(), process.num_threads()
        except psutil.Error:
            return {}
        values = growth.per_s({"cpu_user_cpus": times.user, "cpu_system_cpus": times.system}, t_ns)
        if values:
            values["cpu_cpus"] = sum(values.values())
        return {**values, "rss_bytes": float(memory.rss), "threads_count": float(threads)}

    def _sums(self, below: Sequence[psutil.Process], t_ns: int) -> dict[str, dict[str, float]]:
        workers = daemonic_children()
        sums: dict[str, dict[str, float]] = {
            subject: defaultdict(float, count=0.0) for subject in ("workers", "children")
        }
        for process in below:
            group = sums["workers" if process.pid in workers else "children"]
            group["count"] += 1
            for name, value in self._read(process, t_ns).items():
                group[name] += value
        return sums

    def _host(self, t_ns: int, ours_cpus: float) -> dict[str, float]:
        memory, swap, times = psutil.virtual_memory(), psutil.swap_memory(), psutil.cpu_times()
        idle_s = times.idle + getattr(times, "iowait", 0.0)
        grown = self._machine.per_s({"idle": idle_s, "busy": sum(times) - idle_s}, t_ns)
        values = {
            "memory_total_bytes": float(memory.total),
            "memory_available_bytes": float(memory.available),
            "swap_used_bytes": float(swap.used),
        }
        if (total := sum(grown.values())) > 0:
            values |= {
                "cpu_busy_ratio": grown["busy"] / total,
                "cpu_others_cpus": max(0.0, grown["busy"] - ours_cpus),
            }
        return values


def _children_of(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:  # it has ended
        return []
