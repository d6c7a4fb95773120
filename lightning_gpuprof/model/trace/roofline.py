"""How far the operators of a window are from what the device can do at most, and the window's MFU, as plain data."""

from typing import Literal

import msgspec

Resource = Literal["compute", "memory"]

LATENCY_BELOW_RATIO = 0.60
"""Below this share of both peaks Nsight Compute expects latency to be the limit (its rule for the Speed of Light
section, ``SOLBottleneck``)."""
SHORT_CALL_US = 10.0
"""About the time of a launch, 5 to 10 µs as for small kernels: in a shorter call the fixed cost weighs most."""


class Ceiling(msgspec.Struct, kw_only=True, frozen=True):
    """The most operations per second that the device does in one type of operands."""

    dtype: str
    """``fp16``, ``bf16``, ``tf32`` …"""
    flops_per_s: float
    """Dense; a multiply-add counts 2."""
    measured: bool
    """Not from the data sheet."""


class RooflineRow(msgspec.Struct, kw_only=True, frozen=True):
    """All calls of one operator with inputs of the same shapes and types that launched known device work.

    Without copies between host and device; of nested operators only the outermost. Work is a lower bound: a
    multiply-add counts 2, each input is read and each output written once.
    """

    operator: str
    input_shape: str
    dtype: str | None
    """What is computed in; ``tf32`` by the kernel's name. None for types without a ceiling."""
    kind: str
    """Class of the operator's kernels: ``gemm``, ``convolution``, ``attention``, ``elementwise`` …"""
    calls: int
    flops_per_call: float
    bytes_per_call: float | None
    flops_per_byte: float | None
    """Arithmetic intensity, at most."""
    measured_bytes_per_call: float | None = None
    """Of DRAM, by Nsight Compute; None unless of all kernels. Rates and bound then use it."""
    measured_flops_per_byte: float | None = None
    device_us: float
    """Of all work on the device that was launched inside."""
    device_average_us: float
    flops_per_s: float | None
    """None if the work took less than the clock of the trace resolves."""
    bytes_per_s: float | None
    ceiling_flops_per_s: float | None
    """min(peak of the dtype, intensity x bandwidth). None if a part is not known."""
    ceiling_ratio: float | None
    """The share of the roofline that is reached. None if a part is not known, the row is faster than possible, or its
    algorithm does less than is counted."""
    bound: Resource | None
    """The larger of FLOPs over peak and bytes over bandwidth. Without matrix products always ``memory``."""
    faster_than: Resource | None = None
    """The work needs more than the device can do. ``compute``: the FLOPs or their type are wrong. ``memory``: the bytes
    are wrong, or came from a cache."""
    algorithm: str | None = None
    """``Winograd`` or ``FFT`` by the kernels' names: they do fewer FLOPs than the formula counts, so no ceiling
    applies."""

    @property
    def limit(self) -> Resource | Literal["latency"] | None:
        """:attr:`bound`, or ``latency`` below :data:`LATENCY_BELOW_RATIO` of both ceilings, if that is certain.

        Bytes by shapes are a lower bound and prove no latency: only measured ones do, or a call shorter than
        :data:`SHORT_CALL_US`. None: a ceiling is not known.
        """
        if self.ceiling_ratio is None or self.ceiling_ratio >= LATENCY_BELOW_RATIO:
            return self.bound
        is_known = self.measured_bytes_per_call is not None or self.device_average_us < SHORT_CALL_US
        return "latency" if is_known else self.bound

    @property
    def intensity(self) -> float | None:
        """FLOPs per byte: as measured, else by the shapes of inputs. None: neither is known."""
        return self.measured_flops_per_byte or self.flops_per_byte


class Rate(msgspec.Struct, kw_only=True, frozen=True):
    """FLOPs of matrix products, convolutions and attention over some time, as the model asks for them."""

    seconds: float
    flops: float
    flops_per_s: float
    mfu_ratio: float | None
    """sum(FLOPs of a type / dense data-sheet peak of the type) / time. None if a peak is not known, or the FLOPs would
    need more than the time."""
    measured_ratio: float | None
    """The same against the measured ceilings; None without a measurement of each type."""


class Roofline(msgspec.Struct, kw_only=True, frozen=True):
    """The roofline of a window and its model FLOP/s utilization."""

    reason: str = ""
    """Why there are no rows."""
    device: str | None = None
    devices: int = 0
    """Devices that ran rows of the table."""
    peak_source: str | None = None
    """The data sheet that peaks are from; None if the device is in no table."""
    ceilings: tuple[Ceiling, ...] = ()
    bytes_per_s: float | None = None
    """The memory's bandwidth."""
    bytes_measured: bool = False
    rows: tuple[RooflineRow, ...] = ()
    """By device time, largest first."""
    rows_left_out: int = 0
    flops_per_step: float | None = None
    """Matrix FLOPs of operators that began in a step, over the steps; None without steps."""
    flops_by_dtype: dict[str, float] = {}
    """Matrix FLOPs of the window; an empty key: type not known."""
    steps: Rate | None = None
    """Over the time of the steps, which tracing inflates."""
    busy: Rate | None = None
    """Over the busy time of the devices: what the kernels reach."""
    matrix_us: float = 0.0
    """Device time of matrix products, convolutions and attention."""
    coverage_ratio: float | None = None
    """The share of it whose FLOPs are known; below 1 the rates are that much too low."""
    faster_flops_ratio: float | None = None
    """Share of the matrix FLOPs in rows that are faster than compute allows, which cannot be right."""
    reduced_flops_ratio: float | None = None
    """Share of the matrix FLOPs of Winograd or FFT convolutions, which do less; MFU counts them in full."""


class MeasuredCeilings(msgspec.Struct, kw_only=True, frozen=True):
    """Rates that large operations reach on a device; the data sheet's are above them."""

    device: str
    """Name of the product."""
    flops_per_s: dict[str, float]
    """Of a product of two square matrices, by type: ``fp32``, ``tf32``, ``bf16``, ``fp16``; a multiply-add is 2."""
    bytes_per_s: float
    """Of a copy on the device: bytes read and bytes written."""
