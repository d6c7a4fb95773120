"""Windows flow in; the time of fp32 products that tensor cores could do, and what that would save, flow out."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from lightning_gpuprof.model.device_kernels import DeviceRun, DeviceWindow, Measured, short_name
from lightning_gpuprof.model.trace.kernels import KernelRow, SavingRow

LEAST_RATIO = 0.05
"""Share of the step in fp32 products off tensor cores from which rules speak. Heuristic."""

REACHED_RATIO = 0.5
"""Part of the peak ratio that is surely reached, for the lower bound of gains. Heuristic: large products reach half of
the tensor cores' peak and more, while CUDA cores are near theirs."""

UNKNOWN_RATIO = 2.0
"""How much faster tensor cores are where the device is in no table: the least of all devices that have them (NVIDIA
GA102 white paper: half precision with fp32 sums, 71 against 35.6 TFLOPS)."""

_KINDS = frozenset({"gemm", "convolution", "attention"})


@dataclass(frozen=True, kw_only=True)
class OffTensorCores:
    """Time of fp32 products on CUDA cores, per step."""

    time: Measured
    saved: Measured
    """``ms`` with the full ratio of the peaks, ``lower_ms`` with the part of it that is surely reached."""
    peak_ratio: float
    faster_dtype: str | None
    """None: the device is in no table of peaks."""
    names: tuple[str, ...]
    """The longest kernels, short."""


def off_tensor_cores(run: DeviceRun, classes: Collection[str] = _KINDS) -> OffTensorCores | None:
    """fp32 products whose kernels' names prove that they ran on CUDA cores.

    Products of a matrix and a vector and convolutions of single channels are left out: memory bounds them. What is
    saved is time x (1 - 1/k), k = peak of the tensor cores over that of the CUDA cores, and no more than down to the
    roofline where the shapes of the products are known.

    Args:
        run: The windows.
        classes: Kernel classes to look at; all of them include the kernels that are not among a report's longest.

    Returns:
        None if the device has no tensor cores, as far as is known, or there are no such products.
    """
    windows = [w for w in run.windows if w.kernels.tensor_cores is not None and w.kernels.tensor_cores.available]
    if not windows or len(windows) != len(run.windows):
        return None
    of_window = _fp32_off_us if frozenset(classes) >= _KINDS else _rows_of(classes)
    time = run.measure(lambda window: window.per_step_ms(of_window(window)))
    if time.ms <= 0:
        return None
    saving = _fastest(run)
    ratio = (saving.peak_ratio or UNKNOWN_RATIO) if saving is not None else UNKNOWN_RATIO
    bound = min(_roofline_bound(window, classes, ratio) for window in windows)
    most = min(1.0 - 1.0 / ratio, bound)
    least = min(max(0.0, 1.0 - 1.0 / (REACHED_RATIO * ratio)), bound)
    named = [row for window in windows[:1] for row in window.kernels.kernels if _is_off(row, classes)]
    return OffTensorCores(
        time=time,
        saved=Measured(ms=time.ms * most, lower_ms=time.lower_ms * least),
        peak_ratio=ratio,
        faster_dtype=saving.faster_dtype if saving is not None else None,
        names=tuple(dict.fromkeys(short_name(row.name) for row in named))[:3],
    )


def tensor_cores_known(run: DeviceRun) -> bool:
    """Whether all windows with products tell if their device has tensor cores."""
    return all(w.kernels.tensor_cores is None or w.kernels.tensor_cores.available is not None for w in run.windows)


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


def _fastest(run: DeviceRun) -> SavingRow | None:
    rows = (row for window in run.windows for row in window.kernels.savings if row.kind == "no tensor cores")
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
        if not row.bytes_per_call or fp32 is None:
            continue
        at_compute = row.flops_per_call / (fp32 * ratio)
        device_s += row.device_us / 1e6
        least_s += row.calls * max(at_compute, row.bytes_per_call / roofline.bytes_per_s)
    return max(0.0, 1.0 - least_s / device_s) if device_s > 0 else 1.0
