"""What does not change about a GPU during a run: its make, limits and settings."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from statistics import median
from typing import Any

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

_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}


def read(calls: Calls, device: NvmlDevice) -> Facts:
    """Everything that this GPU and driver tell; the rest is left out.

    Args:
        calls: The driver's functions.
        device: Which GPU.

    Raises:
        GpuLostError: The GPU is gone.
        DriverGoneError: The driver is gone.
    """
    found: Facts = {}
    for reader in _READERS:
        try:
            found |= reader(calls, device)
        except (GpuLostError, DriverGoneError):
            raise
        except NvmlError:
            continue
    return found


def memory_total(calls: Calls, device: NvmlDevice) -> Facts:
    """All memory, what the driver keeps for itself included.

    Args:
        calls: The driver's functions.
        device: Which GPU.
    """
    return {"memory_total_bytes": ulonglong(memory_info(calls, device.handle).total)}


def memory_info(calls: Calls, handle: object) -> Any:
    """The driver's struct with ``total``, ``free`` and ``used``.

    Version 2 counts what the driver reserves for itself apart from "used", as nvidia-smi does.

    Args:
        calls: The driver's functions.
        handle: The driver's handle of a GPU.

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


def _pci_bus_id(calls: Calls, device: NvmlDevice) -> Facts:
    return {"pci_bus_id": text(calls.ask("nvmlDeviceGetPciInfo", device.handle).busId)}


def _compute_capability(calls: Calls, device: NvmlDevice) -> Facts:
    major, minor = calls.ask("nvmlDeviceGetCudaComputeCapability", device.handle)
    return {"compute_capability": f"{major}.{minor}"}


def _driver_version(calls: Calls, device: NvmlDevice) -> Facts:
    return {"driver_version": text(calls.ask("nvmlSystemGetDriverVersion"))}


def _cuda_version(calls: Calls, device: NvmlDevice) -> Facts:
    version = int(calls.ask("nvmlSystemGetCudaDriverVersion"))
    return {"cuda_driver_version": f"{version // 1000}.{version % 1000 // 10}"}


def _sm_clock_max(calls: Calls, device: NvmlDevice) -> Facts:
    return {
        "sm_clock_max_mhz": uint(calls.ask("nvmlDeviceGetMaxClockInfo", device.handle, calls.nvml.NVML_CLOCK_SM)),
    }


def _memory_clock_max(calls: Calls, device: NvmlDevice) -> Facts:
    return {
        "memory_clock_max_mhz": uint(calls.ask("nvmlDeviceGetMaxClockInfo", device.handle, calls.nvml.NVML_CLOCK_MEM)),
    }


def _pcie_max(calls: Calls, device: NvmlDevice) -> Facts:
    return {
        "pcie_generation_max": uint(calls.ask("nvmlDeviceGetMaxPcieLinkGeneration", device.handle)),
        "pcie_width_max": uint(calls.ask("nvmlDeviceGetMaxPcieLinkWidth", device.handle)),
    }


def _power_limit_default(calls: Calls, device: NvmlDevice) -> Facts:
    return {
        "power_limit_default_w": uint(calls.ask("nvmlDeviceGetPowerManagementDefaultLimit", device.handle)) / 1000,
    }


def _power_limits(calls: Calls, device: NvmlDevice) -> Facts:
    least, most = calls.ask("nvmlDeviceGetPowerManagementLimitConstraints", device.handle)
    return {"power_limit_min_w": uint(least) / 1000, "power_limit_max_w": uint(most) / 1000}


def _ecc_mode(calls: Calls, device: NvmlDevice) -> Facts:
    return {"ecc": calls.ask("nvmlDeviceGetEccMode", device.handle)[0] == 1}


def _mig_mode(calls: Calls, device: NvmlDevice) -> Facts:
    return {"mig": True if device.parent is not None else device.mig_mode}


def _nvlink(calls: Calls, device: NvmlDevice) -> Facts:
    links = active_links(calls, device.handle)
    facts: Facts = {"nvlink_active_count": len(links)}
    if links:
        facts["nvlink_version"] = int(calls.ask("nvmlDeviceGetNvLinkVersion", device.handle, links[0]))
    return facts


def active_links(calls: Calls, handle: object) -> list[int]:
    """Numbers of the NVLinks that are up; raises ``UnsupportedError`` for a GPU without NVLink.

    Args:
        calls: The driver's functions.
        handle: The driver's handle of a GPU.
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


def _persistence_mode(calls: Calls, device: NvmlDevice) -> Facts:
    return {"persistence_mode": calls.ask("nvmlDeviceGetPersistenceMode", device.handle) == 1}


def _compute_mode(calls: Calls, device: NvmlDevice) -> Facts:
    mode = int(calls.ask("nvmlDeviceGetComputeMode", device.handle))
    return {"compute_mode": _COMPUTE_MODES.get(mode, str(mode))}


def _gpm(calls: Calls, device: NvmlDevice) -> Facts:
    return {"gpm": gpm.unavailable_reason(calls, device) or "supported"}


def _utilization_refresh(calls: Calls, device: NvmlDevice) -> Facts:
    """How often the driver renews its utilization, from the times in its own buffer."""
    _, samples = calls.ask("nvmlDeviceGetSamples", device.handle, calls.nvml.NVML_GPU_UTILIZATION_SAMPLES, 0)
    times_us = sorted({int(sample.timeStamp) for sample in samples})
    if len(times_us) < 3:
        return {}
    return {"utilization_refresh_s": median(b - a for a, b in itertools.pairwise(times_us)) / 1e6}


_READERS: tuple[Callable[[Calls, NvmlDevice], Facts], ...] = (
    _pci_bus_id,
    _compute_capability,
    _driver_version,
    _cuda_version,
    memory_total,
    _sm_clock_max,
    _memory_clock_max,
    _pcie_max,
    _power_limit_default,
    _power_limits,
    _ecc_mode,
    _mig_mode,
    _nvlink,
    _persistence_mode,
    _compute_mode,
    _gpm,
    _utilization_refresh,
)
