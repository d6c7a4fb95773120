"""Samples each GPU that this process uses: load, memory, power, heat, clocks, links and errors."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field

import msgspec

from lightning_gpuprof.capture.host.sources import Roots, pci_numa_node
from lightning_gpuprof.capture.nvml.backend import (
    ERROR_COUNTERS,
    LABELS,
    OFTEN_ABSENT,
    SLOW,
    VALUES,
    DriverGoneError,
    GpuLostError,
    NvmlDevice,
    NvmlError,
    Query,
    UnsupportedError,
)
from lightning_gpuprof.capture.nvml.driver import PynvmlBackend
from lightning_gpuprof.capture.nvml.visible_gpus import select_devices
from lightning_gpuprof.capture.recorder import Reading, SourceUnavailableError
from lightning_gpuprof.model.device import XID, xid_words
from lightning_gpuprof.model.journal import Conditions, Notice, Sample, Value

_LOST = "GPU utilization, power and temperature are not measured"

SLOW_EVERY = 10
"""Samples from one asking of the slow queries to the next."""

ERRORS_EVERY_S = 60.0
"""Seconds from one look at the error counters to the next."""

_SILENT_SAMPLES = 3
"""Samples without any answer after which a GPU counts as lost; one may be a passing state of the driver."""


class _Gpu(msgspec.Struct, kw_only=True):
    """One GPU while it is sampled."""

    subject: str
    device: NvmlDevice
    absent: set[Query] = set()
    """Queries that are not asked any more."""
    reported: set[Query] = set()
    """Queries whose failure was reported."""
    failures_in_a_row: int = 0
    """Samples in which every query failed."""
    hidden: bool = False
    """It was reported that our process cannot be separated from others."""
    has_xids: bool = True
    """The driver reports its critical errors."""
    xids: set[int] = set()
    """Those that were noted."""


MAX_SAMPLES = 14_400
"""In the time so far; from then on they become rarer. A sample of an H100 is 650 bytes of journal."""


@dataclass(eq=False, repr=False)
class NvmlSampler:
    """Samples the GPUs that this process uses.

    What a GPU does not support is None in its first sample and left out of the later ones, with one notice per GPU
    that lists all of it. What fails for a moment is None in that sample, with one notice per query. The first reading
    is a ``Conditions`` record of what does not change.

    NVML is opened in the sampler's own thread of the process that trains, and only used there: threads do not survive
    a fork, and a backend that finds itself in a forked child refuses.
    """

    uuids: InitVar[Sequence[str] | None]
    """CUDA's UUIDs of the devices that this process uses, in its order, with or without ``GPU-``. None or empty: those
    that ``CUDA_VISIBLE_DEVICES`` in ``environ`` shows."""
    environ: Mapping[str, str]
    interval_s: float = 0.5
    """Seconds between two samples, of a long run more: then as many as keep the journal small. The driver averages
    utilization over 1/6 to 1 s."""
    _: KW_ONLY
    gpm: InitVar[bool] = True
    """Read the performance counters of GPUs that have them (Hopper and later)."""
    connect: Callable[[], PynvmlBackend] = PynvmlBackend
    now: Callable[[], int] = time.perf_counter_ns
    """The run's clock in ns, for what is read at the end."""
    roots: Roots = field(default_factory=Roots)
    """Where the kernel's files are mounted: they say which NUMA node a GPU is at."""

    name = "nvml"

    def __post_init__(self, uuids: Sequence[str] | None, gpm: bool) -> None:
        self._wanted_s = self.interval_s
        self._first_ns: int | None = None
        self._uuids = None if uuids is None else tuple(uuids)
        self._queries: tuple[Query, ...] = tuple(query for query in VALUES if gpm or query != "activity")
        self._backend: PynvmlBackend | None = None
        self._gpus: list[_Gpu] = []
        self._waiting: list[Reading] = []
        """Readings that were not made by a sample; they go out with the next one."""
        self._samples = 0

    def open(self) -> None:
        """Open NVML and find the GPUs.

        Raises:
            SourceUnavailableError: No NVML, or no GPU of this process is known to it.
        """
        try:
            self._backend = self.connect()
            selection = select_devices(self._backend.devices(), self._uuids, self.environ)
            if not selection.devices:
                why = "; ".join(selection.problems) or "no GPU is visible to this process"
                raise SourceUnavailableError(f"{why}; {_LOST}")
            self._gpus = [_Gpu(subject=subject, device=device) for subject, device in selection.devices]
            facts = {f"{gpu.subject}.{name}": value for gpu in self._gpus for name, value in self._facts(gpu).items()}
        except NvmlError as error:
            raise SourceUnavailableError(f"NVML not available: {error}; {_LOST}") from error
        self._waiting = [Conditions(values=facts), *(self._notice(text) for text in selection.problems)]

    def sample(self, t_ns: int) -> Sequence[Reading]:
        """One sample of each GPU.

        Raises:
            SourceUnavailableError: The driver is gone, or all GPUs are.
        """
        self._first_ns = t_ns if self._first_ns is None else self._first_ns
        self.interval_s = max(self._wanted_s, (t_ns - self._first_ns) / 1e9 / MAX_SAMPLES)
        readings, self._waiting = self._waiting, []
        due = self._due()
        self._samples += 1
        for gpu in tuple(self._gpus):
            readings += self._xids(gpu, t_ns)
            try:
                readings += self._read(gpu, t_ns, due)
            except GpuLostError as error:
                self._gpus.remove(gpu)
                readings += self._xids(gpu, t_ns)
                text = f"{gpu.subject} stopped responding: {error}; not measured from here on"
                if not self._gpus:
                    self._waiting = readings
                    raise SourceUnavailableError(text) from error
                readings.append(self._notice(text))
            except DriverGoneError as error:
                self._gpus.clear()
                self._waiting = readings
                raise SourceUnavailableError(f"NVML stopped responding: {error}; {_LOST} from here on") from error
        return readings

    def close(self) -> Sequence[Reading]:
        """Hand over what is left, read the errors once more, and shut NVML down."""
        if self._backend is None:
            return ()
        readings, self._waiting = self._waiting if self._samples else [], []
        try:
            if self._samples:
                for gpu in self._gpus:
                    readings += self._xids(gpu, self.now())
                    values = self._answers(gpu, ERROR_COUNTERS, {})
                    if values:
                        readings.append(Sample(source=self.name, subject=gpu.subject, t_ns=self.now(), values=values))
        except NvmlError:
            pass  # gone between the last sample and now: there is nothing more to report
        with contextlib.suppress(NvmlError):  # what was read counts all the same
            self._backend.close()
        return readings

    def _facts(self, gpu: _Gpu) -> dict[str, Value]:
        assert self._backend is not None
        facts: dict[str, Value] = {"name": gpu.device.name, "uuid": gpu.device.uuid}
        try:
            facts |= self._backend.facts(gpu.device)
        except GpuLostError:
            return facts  # the first sample says so
        node = pci_numa_node(self.roots, str(facts.get("pci_bus_id") or ""))
        return facts if node is None else {**facts, "numa_node": node}

    def _due(self) -> frozenset[Query]:
        """What to ask in this sample. The first one asks all, so that one notice can say what there is not.

        It may come before training begins; so the slow queries are asked again in the second.
        """
        nth = self._samples
        errors_every = max(1, round(ERRORS_EVERY_S / self.interval_s))
        return frozenset(
            query
            for query in self._queries
            if nth == 0
            or (nth % SLOW_EVERY == 1 if query in SLOW else query not in ERROR_COUNTERS or nth % errors_every == 0)
        )

    def _answers(self, gpu: _Gpu, due: frozenset[Query], failures: dict[Query, NvmlError]) -> dict[str, float | None]:
        """The values of what is due; why there are none goes into ``failures``."""
        assert self._backend is not None
        values: dict[str, float | None] = {}
        for query, names in VALUES.items():
            if query not in due or query in gpu.absent:
                continue
            if query == "pcie_throughput" and values.get(names[0]) is not None:
                continue  # the counters gave it, as a mean over the whole interval and without a wait of 40 ms
            try:
                # An empty answer is one that needs a second look.
                values.update(zip(names, self._backend.read(gpu.device, query), strict=False))
            except (GpuLostError, DriverGoneError):
                raise
            except NvmlError as error:
                values.update(dict.fromkeys(names))
                failures[query] = error
        return values

    def _xids(self, gpu: _Gpu, t_ns: int) -> list[Reading]:
        """A sample for each critical error since the last look, and a notice for each new kind.

        Also of a GPU that is lost.
        """
        assert self._backend is not None
        if not gpu.has_xids:
            return []
        try:
            found = self._backend.xids(gpu.device)
        except NvmlError:
            gpu.has_xids = False
            return []
        readings: list[Reading] = []
        for xid in found:
            readings.append(Sample(source=self.name, subject=gpu.subject, t_ns=t_ns, values={XID: xid}))
            if xid not in gpu.xids:
                gpu.xids.add(xid)
                readings.append(self._notice(f"{gpu.subject}: {xid_words(xid)}"))
        return readings

    def _read(self, gpu: _Gpu, t_ns: int, due: frozenset[Query]) -> list[Reading]:
        failures: dict[Query, NvmlError] = {}
        values = self._answers(gpu, due, failures)
        lasting = {query for query, error in failures.items() if isinstance(error, UnsupportedError)}
        passing = failures.keys() - lasting
        gpu.absent |= lasting
        silent = bool(passing) and all(value is None for value in values.values())
        gpu.failures_in_a_row = gpu.failures_in_a_row + 1 if silent else 0
        if gpu.failures_in_a_row >= _SILENT_SAMPLES:
            raise GpuLostError(str(failures[next(iter(passing))]))
        readings: list[Reading] = [Sample(source=self.name, subject=gpu.subject, t_ns=t_ns, values=values)]
        unreported = {query: failures[query] for query in VALUES if query in failures and query not in gpu.reported}
        if silent:
            unreported = {query: error for query, error in unreported.items() if query in lasting}
        gpu.reported |= unreported.keys()
        never = {query: error for query, error in unreported.items() if query in lasting - OFTEN_ABSENT}
        if never:
            readings.append(self._notice(f"{gpu.subject} does not report {_listed(never.items())}"))
        not_now = {query: error for query, error in unreported.items() if query in passing}
        if not_now:
            readings.append(self._notice(f"{gpu.subject} did not report {_listed(not_now.items())}; trying again"))
        if not gpu.hidden and values.get("compute_processes_count") and values.get("foreign_processes_count") is None:
            gpu.hidden = True
            readings.append(
                self._notice(
                    f"{gpu.subject}: the driver lists processes by the machine's process ids, this process sees those "
                    "of its container: memory of this process cannot be separated from that of others"
                )
            )
        return readings

    def _notice(self, message: str) -> Notice:
        return Notice(part=self.name, message=message)


def _listed(failures: Iterable[tuple[Query, NvmlError]]) -> str:
    """``utilization, power (Not Supported); energy (Insufficient Permissions)``."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for query, error in failures:
        by_reason[str(error)].append(LABELS[query])
    return "; ".join(f"{', '.join(labels)} ({reason})" for reason, labels in by_reason.items())
