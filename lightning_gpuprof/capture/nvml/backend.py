"""What the sampler asks of NVML, and the few kinds of errors that come instead of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from lightning_gpuprof.errors import GpuProfError
from lightning_gpuprof.model.clock_events import MASK

Query = Literal[
    "utilization",
    "memory",
    "power",
    "energy",
    "temperature",
    "sm_clock",
    "memory_clock",
    "clock_events",
    "activity",
    "power_limit",
    "performance_state",
    "pcie_link",
    "fan",
    "processes",
    "pcie_throughput",
    "ecc_errors",
    "memory_repairs",
    "nvlink_errors",
]
"""One question to the driver."""

VALUES: Mapping[Query, tuple[str, ...]] = {
    "utilization": ("utilization_ratio", "memory_utilization_ratio"),
    "memory": ("memory_used_bytes", "memory_free_bytes"),
    "power": ("power_w",),
    "energy": ("energy_j",),
    "temperature": ("temperature_c",),
    "sm_clock": ("sm_clock_mhz",),
    "memory_clock": ("memory_clock_mhz",),
    "clock_events": (MASK,),
    "activity": (
        "sm_active_ratio",
        "sm_occupancy_ratio",
        "tensor_active_ratio",
        "tensor_hmma_active_ratio",
        "dram_active_ratio",
        "pcie_tx_bytes_per_s",
        "pcie_rx_bytes_per_s",
        "nvlink_tx_bytes_per_s",
        "nvlink_rx_bytes_per_s",
    ),
    "power_limit": ("power_limit_w",),
    "performance_state": ("performance_state",),
    "pcie_link": ("pcie_generation", "pcie_width"),
    "fan": ("fan_ratio",),
    "processes": (
        "compute_processes_count",
        "graphics_processes_count",
        "foreign_processes_count",
        "memory_own_bytes",
        "memory_others_bytes",
    ),
    "pcie_throughput": ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s"),
    "ecc_errors": ("ecc_corrected_count", "ecc_uncorrected_count"),
    "memory_repairs": ("remapped_rows_count", "retired_pages_count", "memory_repair_pending_count"),
    "nvlink_errors": ("nvlink_replay_count", "nvlink_recovery_count", "nvlink_crc_count"),
}
"""Names of the values that each query answers, in the order of the answer; queries are asked in this order."""

LABELS: Mapping[Query, str] = {query: query.replace("_", " ") for query in VALUES} | {
    "sm_clock": "SM clock",
    "clock_events": "what limits the clocks",
    "activity": "activity of SMs, tensor cores and DRAM by GPM",
    "pcie_link": "PCIe link",
    "pcie_throughput": "PCIe throughput",
    "ecc_errors": "ECC errors",
    "memory_repairs": "remapped rows",
    "nvlink_errors": "NVLink errors",
}
"""What people call them."""

ERROR_COUNTERS: frozenset[Query] = frozenset({"ecc_errors", "memory_repairs", "nvlink_errors"})
"""Asked at the start, once a minute and at the end."""

OFTEN_ABSENT: frozenset[Query] = ERROR_COUNTERS | {"fan"}
"""Many kinds of GPU have none, which is nothing to report."""

SLOW: frozenset[Query] = frozenset(
    {"power_limit", "performance_state", "pcie_link", "fan", "processes", "pcie_throughput"}
)
"""Asked in every tenth sample: they change rarely, or asking takes long (PCIe throughput: 20 ms each way)."""


class NvmlError(GpuProfError):
    """NVML gave an error instead of an answer; the text is the driver's reason. It may be gone at the next query."""


class UnsupportedError(NvmlError):
    """This GPU, driver or user will never get an answer to this query."""


class GpuLostError(NvmlError):
    """The GPU has fallen off the bus or needs a reset; others may still answer."""


class DriverGoneError(NvmlError):
    """No query to any GPU can be answered: no library, no driver, or another version than the library's."""


class NvmlDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU, or a MIG device on one, as NVML lists it."""

    index: int
    """In NVML's order, which is that of the PCI bus."""
    uuid: str
    """With its prefix, ``GPU-`` or ``MIG-``."""
    name: str
    handle: object
    """The backend's own; opaque here."""
    parent: object = None
    """Of a MIG device: the handle of its GPU."""
    instance: tuple[int, int] | None = None
    """Of a MIG device: the ids of its GPU instance and of its compute instance; None if the driver does not say."""
    mig_mode: bool = False
    """The GPU is partitioned: processes use its MIG devices instead of it."""
    mig_devices: tuple[NvmlDevice, ...] = ()


Answer = tuple[float | None, ...]
"""The values of :data:`VALUES` for a query; empty if there is none yet because the query needs two looks."""
