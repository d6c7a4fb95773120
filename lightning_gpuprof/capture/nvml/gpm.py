"""Mean activity between two readings of a GPU's performance counters (GPM, from Hopper on)."""

import math
from typing import Any

from lightning_gpuprof.capture.nvml.backend import VALUES, Answer, NvmlDevice, NvmlError, UnsupportedError
from lightning_gpuprof.capture.nvml.calls import Calls

_MIB = float(1 << 20)

METRICS: dict[str, tuple[int, float]] = {
    "sm_active_ratio": (2, 0.01),
    "sm_occupancy_ratio": (3, 0.01),
    "tensor_active_ratio": (5, 0.01),
    "tensor_hmma_active_ratio": (7, 0.01),
    "dram_active_ratio": (10, 0.01),
    "pcie_tx_bytes_per_s": (20, _MIB),
    "pcie_rx_bytes_per_s": (21, _MIB),
    "nvlink_tx_bytes_per_s": (61, _MIB),
    "nvlink_rx_bytes_per_s": (60, _MIB),
}
"""Our name: id of the metric in nvml.h (``nvmlGpmMetricId_t``), and its unit in ours (percent, MiB/s)."""


def unavailable_reason(calls: Calls, device: NvmlDevice) -> str:
    """Why a GPU has no such counters.

    Args:
        calls: The driver's functions.
        device: Which GPU.

    Returns:
        As NVML words it; empty if the GPU has them.

    Raises:
        GpuLostError: The GPU is gone.
        DriverGoneError: The driver is gone.
    """
    handle = device.handle if device.parent is None else device.parent
    try:
        supported = calls.ask("nvmlGpmQueryDeviceSupport", handle).isSupportedDevice
    except UnsupportedError as error:
        return str(error)
    return "" if supported else "Not Supported"


class Gpm:
    """The counters of one GPU or MIG device.

    The driver keeps each look in memory of ours to which it gives a handle: there are two of them, by turns the older
    and the newer, until :meth:`close`.
    """

    def __init__(self, calls: Calls, device: NvmlDevice) -> None:
        reason = unavailable_reason(calls, device)
        if reason:
            raise UnsupportedError(reason)
        self._calls = calls
        self._device = device
        self._slice = calls.ask("nvmlDeviceGetGpuInstanceId", device.handle) if device.parent is not None else None
        self._looks: list[Any] = []
        self._newest: Any = None
        nvml = calls.nvml
        self._request: Any = nvml.c_nvmlGpmMetricsGet_t()
        self._request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = len(METRICS)
        for position, (number, _) in enumerate(METRICS.values()):
            self._request.metrics[position].metricId = number

    def read(self) -> Answer:
        """Means since the look before; empty at the first, and at the first after a failure."""
        older, self._newest = self._newest, None
        newer = self._look(older)
        self._newest = newer
        if older is None:
            return ()
        self._request.sample1, self._request.sample2 = older, newer
        self._calls.ask("nvmlGpmMetricsGet", self._request)
        return tuple(self._value(position, factor) for position, (_, factor) in enumerate(METRICS.values()))

    def close(self) -> None:
        """Give the memory of both looks back."""
        looks, self._looks, self._newest = self._looks, [], None
        for look in looks:
            try:
                self._calls.ask("nvmlGpmSampleFree", look)
            except NvmlError:
                return  # the driver is gone, and its memory with it

    def _look(self, in_use: Any) -> Any:
        free = next((look for look in self._looks if look is not in_use), None)
        if free is None or len(self._looks) < 2:
            free = self._calls.ask("nvmlGpmSampleAlloc")
            self._looks.append(free)
        if self._slice is None:
            self._calls.ask("nvmlGpmSampleGet", self._device.handle, free)
        else:
            self._calls.ask("nvmlGpmMigSampleGet", self._device.parent, self._slice, free)
        return free

    def _value(self, position: int, factor: float) -> float | None:
        metric = self._request.metrics[position]
        value = float(metric.value)
        return value * factor if metric.nvmlReturn == 0 and math.isfinite(value) and value >= 0 else None


assert tuple(METRICS) == VALUES["activity"]
