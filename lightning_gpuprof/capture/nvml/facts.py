"""What does not change about a GPU during a run: its make, limits and settings."""

import itertools
from collections.abc import Callable
from statistics import median
from typing import Any, TypeAlias

from lightning_gpuprof.capture.nvml import gpm
from lightning_gpuprof.capture.nvml.backend import (
    DriverGoneError,
    GpuLostError,
    NvmlDevice,
    NvmlError,
    UnsupportedError,
)
from lightning_gpuprof.capture.nvml.calls import Calls, text, uint, ulonglong
from lightning_gpuprof.model.journal import Value

Facts = dict[str, Value]
Reader: TypeAlias = Callable[[Calls, NvmlDevice], Value]

_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}


def read(calls: Calls, device: NvmlDevice) -> Facts:
    """Everything that this GPU and driver answer.

    Args:
        calls: The driver's functions.
        device: Which GPU.

    Returns:
        Name (``driver_version``) → value; what is not answered is left out.

    Raises:
        GpuLostError: The GPU is gone.
        DriverGoneError: The driver is gone.
    """
    found: Facts = {}
    for name, reader in _READERS.items():
        try:
            value = reader(calls, device)
        except (GpuLostError, DriverGoneError):
            raise
        except NvmlError:
            continue
        if value is not None:
            found[name] = value
    return found


def memory_info(calls: Calls, handle: object) -> Any:
    """The driver's struct with ``total``, ``free`` and ``used``.

    Version 2 counts what the driver reserves for itself apart from "used", as nvidia-smi does.

    Args:
        calls: The driver's functions.
        handle: The driver's handle of a GPU.

    Returns:
        In bytes; where version 2 is unknown, ``used`` holds what the driver reserves, too.

    Raises:
        UnsupportedError: This version of ``pynvml`` does not know the function.
    """
    try:
        version = getattr(calls.nvml, "nvmlMemory_v2", None)
        if version is None:
            raise UnsupportedError("unknown to this version of nvidia-ml-py")
        return calls.ask("nvmlDeviceGetMemoryInfo", handle, version)
    except UnsupportedError:
        return calls.ask("nvmlDeviceGetMemoryInfo", handle)


def active_links(calls: Calls, handle: object) -> list[int]:
    """Numbers of the NVLinks that are up.

    Args:
        calls: The driver's functions.
        handle: The driver's handle of a GPU.

    Returns:
        Ascending, from 0; empty if none is up.

    Raises:
        UnsupportedError: The GPU has no NVLink.
    """
    links: list[int] = []
    for link in range(getattr(calls.nvml, "NVML_NVLINK_MAX_LINKS", 18)):
        try:
            if calls.ask("nvmlDeviceGetNvLinkState", handle, link) == 1:
                links.append(link)
        except UnsupportedError:
            if link == 0:
                raise
            break  # the GPU has fewer than the binding knows
    return links


def _asks(function: str, convert: Callable[[Any], Value] = uint) -> Reader:
    """What a function of the driver's answers about the GPU."""
    return lambda calls, device: convert(calls.ask(function, device.handle))


def _counts(function: str) -> Reader:
    return _asks(function, lambda raw: int(uint(raw)))


def _clock_max(kind: str) -> Reader:
    return lambda calls, device: uint(
        calls.ask("nvmlDeviceGetMaxClockInfo", device.handle, getattr(calls.nvml, f"NVML_CLOCK_{kind}"))
    )


def _cuda_version(calls: Calls, device: NvmlDevice) -> Value:
    version = int(calls.ask("nvmlSystemGetCudaDriverVersion"))
    return f"{version // 1000}.{version % 1000 // 10}"


def _nvlink_version(calls: Calls, device: NvmlDevice) -> Value:
    links = active_links(calls, device.handle)
    return int(calls.ask("nvmlDeviceGetNvLinkVersion", device.handle, links[0])) if links else None


def _nvlink_bytes_per_s(calls: Calls, device: NvmlDevice) -> Value:
    field = getattr(calls.nvml, "NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON", None)
    if field is None:  # an older binding
        return None
    (found,) = calls.ask("nvmlDeviceGetFieldValues", device.handle, [field])
    return uint(found.value.uiVal) * 1e6 if found.nvmlReturn == 0 and found.value.uiVal else None


def _utilization_refresh_s(calls: Calls, device: NvmlDevice) -> Value:
    """How often the driver renews its utilization, from the times in its own buffer."""
    _, samples = calls.ask("nvmlDeviceGetSamples", device.handle, calls.nvml.NVML_GPU_UTILIZATION_SAMPLES, 0)
    times_us = sorted({int(sample.timeStamp) for sample in samples})
    return median(b - a for a, b in itertools.pairwise(times_us)) / 1e6 if len(times_us) >= 3 else None


_READERS: dict[str, Reader] = {
    "pci_bus_id": _asks("nvmlDeviceGetPciInfo", lambda info: text(info.busId)),
    "compute_capability": _asks("nvmlDeviceGetCudaComputeCapability", lambda pair: f"{pair[0]}.{pair[1]}"),
    "driver_version": lambda calls, device: text(calls.ask("nvmlSystemGetDriverVersion")),
    "cuda_driver_version": _cuda_version,
    "memory_total_bytes": lambda calls, device: ulonglong(memory_info(calls, device.handle).total),
    "sm_clock_max_mhz": _clock_max("SM"),
    "memory_clock_max_mhz": _clock_max("MEM"),
    "memory_bus_bits": _counts("nvmlDeviceGetMemoryBusWidth"),
    "cuda_cores_count": _counts("nvmlDeviceGetNumGpuCores"),
    "fans_count": _counts("nvmlDeviceGetNumFans"),
    "pcie_generation_max": _asks("nvmlDeviceGetMaxPcieLinkGeneration"),
    "pcie_width_max": _asks("nvmlDeviceGetMaxPcieLinkWidth"),
    "power_limit_default_w": _asks("nvmlDeviceGetPowerManagementDefaultLimit", lambda mw: uint(mw) / 1000),
    "power_limit_min_w": _asks("nvmlDeviceGetPowerManagementLimitConstraints", lambda mw: uint(mw[0]) / 1000),
    "power_limit_max_w": _asks("nvmlDeviceGetPowerManagementLimitConstraints", lambda mw: uint(mw[1]) / 1000),
    "ecc": _asks("nvmlDeviceGetEccMode", lambda modes: bool(modes[0] == 1)),
    "mig": lambda calls, device: device.parent is not None or device.mig_mode,
    "nvlink_active_count": lambda calls, device: len(active_links(calls, device.handle)),
    "nvlink_version": _nvlink_version,
    "nvlink_each_bytes_per_s": _nvlink_bytes_per_s,
    "persistence_mode": _asks("nvmlDeviceGetPersistenceMode", lambda mode: bool(mode == 1)),
    "compute_mode": _asks("nvmlDeviceGetComputeMode", lambda mode: _COMPUTE_MODES.get(int(mode), str(mode))),
    "gpm": lambda calls, device: gpm.unavailable_reason(calls, device) or "supported",
    "utilization_refresh_s": _utilization_refresh_s,
}
"""How each fact is asked for; None where this GPU has no such thing."""
