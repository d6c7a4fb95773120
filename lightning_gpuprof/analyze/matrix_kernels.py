"""Matrix products that tensor cores could do, or do slowly for their sizes, and what that costs."""

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from lightning_gpuprof.model.device_kernels import (
    DeviceWindow,
    MisalignedProduct,
    OffTensorCores,
    ProductKind,
    input_sizes,
    short_name,
)
from lightning_gpuprof.model.share import Measured
from lightning_gpuprof.model.trace.kernels import KernelRow, SavingRow
from lightning_gpuprof.model.trace.roofline import Roofline, RooflineRow

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

_MULTIPLES = {"fp16": 8, "bf16": 8, "tf32": 4, "fp8": 16, "int8": 16}
"""16 bytes of elements. NVIDIA, Matrix Multiplication Background, "Requirements to use Tensor Cores"."""

_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "addmm_", "linear"})


def off_tensor_cores(windows: Sequence[DeviceWindow]) -> dict[ProductKind, OffTensorCores]:
    """fp32 products whose kernels' names prove that they ran on CUDA cores.

    Products of a matrix and a vector and convolutions of single channels are left out: memory bounds them. What is
    saved is time x (1 - 1/k), k = peak of the tensor cores over that of the CUDA cores, and no more than down to the
    roofline where the shapes of the products are known.

    Returns:
        By kind; ``all`` includes kernels that are not among a report's longest. A kind is left out if there are no such
        products, or if the device has no tensor cores, as far as is known.

    Raises:
        MissingSignal: A time is not a valid number.
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


class _Product(msgspec.Struct, frozen=True, kw_only=True):
    row: RooflineRow
    sizes: tuple[int, int, int]
    """Rows, inner, columns."""
    multiple: int

    @property
    def batched(self) -> bool:
        return "bmm" in self.row.operator


def misaligned(roofline: Roofline) -> tuple[MisalignedProduct, ...]:
    """Products with columns that do not fit, and those of the same kind that share such a size."""
    products = _products(roofline)
    unfit_columns = {(one.batched, one.sizes[2]) for one in products if one.sizes[2] % one.multiple}
    unfit = []
    for one in products:
        shared = [s for s in reversed(one.sizes) if (one.batched, s) in unfit_columns and s % one.multiple]
        if shared:
            unfit.append((one, shared[0]))
    unfit_rows = {id(one.row) for one, _ in unfit}
    fit = [one for one in products if id(one.row) not in unfit_rows and not one.sizes[2] % one.multiple]
    return tuple(
        MisalignedProduct(row=one.row, size=size, multiple=one.multiple, peer_ratio=_peer_ratio(one, fit))
        for one, size in unfit
    )


def _products(roofline: Roofline) -> list[_Product]:
    found = []
    for row in roofline.rows:
        multiple = _MULTIPLES.get(row.dtype or "")
        matrices = [one for one in input_sizes(row.input_shape) if len(one) in (2, 3)][-2:]
        if multiple is None or row.operator.rpartition("::")[2] not in _PRODUCTS or len(matrices) != 2:
            continue
        if row.ceiling_ratio is not None and matrices[0][-1] == matrices[1][-2]:
            sizes = (matrices[0][-2], matrices[0][-1], matrices[1][-1])
            found.append(_Product(row=row, sizes=sizes, multiple=multiple))
    return found


def _peer_ratio(product: _Product, fit: list[_Product]) -> float | None:
    """The median of products of the same kind and dtype with a quarter to four times its FLOPs."""
    flops = max(product.row.flops_per_call, 1.0)
    peers = sorted(
        one.row.ceiling_ratio
        for one in fit
        if one.row.ceiling_ratio
        and one.row.dtype == product.row.dtype
        and one.batched == product.batched
        and 0.25 <= one.row.flops_per_call / flops <= 4.0
    )
    return peers[(len(peers) - 1) // 2] if peers else None
