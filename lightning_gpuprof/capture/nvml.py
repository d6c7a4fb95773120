"""From the GPUs that this process uses to one sample of each: utilization, memory, power, temperature and clocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lightning_gpuprof.capture.nvml_backend import (
    VALUES,
    DriverGoneError,
    GpuLostError,
    NvmlBackend,
    NvmlDevice,
    NvmlError,
    PynvmlBackend,
    Query,
    UnsupportedError,
)
from lightning_gpuprof.capture.recorder import Reading, SourceUnavailableError
from lightning_gpuprof.capture.visible_gpus import select_devices
from lightning_gpuprof.model.journal import Conditions, Notice, Sample, Value

_LOST = "GPU utilization, power and temperature are not measured"


class GpuName(NamedTuple):
    """Which GPU a subject of samples is."""

    subject: str
    """``gpu0``, ``gpu1``, in the CUDA order of this process."""
    name: str
    uuid: str


@dataclass(kw_only=True)
class _Gpu:
    """One GPU while it is sampled."""

    subject: str
    device: NvmlDevice
    absent: set[Query] = field(default_factory=set)
    """Queries that are not asked any more."""
    reported: set[Query] = field(default_factory=set)
    """Queries whose failure the user was told of."""
    failures_in_a_row: int = 0
    """Samples in which every query failed."""


_SILENT_SAMPLES = 3
"""Samples without any answer after which a GPU counts as lost; one may be a passing state of the driver."""


class NvmlSampler:
    """Samples the GPUs that this process uses.

    A value that a GPU does not support is None in its samples, with one notice per value and GPU. The first reading
    is a ``Conditions`` record with each GPU's name and UUID.

    Args:
        uuids: CUDA's UUIDs of the devices that this process uses, in its order, with or without ``GPU-``. None or
            empty: those that ``CUDA_VISIBLE_DEVICES`` in ``environ`` shows.
        environ: The environment, usually ``os.environ``.
        interval_s: Seconds between two samples. The driver averages utilization over 1/6 to 1 s.
        connect: Opens NVML.
    """

    name = "nvml"

    def __init__(
        self,
        uuids: Sequence[str] | None,
        environ: Mapping[str, str],
        interval_s: float = 0.5,
        *,
        connect: Callable[[], NvmlBackend] = PynvmlBackend,
    ) -> None:
        self.interval_s = interval_s
        self._uuids = None if uuids is None else tuple(uuids)
        self._environ = environ
        self._connect = connect
        self._backend: NvmlBackend | None = None
        self._gpus: list[_Gpu] = []
        self._waiting: list[Reading] = []
        """Readings that were not made by a sample; they go out with the next one."""

    def open(self) -> None:
        """Open NVML and find the GPUs.

        Raises:
            SourceUnavailableError: No NVML, or no GPU of this process is known to it.
        """
        try:
            self._backend = self._connect()
            selection = select_devices(self._backend.devices(), self._uuids, self._environ)
        except NvmlError as error:
            raise SourceUnavailableError(f"NVML not available: {error}; {_LOST}") from error
        if not selection.devices:
            why = "; ".join(selection.problems) or "no GPU is visible to this process"
            raise SourceUnavailableError(f"{why}; {_LOST}")
        self._gpus = [_Gpu(subject=subject, device=device) for subject, device in selection.devices]
        facts: dict[str, Value] = {}
        for gpu in self.device_names():
            facts[f"{gpu.subject}.name"] = gpu.name
            facts[f"{gpu.subject}.uuid"] = gpu.uuid
        self._waiting = [Conditions(values=facts), *(self._notice(text) for text in selection.problems)]

    def device_names(self) -> list[GpuName]:
        """The GPUs that are sampled, in the CUDA order of this process; empty before ``open``."""
        return [GpuName(gpu.subject, gpu.device.name, gpu.device.uuid) for gpu in self._gpus]

    def sample(self, t_ns: int) -> Sequence[Reading]:
        """One sample of each GPU.

        Raises:
            SourceUnavailableError: The driver is gone, or all GPUs are.
        """
        readings, self._waiting = self._waiting, []
        for gpu in tuple(self._gpus):
            try:
                readings += self._read(gpu, t_ns)
            except GpuLostError as error:
                self._gpus.remove(gpu)
                text = f"{gpu.subject} does not answer any more: {error}; it is not measured from here on"
                if not self._gpus:
                    raise SourceUnavailableError(text) from error
                readings.append(self._notice(text))
            except DriverGoneError as error:
                raise SourceUnavailableError(f"NVML does not answer any more: {error}; {_LOST} from here on") from error
        return readings

    def close(self) -> Sequence[Reading]:
        """Shut NVML down."""
        if self._backend is not None:
            self._backend.close()
        return ()

    def _read(self, gpu: _Gpu, t_ns: int) -> list[Reading]:
        assert self._backend is not None
        values: dict[str, float | None] = {}
        failures: dict[Query, NvmlError] = {}
        answered = False
        for query, names in VALUES.items():
            values.update(dict.fromkeys(names))
            if query in gpu.absent:
                continue
            try:
                values.update(zip(names, self._backend.read(gpu.device, query), strict=True))
                answered = True
            except (GpuLostError, DriverGoneError):
                raise
            except NvmlError as error:
                failures[query] = error
        passing = {query for query, error in failures.items() if not isinstance(error, UnsupportedError)}
        gpu.absent |= failures.keys() - passing
        silent = bool(passing) and not answered
        gpu.failures_in_a_row = gpu.failures_in_a_row + 1 if silent else 0
        if gpu.failures_in_a_row >= _SILENT_SAMPLES:
            raise GpuLostError(str(failures[passing.pop()]))
        readings: list[Reading] = [Sample(source=self.name, subject=gpu.subject, t_ns=t_ns, values=values)]
        for query, failure in failures.items():
            if query in gpu.reported or (silent and query in passing):
                continue
            gpu.reported.add(query)
            readings += [self._notice(f"{gpu.subject}.{name} is not measured: {failure}") for name in VALUES[query]]
        return readings

    def _notice(self, message: str) -> Notice:
        return Notice(part=self.name, message=message)
