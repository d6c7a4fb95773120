"""What the kernels of a trace are, how far they fill their device, and what could be saved on them."""

from typing import Literal

import msgspec

from lightning_gpuprof.model.phases import Phase

KernelClass = Literal[
    "gemm",
    "convolution",
    "attention",
    "norm/reduction",
    "elementwise",
    "copy",
    "optimizer",
    "communication",
    "embedding",
    "triton",
    "other",
]
"""What a kernel does, by its name."""

KernelDtype = Literal["fp64", "tf32", "fp32", "bf16", "fp16", "fp8", "int8"]
"""What a kernel computes with."""

TensorCores = Literal["yes", "no", "unknown"]
"""Whether the name of a kernel proves that it ran on tensor cores (AMD: matrix cores)."""

SavingKind = Literal["idle multiprocessors", "no tensor cores", "launch gap"]
"""What an estimate of a saving is made from, see :class:`SavingRow`."""

NoSaving = Literal[
    "communication",
    "fills the device",
    "geometry not known",
    "peak ratio not known",
    "launch not in the trace",
    "the device did not wait",
]
"""Why no saving is estimated for a kernel, see :data:`NO_SAVING_TERMS`."""

NO_SAVING_TERMS: dict[NoSaving, str] = {
    "communication": "its time is that of the slowest rank and of the link",
    "fills the device": "it has a block for every multiprocessor, and may use tensor cores; a trace does not show more",
    "geometry not known": "the trace does not show with how many blocks it was launched, or on which device",
    "peak ratio not known": "it does not use tensor cores, but for its input type or this device it is not "
    "known how much faster they are",
    "launch not in the trace": "it is shorter than the limit for small kernels and was launched before the window, or "
    "its launch was lost",
    "the device did not wait": "it is small, but it was queued before the device had finished what came before, or "
    "it is the first in the trace",
}
"""One sentence for each reason."""


class ClassRow(msgspec.Struct, kw_only=True, frozen=True):
    """Kernels of one class, microseconds."""

    kernel_class: str
    count: int
    total_us: float
    share_ratio: float | None
    """Of the time of all kernels."""
    average_us: float
    est_sm_efficiency_ratio: float | None
    est_occupancy_ratio: float | None


class DtypeRow(msgspec.Struct, kw_only=True, frozen=True):
    """Kernels by the type of their inputs, times in microseconds."""

    dtype: str | None
    """None: the name of the kernel does not say."""
    count: int
    total_us: float
    share_ratio: float | None
    matrix_us: float
    """Of those that multiply matrices."""
    matrix_share_ratio: float | None
    """Of the time of all kernels that multiply matrices."""


class KernelTime(msgspec.Struct, kw_only=True, frozen=True):
    """Time of a kernel."""

    name: str
    count: int
    total_us: float


class TensorCoreUse(msgspec.Struct, kw_only=True, frozen=True):
    """Tensor cores (AMD: matrix cores) in the time of kernels that multiply matrices, as far as their names say.

    ``yes_us + no_us + unknown_us = matrix_us``. Matrices are multiplied by gemm, convolution and attention kernels
    without their helpers (layout changes, sums after a split), and by Inductor's templates.
    """

    available: bool | None
    """Whether the device has them; None if the trace does not say."""
    matrix_us: float
    yes_us: float
    no_us: float
    unknown_us: float
    """Never counted as no: all kernels of Triton, and names without a hint."""
    unsuited_us: float
    """Of ``no_us``: matrix-vector products and convolutions of single channels, which memory bounds."""
    largest_no: tuple[KernelTime, ...]
    """Without the unsuited ones."""


class KernelFillFacts(msgspec.Struct, kw_only=True, frozen=True):
    """How far kernels can fill the device: estimates from launch geometry alone, not measurements.

    Averages over kernels are weighted by their time, over those kernels for which the number is known.
    """

    est_sm_efficiency_ratio: float | None
    """Average of min(1, blocks of the grid / multiprocessors) while a kernel runs."""
    est_sm_efficiency_known_ratio: float | None
    est_sm_efficiency_of_window_ratio: float | None
    """The same over the devices' windows, with idle time as 0. None if the geometry of over 5 % of the kernel time is
    not known."""
    est_occupancy_ratio: float | None
    """Average of Kineto's "est. achieved occupancy": threads that a multiprocessor holds over the most that it can
    hold. Where Kineto wrote 0, computed by the rules of NVIDIA's occupancy calculator."""
    est_occupancy_known_ratio: float | None
    est_occupancy_computed_ratio: float | None
    waves_known_ratio: float | None
    tail_us: float | None
    """Time of kernels of one wave or more, times the share of their last wave that stays empty."""


class MeasuredKernel(msgspec.Struct, kw_only=True, frozen=True):
    """What Nsight Compute measured of a kernel: averages over launches, each of which it repeated alone."""

    name: str
    launches: int
    duration_us: float | None
    """Longer than in the training: at a fixed clock and with caches flushed."""
    occupancy_ratio: float | None
    """Warps that were resident over the most that there can be, while an SM was active."""
    l1_hit_ratio: float | None
    l2_hit_ratio: float | None
    dram_bytes: float | None
    """Read and written, of one launch."""
    compute_throughput_ratio: float | None = None
    memory_throughput_ratio: float | None = None

    @property
    def dram_bytes_per_s(self) -> float | None:
        """None if one of the two was not collected."""
        return self.dram_bytes / self.duration_us * 1e6 if self.dram_bytes is not None and self.duration_us else None


class KernelRow(msgspec.Struct, kw_only=True, frozen=True):
    """All kernels of one name in one class, times in microseconds."""

    name: str
    kernel_class: str
    dtype: str | None
    tensor_cores: TensorCores | None
    """None: it multiplies no matrices."""
    count: int
    total_us: float
    share_ratio: float | None
    """Of the time of all kernels."""
    average_us: float
    min_us: float
    max_us: float
    est_sm_efficiency_ratio: float | None
    est_occupancy_ratio: float | None
    waves: float | None
    """Blocks over what the device holds at a time, weighted by time."""
    tail_ratio: float | None
    """Share of the time of kernels of one wave or more that goes to the empty part of the last wave."""
    measured: MeasuredKernel | None = None
    """By Nsight Compute, where its output was given."""

    @property
    def throughput_ratio(self) -> float | None:
        """The higher of compute and memory throughput, over their peaks; None: not both were measured."""
        found = self.measured
        if found is None or found.compute_throughput_ratio is None or found.memory_throughput_ratio is None:
            return None
        return max(found.compute_throughput_ratio, found.memory_throughput_ratio)


class ActivityRow(msgspec.Struct, kw_only=True, frozen=True):
    """Kernels that are alike in name, operator, device, stream, grid and block; times in microseconds."""

    name: str
    operator: str | None
    """The innermost operator around the launch."""
    device: str
    stream: int | None
    grid: tuple[int, int, int] | None
    """In blocks, also where the trace has work-items (``hipExtModuleLaunchKernel``)."""
    block: tuple[int, int, int] | None
    registers_per_thread: int | None = None
    shared_memory_bytes: int | None = None
    """Of a block."""
    module: str | None = None
    """The innermost module around all their launches; None if there are several, or none is known. Likewise below."""
    phase: Phase | None = None
    kernel_class: str
    dtype: str | None
    count: int
    total_us: float
    average_us: float
    min_us: float
    max_us: float
    est_sm_efficiency_ratio: float | None
    est_occupancy_ratio: float | None
    waves: float | None
    tail_ratio: float | None


class DurationBucket(msgspec.Struct, kw_only=True, frozen=True):
    """Kernels from one duration (included) to another (not included); the last bucket has no upper end."""

    from_us: float
    to_us: float | None
    count: int
    count_ratio: float | None
    total_us: float
    total_ratio: float | None


class SmallKernels(msgspec.Struct, kw_only=True, frozen=True):
    """Kernels shorter than ``limit_us``, where launching costs as much as running; times in microseconds."""

    limit_us: float
    count: int
    count_ratio: float | None
    """Of all kernels."""
    total_us: float
    total_ratio: float | None
    """Of the time of all kernels."""
    launched_count: int
    """Those whose launch is in the trace; the numbers below are about them."""
    launch_call_us: float
    """Host time of the calls that launched them, each call once (inflated by profiling)."""
    launch_call_median_us: float | None
    """Of the calls, one per kernel."""
    longer_launch_count: int
    """Kernels that ran shorter than their share of the call that launched them."""
    launch_gap_us: float
    """Idle time of the device directly before them, from the start of the operator that launched them. Without Python
    between operators, and gaps above 1 ms, which are no launches."""


class SavingRow(msgspec.Struct, kw_only=True, frozen=True):
    """An upper bound of what could be saved on kernels of one name.

    - ``launch gap`` (kernels below the limit for small kernels): idle time of the device directly before them while the
      host launched them; fusing them into a neighbour saves at most that, not their own time.
    - ``no tensor cores`` (longer ones): time x (1 - 1/k), k = how much faster the device's tensor cores are at their
      peak, for kernels whose name proves that they multiply fp32 matrices on the CUDA cores.
    - ``idle multiprocessors`` (longer ones): time x (1 - est. SM efficiency).

    No kernel is in two rows; the larger estimate counts. Kernels that overlap others may save less.
    """

    name: str
    kernel_class: str
    dtype: str | None
    kind: SavingKind
    count: int
    total_us: float
    saving_us: float
    est_sm_efficiency_ratio: float | None = None
    """For ``idle multiprocessors``."""
    peak_ratio: float | None = None
    """For ``no tensor cores``: the k of the formula."""
    faster_dtype: str | None = None
    """For ``no tensor cores``: the type of inputs that reaches it."""


class NoSavingRow(msgspec.Struct, kw_only=True, frozen=True):
    """Kernels for which no saving is estimated, and why; times in microseconds."""

    why: NoSaving
    count: int
    total_us: float
    share_ratio: float | None
    """Of the time of all kernels."""


class KernelFacts(msgspec.Struct, kw_only=True, frozen=True):
    """Everything about the kernels of a trace; largest total first."""

    count: int
    total_us: float
    """Sum of durations; above the busy time where streams overlap."""
    device_window_us: float | None
    """First start to last end of device work, summed over devices."""
    classes: tuple[ClassRow, ...]
    dtypes: tuple[DtypeRow, ...]
    tensor_cores: TensorCoreUse | None
    """None if no kernel is known to multiply matrices."""
    fill: KernelFillFacts
    kernels: tuple[KernelRow, ...]
    activity: tuple[ActivityRow, ...]
    activity_rows: int
    durations: tuple[DurationBucket, ...]
    small: SmallKernels
    savings: tuple[SavingRow, ...]
    no_savings: tuple[NoSavingRow, ...]
    """Kernels that are in no row of ``savings``."""
