"""Builds the Metrics of a traced run on a GPU from what host and device do in a step."""

from collections.abc import Iterable, Mapping
from typing import Any

from device_builder import A100, POINTWISE, SCUDNN, SGEMM, STEPS, TENSOR_GEMM, V100, Kernels, operator, roofline_row
from late_steps import training
from metrics_builder import replace
from msgspec.structs import replace as changed
from trace_metrics import metrics_of, recorded_steps

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.trace.roofline import Ceiling, Rate, Roofline

DEVICES: Mapping[str, Mapping[str, object]] = {
    "A100": A100,
    "V100": V100,
    "P100": {**V100, "name": "Tesla P100-SXM2-16GB", "computeMajor": 6},
    "A10G": {"id": 0, "name": "NVIDIA A10G", "computeMajor": 8, "computeMinor": 6, "warpSize": 32, "numSms": 80},
    "unknown": {"id": 0},
}
KERNELS: Mapping[str, str] = {
    "fp32 gemm": SGEMM,
    "fp32 convolution": SCUDNN,
    "tensor core gemm": TENSOR_GEMM,
    "pointwise": POINTWISE,
    "gemv": "void gemv2T_kernel_val<int, float, float, float, float>(int)",
    "convolution": "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4",
    "pooling": "void at::native::(anonymous namespace)::max_pool_backward_nchw<float, float>(float const*)",
    "nchwToNhwc": "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(int)",
    "nhwcToNchw": "void cudnn::ops::nhwcToNchwKernel<float, float, float, true, false, (cudnnKernelDataType_t)0>(int)",
    "all-reduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
}
"""Short names of kernels; all others are names of their own."""


def kernels_run(
    *,
    kernels: Mapping[str, float | tuple[float, int]],
    device: str = "A100",
    step_ms: float = 50.0,
    operators: Iterable[tuple[str, str, float, Mapping[str, Any]]] | None = None,
    roofline: Iterable[tuple[str, str, float, Mapping[str, Any]]] | None = None,
    mfu: tuple[float, float] | None = None,
    fp32_flops: float | None = None,
    **more: Any,
) -> Metrics:
    """Steps of 50 ms of a few long kernels, launched in time.

    Args:
        kernels: Milliseconds per step, or these and the number of blocks, by name.
        device: One of :data:`DEVICES`.
        step_ms: Of traced steps.
        operators: Operator, shapes, milliseconds per step, and further arguments of :func:`~device_builder.operator`.
        roofline: The same of :func:`~device_builder.roofline_row`.
        mfu: That of untraced steps, and the share of the products' time whose FLOPs are known.
        fp32_flops: Peak of the device in fp32, per second.
        more: Arguments of :func:`~metrics_builder.build`.
    """
    made = Kernels(DEVICES[device], step_ms=step_ms)
    for name, given in kernels.items():
        ms, blocks = given if isinstance(given, tuple) else (given, 100_000)
        made.add(KERNELS.get(name, name), ms, blocks=blocks)
    metrics = made.metrics(
        operators=None if operators is None else [operator(*row, **rest) for *row, rest in operators],
        rows=None if roofline is None else [roofline_row(*row, **rest) for *row, rest in roofline],
        **more,
    )
    if fp32_flops is not None:
        ceilings = (Ceiling(dtype="fp32", flops_per_s=fp32_flops, measured=False),)
        metrics = _with_roofline(metrics, changed(_roofline(metrics), ceilings=ceilings))
    return metrics if mfu is None else _with_mfu(metrics, *mfu, step_ms=step_ms, kernels=kernels)


def _roofline(metrics: Metrics) -> Roofline:
    analysis = metrics.windows[0].analysis
    assert analysis.roofline is not None
    return analysis.roofline


def _with_roofline(metrics: Metrics, roofline: Roofline) -> Metrics:
    (window,) = metrics.windows
    assert window.analysis is not None
    return replace(metrics, windows=(changed(window, analysis=changed(window.analysis, roofline=roofline)),))


def _with_mfu(metrics: Metrics, mfu: float, known: float, *, step_ms: float, kernels: Mapping[str, Any]) -> Metrics:
    seconds = STEPS * step_ms / 1e3
    assert metrics.period_ms is not None
    traced = mfu * metrics.period_ms / step_ms
    rate = Rate(seconds=seconds, flops=1e12, flops_per_s=1e12 / seconds, mfu_ratio=traced, measured_ratio=None)
    matrix_us = kernels["tensor core gemm"] * 1e3 * STEPS
    roofline = Roofline(device="A100", steps=rate, matrix_us=matrix_us, coverage_ratio=known, faster_flops_ratio=0.0)
    return _with_roofline(metrics, roofline)


def stepping_run(*, step: Mapping[str, Any], traced: int = 5, **more: Any) -> Metrics:
    """Steps of a training whose host and device run along clocks of their own.

    Args:
        step: Arguments of :func:`~late_steps.training`.
        traced: Steps in the window.
        more: Arguments of :func:`~trace_metrics.metrics_of`.
    """
    return metrics_of(recorded_steps(lambda trace: training(trace, **step), steps=traced), **more)
