"""How far the operators of a window are from what the device can do at most, and the window's MFU, as plain data."""

from typing import Literal

import msgspec

Resource = Literal["compute", "memory"]


class Ceiling(msgspec.Struct, kw_only=True, frozen=True):
    """The most operations per second that the device does in one type of operands."""

    dtype: str
    """``fp16``, ``bf16``, ``tf32`` …"""
    flops_per_s: float
    """Dense; a multiply-add counts 2."""
    measured: bool
    """Given by a measurement; otherwise from the data sheet."""


class RooflineRow(msgspec.Struct, kw_only=True, frozen=True):
    """All calls of one operator with inputs of the same shapes and types that launched device work.

    Copies between host and device are no such work. Only calls whose work is known count, and of operators that are
    inside one another only the outermost. Work is a lower bound: a multiply-add counts 2, each input is read and each
    output written once.
    """

    operator: str
    input_shape: str
    dtype: str | None
    """What is computed in; ``tf32`` if the kernel's name says so. None for types without a ceiling of their own."""
    kind: str
    """Class of the operator's kernels: ``gemm``, ``convolution``, ``attention``, ``elementwise`` …"""
    calls: int
    flops_per_call: float
    bytes_per_call: float | None
    flops_per_byte: float | None
    """Arithmetic intensity; an upper bound as far as more is moved than must be."""
    device_us: float
    """Sum of the durations of all kernels, memsets and copies on the device that were launched inside."""
    device_average_us: float
    flops_per_s: float | None
    """None if the work took less than the clock of the trace resolves."""
    bytes_per_s: float | None
    ceiling_flops_per_s: float | None
    """The roofline at this intensity: min(peak of the dtype, intensity x bandwidth). None if a part is not known."""
    ceiling_ratio: float | None
    """Least time that the device needs for the work over the time it took: the share of the roofline that is reached.
    None if a part is not known, the row is faster than possible, or its algorithm does less than is counted."""
    bound: Resource | None
    """What limits the work at best: the larger of FLOPs over peak and bytes over bandwidth. Work that multiplies no
    matrices is held against the bandwidth alone."""
    faster_than: Resource | None = None
    """The work would need more than the device can do, so it is not what the device did. ``compute``: the FLOPs, or
    the type they are computed in, are wrong. ``memory``: the bytes are wrong, or came from a cache."""
    algorithm: str | None = None
    """``Winograd`` or ``FFT`` if kernels say that they convolve so: they do fewer FLOPs than the formula counts, so the
    rate may be above the peak and is held against no ceiling."""


class Rate(msgspec.Struct, kw_only=True, frozen=True):
    """FLOPs of matrix products, convolutions and attention over some time, as the model asks for them."""

    seconds: float
    flops: float
    flops_per_s: float
    mfu_ratio: float | None
    """sum(FLOPs of a type / dense data-sheet peak of the type) / time, over the devices that computed. None if the
    peak of a type is not known, or the FLOPs would need more than the time."""
    measured_ratio: float | None
    """The same against the measured ceilings; None without a measurement of each type."""


class Roofline(msgspec.Struct, kw_only=True, frozen=True):
    """The roofline of a window and its model FLOP/s utilization."""

    reason: str = ""
    """Why there are no rows; empty if there are."""
    device: str | None = None
    """Name of the device as the trace gives it."""
    devices: int = 0
    """Devices of the process that ran rows of the table; peaks of the rates count so often."""
    peak_source: str | None = None
    """The data sheet that peaks are from; None if the device is in no table."""
    ceilings: tuple[Ceiling, ...] = ()
    """Of the types that rows are computed in."""
    bytes_per_s: float | None = None
    """The memory's bandwidth that rows are held against."""
    bytes_measured: bool = False
    rows: tuple[RooflineRow, ...] = ()
    """By device time, largest first."""
    rows_left_out: int = 0
    flops_per_step: float | None = None
    """Matrix FLOPs of operators that began in a step, over the steps; None without steps."""
    flops_by_dtype: dict[str, float] = {}
    """Matrix FLOPs of the window; the key is empty where the type is not known."""
    steps: Rate | None = None
    """Over the time of the steps, which profiling inflates: an untraced step has a higher rate. None without steps."""
    busy: Rate | None = None
    """FLOPs of the whole window over the time that the devices were busy with work launched in it: what the kernels
    reach."""
    matrix_us: float = 0.0
    """Device time of kernels of matrix products, convolutions and attention that were launched in the window."""
    coverage_ratio: float | None = None
    """The share of it whose FLOPs are known: below 1 the rates are about that much too low. None without such
    kernels."""
    faster_flops_ratio: float | None = None
    """Share of the matrix FLOPs in rows that are faster than compute allows: FLOPs that cannot be right. None without
    matrix FLOPs."""
    reduced_flops_ratio: float | None = None
    """Share of the matrix FLOPs that were counted for Winograd or FFT convolutions, which do less. MFU counts what the
    model asks for, so it counts them in full."""


class MeasuredCeilings(msgspec.Struct, kw_only=True, frozen=True):
    """Rates that large operations reach on a device; the data sheet's are above them."""

    device: str
    """Name of the product."""
    flops_per_s: dict[str, float]
    """Of a product of two square matrices, by type: ``fp32``, ``tf32``, ``bf16``, ``fp16``; a multiply-add is 2."""
    bytes_per_s: float
    """Of a copy on the device: bytes read and bytes written."""
