"""From NVML's C functions, through ``pynvml``, to answers about one GPU in our units, or few kinds of errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, Protocol

from lightning_gpuprof.errors import GpuProfError

Query = Literal[
    "utilization", "memory", "power", "power_limit", "temperature", "sm_clock", "memory_clock", "sm_clock_max"
]
"""One question to the driver."""

VALUES: dict[Query, tuple[str, ...]] = {
    "utilization": ("utilization_ratio", "memory_utilization_ratio"),
    "memory": ("memory_used_bytes", "memory_total_bytes"),
    "power": ("power_w",),
    "power_limit": ("power_limit_w",),
    "temperature": ("temperature_c",),
    "sm_clock": ("sm_clock_mhz",),
    "memory_clock": ("memory_clock_mhz",),
    "sm_clock_max": ("sm_clock_max_mhz",),
}
"""Names of the values that each query answers, in the order of the answer."""


class NvmlError(GpuProfError):
    """NVML gave an error instead of an answer; the text is the driver's reason. It may be gone at the next query."""


class UnsupportedError(NvmlError):
    """This GPU, driver or user will never get an answer to this query."""


class GpuLostError(NvmlError):
    """The GPU has fallen off the bus or needs a reset; others may still answer."""


class DriverGoneError(NvmlError):
    """No query to any GPU can be answered: no library, no driver, or another version than the library's."""


@dataclass(frozen=True, kw_only=True)
class NvmlDevice:
    """A GPU, or a MIG device on one, as NVML lists it."""

    index: int
    """In NVML's order, which is that of the PCI bus."""
    uuid: str
    """With its prefix, ``GPU-`` or ``MIG-``."""
    name: str
    handle: object
    """The backend's own; opaque here."""
    mig_mode: bool = False
    """The GPU is partitioned: processes use its MIG devices instead of it."""
    mig_devices: tuple[NvmlDevice, ...] = ()


class NvmlBackend(Protocol):
    """NVML, opened. Every method may take long or hang: they are called in the sampler's thread only."""

    def devices(self) -> Sequence[NvmlDevice]:
        """All GPUs that NVML can open, in its order.

        Raises:
            NvmlError: They cannot be listed.
        """

    def read(self, device: NvmlDevice, query: Query) -> tuple[float, ...]:
        """The values of :data:`VALUES` for a query, in their units.

        Raises:
            UnsupportedError: There will never be an answer.
            GpuLostError: The GPU is gone.
            DriverGoneError: The driver is gone.
            NvmlError: There is no answer this time.
        """

    def close(self) -> None:
        """Undo the opening."""


class PynvmlBackend:
    """The driver's library through ``pynvml`` of the package nvidia-ml-py; opened by making one.

    Raises:
        DriverGoneError: No library or no driver on this machine, or nvidia-ml-py is not installed.
        NvmlError: The library refuses.
    """

    def __init__(self) -> None:
        try:
            import pynvml
        except ImportError as error:
            raise DriverGoneError(f"the package nvidia-ml-py cannot be imported ({error})") from error
        self._nvml: ModuleType = pynvml
        self._error_classes: dict[int, type[NvmlError]] = {
            # Not permitted and "invalid argument" are lasting too: handles come from NVML itself, the other arguments
            # are constants, so the latter means that the query does not apply, e.g. power of a MIG device.
            pynvml.NVML_ERROR_NOT_SUPPORTED: UnsupportedError,
            pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: UnsupportedError,
            pynvml.NVML_ERROR_INVALID_ARGUMENT: UnsupportedError,
            pynvml.NVML_ERROR_NO_PERMISSION: UnsupportedError,
            pynvml.NVML_ERROR_GPU_IS_LOST: GpuLostError,
            pynvml.NVML_ERROR_RESET_REQUIRED: GpuLostError,
            pynvml.NVML_ERROR_UNINITIALIZED: DriverGoneError,
            pynvml.NVML_ERROR_DRIVER_NOT_LOADED: DriverGoneError,
            pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: DriverGoneError,
            pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: DriverGoneError,
        }
        self._ask(pynvml.nvmlInit)

    def devices(self) -> Sequence[NvmlDevice]:
        """All GPUs that NVML can open; one that is lost or not permitted is left out."""
        nvml = self._nvml
        found: list[NvmlDevice] = []
        for index in range(self._ask(nvml.nvmlDeviceGetCount)):
            try:
                handle = self._ask(nvml.nvmlDeviceGetHandleByIndex, index)
                found.append(self._device(index, handle))
            except DriverGoneError:
                raise
            except NvmlError:
                continue
        return found

    def read(self, device: NvmlDevice, query: Query) -> tuple[float, ...]:
        """Ask the driver once."""
        return self._READERS[query](self, device.handle)

    def close(self) -> None:
        """Shut NVML down; it counts its users, so others in this process are not affected."""
        self._ask(self._nvml.nvmlShutdown)

    def _device(self, index: int, handle: object) -> NvmlDevice:
        nvml = self._nvml
        try:
            mig_mode = self._ask(nvml.nvmlDeviceGetMigMode, handle)[0] == 1
        except UnsupportedError:
            mig_mode = False
        return NvmlDevice(
            index=index,
            uuid=_as_text(self._ask(nvml.nvmlDeviceGetUUID, handle)),
            name=_as_text(self._ask(nvml.nvmlDeviceGetName, handle)),
            handle=handle,
            mig_mode=mig_mode,
            mig_devices=tuple(self._mig_devices(index, handle)) if mig_mode else (),
        )

    def _mig_devices(self, index: int, parent: object) -> list[NvmlDevice]:
        nvml = self._nvml
        found: list[NvmlDevice] = []
        for position in range(self._ask(nvml.nvmlDeviceGetMaxMigDeviceCount, parent)):
            try:
                handle = self._ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, parent, position)
            except DriverGoneError:
                raise
            except NvmlError:  # places that hold no device answer "not found"
                continue
            found.append(
                NvmlDevice(
                    index=index,
                    uuid=_as_text(self._ask(nvml.nvmlDeviceGetUUID, handle)),
                    name=_as_text(self._ask(nvml.nvmlDeviceGetName, handle)),
                    handle=handle,
                )
            )
        return found

    def _utilization(self, handle: object) -> tuple[float, ...]:
        rates = self._ask(self._nvml.nvmlDeviceGetUtilizationRates, handle)
        return _uint(rates.gpu) / 100, _uint(rates.memory) / 100

    def _memory(self, handle: object) -> tuple[float, ...]:
        nvml = self._nvml
        try:
            # Version 2 counts what the driver reserves for itself apart from "used", as nvidia-smi does.
            memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle, nvml.nvmlMemory_v2)
        except UnsupportedError:
            memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        return _ulonglong(memory.used), _ulonglong(memory.total)

    def _power(self, handle: object) -> tuple[float, ...]:
        return (_uint(self._ask(self._nvml.nvmlDeviceGetPowerUsage, handle)) / 1000,)

    def _power_limit(self, handle: object) -> tuple[float, ...]:
        return (_uint(self._ask(self._nvml.nvmlDeviceGetEnforcedPowerLimit, handle)) / 1000,)

    def _temperature(self, handle: object) -> tuple[float, ...]:
        nvml = self._nvml
        # nvmlDeviceGetTemperature is deprecated since NVML 13; the V call is not in older drivers and bindings.
        if hasattr(nvml, "nvmlDeviceGetTemperatureV"):
            try:
                return (float(self._ask(nvml.nvmlDeviceGetTemperatureV, handle, nvml.NVML_TEMPERATURE_GPU)),)
            except UnsupportedError:
                pass
        return (_uint(self._ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)),)

    def _sm_clock(self, handle: object) -> tuple[float, ...]:
        return (_uint(self._ask(self._nvml.nvmlDeviceGetClockInfo, handle, self._nvml.NVML_CLOCK_SM)),)

    def _memory_clock(self, handle: object) -> tuple[float, ...]:
        return (_uint(self._ask(self._nvml.nvmlDeviceGetClockInfo, handle, self._nvml.NVML_CLOCK_MEM)),)

    def _sm_clock_max(self, handle: object) -> tuple[float, ...]:
        return (_uint(self._ask(self._nvml.nvmlDeviceGetMaxClockInfo, handle, self._nvml.NVML_CLOCK_SM)),)

    _READERS: Mapping[Query, Callable[[PynvmlBackend, object], tuple[float, ...]]] = {
        "utilization": _utilization,
        "memory": _memory,
        "power": _power,
        "power_limit": _power_limit,
        "temperature": _temperature,
        "sm_clock": _sm_clock,
        "memory_clock": _memory_clock,
        "sm_clock_max": _sm_clock_max,
    }

    def _ask(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Call NVML and put its error codes into our few classes."""
        try:
            return function(*arguments)
        except self._nvml.NVMLError as error:
            raise self._error_classes.get(error.value, NvmlError)(str(error)) from error


def _uint(raw: int) -> float:
    """A 32-bit answer; all bits set is NVML's "value not available"."""
    if raw == 0xFFFF_FFFF:
        raise UnsupportedError("Not Available")
    return float(raw)


def _ulonglong(raw: int) -> float:
    if raw == 0xFFFF_FFFF_FFFF_FFFF:
        raise UnsupportedError("Not Available")
    return float(raw)


def _as_text(raw: str | bytes) -> str:
    """Bindings before 11.525 gave bytes."""
    return raw.decode(errors="replace") if isinstance(raw, bytes) else raw
