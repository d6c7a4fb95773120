"""The time of fp32 products that tensor cores could do, and what that would save."""

from collections.abc import Callable, Collection, Mapping, Sequence

from lightning_gpuprof.model.device_kernels import DeviceWindow, short_name
from lightning_gpuprof.model.matrix_kernels import OffTensorCores, ProductKind
from lightning_gpuprof.model.measured_time import Measured
from lightning_gpuprof.model.trace.kernels import KernelRow, SavingRow

REACHED_RATIO = 0.5
"""Part of the peak ratio that is surely reached, for the lower bound of gains. Heuristic: large products reach half of
the tensor cores' peak and more, while CUDA cores are near theirs."""

UNKNOWN_RATIO = 2.0
"""How much faster tensor cores are where the device is in no table: the least of all devices that have them (NVIDIA
GA102 white paper: half precision with fp32 sums, 71 against 35.6 TFLOPS)."""

_CLASSES: Mapping[ProductKind, tuple[str, ...]] = {
    "all": ("gemm", "convolution", "attention"),
    "matrix products": ("gemm", "attention"),
    "convolutions": ("convolution",),
}


def off_tensor_cores(windows: Sequence[DeviceWindow]) -> dict[ProductKind, OffTensorCores]:
    """fp32 products whose kernels' names prove that they ran on CUDA cores.

    Products of a matrix and a vector and convolutions of single channels are left out: memory bounds them. What is
    saved is time x (1 - 1/k), k = peak of the tensor cores over that of the CUDA cores, and no more than down to the
    roofline where the shapes of the products are known.

    Returns:
        By kind; ``all`` includes kernels that are not among a report's longest. A kind is left out if there are no such
        products, or if the device has no tensor cores, as far as is known.

    Raises:
        MissingSignal: A time is no possible number.
    """
    if not all(w.kernels.tensor_cores is not None and w.kernels.tensor_cores.available for w in windows):
        return {}
    found = {kind: _off_tensor_cores(windows, kind) for kind in _CLASSES}
    return {kind: one for kind, one in found.items() if one is not None}


def _off_tensor_cores(windows: Sequence[DeviceWindow], kind: ProductKind) -> OffTensorCores | None:
    classes = _CLASSES[kind]
    of_window = _fp32_off_us if kind == "all" else _rows_of(classes)
    time = Measured.over([window.per_step_ms(of_window(window)) for window in windows])
    if time.ms <= 0:
        return None
    saving = _fastest(windows)
    ratio = (saving.peak_ratio or UNKNOWN_RATIO) if saving is not None else UNKNOWN_RATIO
    bound = min(_roofline_bound(window, classes, ratio) for window in windows)
    most = min(1.0 - 1.0 / ratio, bound)
    least = min(max(0.0, 1.0 - 1.0 / (REACHED_RATIO * ratio)), bound)
    named = [row for row in windows[0].kernels.kernels if _is_off(row, classes)]
    return OffTensorCores(
        time=time,
        saved=Measured(ms=time.ms * most, lower_ms=time.lower_ms * least),
        peak_ratio=ratio,
        faster_dtype=saving.faster_dtype if saving is not None else None,
        names=tuple(dict.fromkeys(short_name(row.name) for row in named))[:3],
    )


def _fp32_off_us(window: DeviceWindow) -> float:
    use = window.kernels.tensor_cores
    fp32_us = sum(row.matrix_us for row in window.kernels.dtypes if row.dtype == "fp32")
    return 0.0 if use is None else max(0.0, min(use.no_us, fp32_us) - use.unsuited_us)


def _rows_of(classes: Collection[str]) -> Callable[[DeviceWindow], float]:
    def of_window(window: DeviceWindow) -> float:
        rows_us = sum(row.total_us for row in window.kernels.kernels if _is_off(row, classes))
        return min(rows_us, _fp32_off_us(window))

    return of_window


def _is_off(row: KernelRow, classes: Collection[str]) -> bool:
    return row.tensor_cores == "no" and row.dtype == "fp32" and row.kernel_class in classes


def _fastest(windows: Sequence[DeviceWindow]) -> SavingRow | None:
    rows = (row for window in windows for row in window.kernels.savings if row.kind == "no tensor cores")
    return next((row for row in rows if row.peak_ratio), None)


def _roofline_bound(window: DeviceWindow, classes: Collection[str], ratio: float) -> float:
    """Largest share of the products' time that their FLOPs and bytes let tensor cores save; 1 if neither is known."""
    roofline = window.analysis.roofline
    if roofline is None or not roofline.bytes_per_s:
        return 1.0
    fp32 = next((ceiling.flops_per_s for ceiling in roofline.ceilings if ceiling.dtype == "fp32"), None)
    device_s = least_s = 0.0
    for row in roofline.rows:
        if row.dtype != "fp32" or row.kind not in classes or row.algorithm or row.faster_than:
            continue
        if not row.bytes_per_call or not fp32:
            continue
        at_compute = row.flops_per_call / (fp32 * ratio)
        device_s += row.device_us / 1e6
        least_s += row.calls * max(at_compute, row.bytes_per_call / roofline.bytes_per_s)
    return max(0.0, 1.0 - least_s / device_s) if device_s > 0 else 1.0
