"""What a report says of one GPU beside the distributions of its samples: facts, clock limits, energy, errors."""

from collections.abc import Mapping

import msgspec

from lightning_gpuprof.model.numbers import possible

ERROR_COUNTERS: tuple[str, ...] = (
    "ecc_corrected_count",
    "ecc_uncorrected_count",
    "remapped_rows_count",
    "retired_pages_count",
    "memory_repair_pending_count",
    "nvlink_replay_count",
    "nvlink_recovery_count",
    "nvlink_crc_count",
)
"""Values of samples that only count up, from before the run on: ECC since the driver was loaded, the rest for ever."""

XID = "xid"
"""Value of a sample that holds nothing else: the code of a critical error that the driver reported then."""

_XIDS: Mapping[int, str] = {
    13: "graphics engine exception",
    31: "GPU memory page fault",
    43: "GPU stopped processing",
    45: "cleanup after an earlier error",
    48: "double-bit ECC error",
    61: "internal microcontroller breakpoint",
    62: "internal microcontroller halt",
    63: "ECC page retirement or row remapping",
    64: "ECC page retirement or row remapping failed",
    69: "graphics engine class error",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high single-bit ECC error rate",
    94: "contained ECC error",
    95: "uncontained ECC error",
    119: "GSP timeout",
    120: "GSP error",
}
"""What the codes mean, as NVIDIA's documentation of Xid errors has it."""

PROGRAM_XIDS = frozenset({13, 31, 43, 45, 69})
"""Mostly errors of the program: NVIDIA's documentation has "user application" as their first cause."""


def xid_words(xid: float) -> str:
    """``Xid 79 (GPU has fallen off the bus)``."""
    meaning = _XIDS.get(int(xid))
    return f"Xid {int(xid)}{f' ({meaning})' if meaning else ''}"


MIN_SAMPLES = 20
"""Samples of a GPU that a statement needs. Heuristic: the driver's utilization is a mean of 1/6 to 1 s."""

LOWERED_RATIO = 0.98
"""Power limit over its default below which somebody has lowered it. Heuristic."""


PCIE_LANE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""Of one lane each way, by generation. PCI-SIG."""


def pcie_bytes_per_s(generation: float | None, lanes: float | None) -> float | None:
    """What a PCIe link carries, each way.

    Args:
        generation: Of the link.
        lanes: How wide it is.

    Returns:
        None where one of the two is not known.
    """
    if not generation or not lanes or not possible(generation) or not possible(lanes):
        return None
    lane = PCIE_LANE_BYTES_PER_S.get(int(generation))
    return None if lane is None else lane * lanes


class DeviceFacts(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What does not change while a run goes on; None: the driver does not report it."""

    pci_bus_id: str | None = None
    numa_node: int | None = None
    """Of its PCI slot."""
    compute_capability: str | None = None
    driver_version: str | None = None
    cuda_driver_version: str | None = None
    memory_total_bytes: float | None = None
    sm_clock_max_mhz: float | None = None
    memory_clock_max_mhz: float | None = None
    memory_bus_bits: int | None = None
    cuda_cores_count: int | None = None
    multiprocessors_count: int | None = None
    """Streaming multiprocessors (SMs), as torch reports them, like the rest up to the L2 cache."""
    threads_per_multiprocessor_count: int | None = None
    """Most that can be resident at a time."""
    threads_per_block_count: int | None = None
    threads_per_warp_count: int | None = None
    registers_per_multiprocessor_count: int | None = None
    """Of 32 bits."""
    shared_memory_per_multiprocessor_bytes: int | None = None
    shared_memory_per_block_bytes: int | None = None
    """Most that a kernel can ask for."""
    l2_cache_bytes: int | None = None
    fans_count: int | None = None
    """0: cooled by its chassis."""
    pcie_generation_max: float | None = None
    """What GPU and slot can do together."""
    pcie_width_max: float | None = None
    """Likewise, in lanes."""
    power_limit_default_w: float | None = None
    """As the board came."""
    power_limit_min_w: float | None = None
    power_limit_max_w: float | None = None
    ecc: bool | None = None
    """Whether errors of the memory are corrected."""
    mig: bool | None = None
    """A slice of a partitioned GPU, or one that is partitioned."""
    nvlink_active_count: int | None = None
    nvlink_version: int | None = None
    nvlink_each_bytes_per_s: float | None = None
    """One link, each way."""
    persistence_mode: bool | None = None
    """Whether the driver stays loaded without users."""
    compute_mode: str | None = None
    gpm: str | None = None
    """``supported``, or the driver's reason why there are no performance counters."""
    utilization_refresh_s: float | None = None
    """How often the driver renews its utilization."""

    @property
    def pcie_bytes_per_s(self) -> float | None:
        """What the PCIe link carries at most, each way; None where that is not known."""
        return pcie_bytes_per_s(self.pcie_generation_max, self.pcie_width_max)

    @property
    def nvlink_bytes_per_s(self) -> float | None:
        """What all active NVLinks carry together, each way; None where that is not known."""
        count, each = self.nvlink_active_count, self.nvlink_each_bytes_per_s
        return count * each if count and each and possible(each) else None

    @property
    def memory_bytes_per_s(self) -> float | None:
        """What the memory moves at most: two transfers a clock over the bus; None where that is not known."""
        bits, clock = self.memory_bus_bits, self.memory_clock_max_mhz
        return 2 * clock * 1e6 * bits / 8 if bits and clock and possible(clock) else None


class ThrottleShare(msgspec.Struct, kw_only=True, frozen=True):
    """How often one reason held the clocks down."""

    reason: str
    """A name of :data:`lightning_gpuprof.model.clock_events.REASONS`."""
    ratio: float
    """Of all samples during training, 0 to 1."""
    busy_ratio: float | None
    """Of those in which the GPU was busy; None if it never was."""
    sm_clock_median_mhz: float | None = None
    """Of the busy samples in which it held."""


class DeviceBusy(msgspec.Struct, kw_only=True, frozen=True):
    """The samples in which the GPU had work: utilization of 10 % at least, or else clocks that were not idle."""

    samples: int
    """With work."""
    sm_clock_median_mhz: float | None = None
    """Of these samples."""
    power_median_w: float | None = None
    """Of these samples."""
    sm_clock_free_median_mhz: float | None = None
    """Of those in which nothing held the clocks down."""


class DeviceEnergy(msgspec.Struct, kw_only=True, frozen=True):
    """Energy that the board took during training, from its own counter."""

    total_j: float
    per_step_j: float
    mean_w: float
    """Over the time of training."""
    covered_ratio: float
    """Share of the training time between two readings of the counter; the rest is filled in at the mean power."""


class ErrorCounter(msgspec.Struct, kw_only=True, frozen=True):
    """A counter of errors at its first and last reading in the run."""

    name: str
    """A name of :data:`ERROR_COUNTERS`."""
    first: float
    last: float
