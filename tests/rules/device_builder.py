"""Builds the Metrics of a run on a device from the kernels and collectives of a window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from empty_structs import empty
from metrics_builder import build, replace
from tiny_traces import Json, kernel, span, step
from trace_metrics import window_of

from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.report import Device
from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.model.trace.communication import CollectiveTimes, Communication, DeviceCommunication
from lightning_gpuprof.model.trace.operators import Operators, OperatorShapes
from lightning_gpuprof.model.trace.roofline import Roofline, RooflineRow
from lightning_gpuprof.model.window import WindowFacts

STEPS = 5
"""Steps of a window that is made here."""

A100: Mapping[str, object] = {
    "id": 0,
    "name": "NVIDIA A100-SXM4-40GB",
    "computeMajor": 8,
    "computeMinor": 0,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerMultiprocessor": 167936,
    "warpSize": 32,
    "numSms": 108,
}
V100: Mapping[str, object] = {**A100, "name": "Tesla V100-SXM2-32GB", "computeMajor": 7, "numSms": 80}
ON_GPU: Mapping[str, Value] = {
    "device.type": "cuda",
    "device.capability": "8.0",
    "trainer.precision": "32-true",
    "loader.batch_size": 32,
}

SGEMM = "ampere_sgemm_128x64_nn"
TENSOR_GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
SCUDNN = "cudnn_ampere_scudnn_128x64_relu_small_nn_v1"
POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"


class Kernels:
    """Lays kernels of one step behind each other, on one stream, each launched in time."""

    def __init__(self, device: Mapping[str, object] = A100, *, step_ms: float = 50.0, steps: int = STEPS) -> None:
        self._device = device
        self._step_us = step_ms * 1e3
        self._steps = steps
        self._kernels: list[tuple[str, float, Mapping[str, object]]] = []

    def add(self, name: str, ms: float, *, blocks: int = 100_000, threads: int = 256) -> Kernels:
        """A kernel of every step; many blocks fill the device."""
        shape = {"grid": [blocks, 1, 1], "block": [threads, 1, 1], "registers per thread": 32, "shared memory": 0}
        self._kernels.append((name, ms * 1e3, shape))
        return self

    def events(self) -> list[Json]:
        """The trace's events."""
        found: list[Json] = []
        number = 0
        for index in range(self._steps):
            begin = index * self._step_us
            found.append(step(index, begin, self._step_us))
            at = begin + 100.0
            for name, us, shape in self._kernels:
                number += 1
                launch = begin + 5.0 + number % len(self._kernels)
                found.append(span("cuda_runtime", "cudaLaunchKernel", launch, 0.5, correlation=number))
                found.append(kernel(name, at, us, number, **shape))
                at += us
        return found

    def metrics(
        self,
        *,
        run: Mapping[str, Value] | None = None,
        operators: Sequence[OperatorShapes] | None = None,
        rows: Sequence[RooflineRow] | None = None,
        **more: Any,
    ) -> Metrics:
        """The run around a window of these kernels."""
        window = window_of({"deviceProperties": [self._device], "traceEvents": self.events()})
        assert window.analysis is not None
        analysis = window.analysis
        if operators is not None:
            analysis = msgspec.structs.replace(analysis, operators=operators_of(operators))
        if rows is not None:
            given = Roofline(rows=tuple(rows), bytes_per_s=1555e9)
            analysis = msgspec.structs.replace(analysis, roofline=given)
        metrics = build(run={**ON_GPU, **(run or {})}, **more)
        return replace(metrics, windows=(msgspec.structs.replace(window, analysis=analysis),))


def operators_of(rows: Sequence[OperatorShapes]) -> Operators:
    """The operators of a window by shape."""
    return empty(Operators, calls=sum(row.occurrences for row in rows), shapes=tuple(rows))


def operator(
    name: str,
    shape: str,
    ms_per_step: float,
    *,
    dtype: str = "float16",
    phase: str = "forward",
    occurrences: int = STEPS,
    flops_per_call: float | None = None,
) -> OperatorShapes:
    """A row of the table of operators by shape."""
    us = ms_per_step * 1e3 * STEPS
    return empty(
        OperatorShapes,
        operator=name,
        phase=phase,
        input_shape=shape,
        dtype=dtype,
        occurrences=occurrences,
        device_total_us=us,
        device_self_us=us,
        device_average_us=us / max(occurrences, 1),
        flops_per_call=flops_per_call,
    )


def roofline_row(
    name: str,
    shape: str,
    ms_per_step: float,
    *,
    dtype: str = "bf16",
    kind: str = "gemm",
    flops_per_call: float = 1e9,
    bytes_per_call: float | None = 1e6,
    ceiling_ratio: float | None = 0.5,
    bound: str = "compute",
) -> RooflineRow:
    """A row of the roofline with one call per step."""
    seconds = ms_per_step / 1e3
    return empty(
        RooflineRow,
        operator=name,
        input_shape=shape,
        dtype=dtype,
        kind=kind,
        calls=STEPS,
        flops_per_call=flops_per_call,
        bytes_per_call=bytes_per_call,
        device_us=ms_per_step * 1e3 * STEPS,
        device_average_us=ms_per_step * 1e3,
        flops_per_s=flops_per_call / seconds,
        bytes_per_s=None if bytes_per_call is None else bytes_per_call / seconds,
        ceiling_ratio=ceiling_ratio,
        bound=bound,
    )


def collective(
    ms: float,
    *,
    count: int = 2 * STEPS,
    mb: float | None = 25.0,
    kind: str = "all_reduce",
    min_ms: float | None = None,
    exposed_ms: float | None = None,
    ranks: int | None = 8,
    dtype: str = "float",
) -> CollectiveTimes:
    """Collectives of one size; ``ms`` is the mean duration of one."""
    size = None if mb is None else int(mb * 2**20)
    least = ms if min_ms is None else min_ms
    bus = None if size is None or ranks is None else size * 2 * (ranks - 1) / ranks / (least / 1e3)
    return empty(
        CollectiveTimes,
        kind=kind,
        dtype=dtype,
        group_size=ranks,
        message_bytes=size,
        count=count,
        total_us=ms * count * 1e3,
        mean_us=ms * 1e3,
        min_us=least * 1e3,
        exposed_us=(ms if exposed_ms is None else exposed_ms) * count * 1e3,
        bus_bandwidth_bytes_per_s=bus,
        best_bus_bandwidth_bytes_per_s=bus,
    )


def communication(collectives: Sequence[CollectiveTimes], *, window_ms: float = 250.0) -> Communication:
    """What one device communicated in a window."""
    total_us = sum(one.total_us for one in collectives)
    exposed_us = sum(one.exposed_us for one in collectives)
    return empty(
        Communication,
        rank=0,
        world_size=8,
        backend="nccl",
        devices=(
            DeviceCommunication(
                device="0",
                collectives=sum(one.count for one in collectives),
                window_us=window_ms * 1e3,
                communication_us=total_us,
                computation_us=window_ms * 1e3 - exposed_us,
                overlap_us=total_us - exposed_us,
                exposed_us=exposed_us,
                exposed_ratio=exposed_us / window_ms / 1e3,
                copy_us=0.0,
                copy_exposed_us=0.0,
            ),
        ),
        sizes=tuple(collectives),
    )


def distributed(
    collectives: Sequence[CollectiveTimes],
    *,
    run: Mapping[str, Value] | None = None,
    steady: int | None = None,
    device: str = "NVIDIA A100-SXM4-40GB",
) -> Metrics:
    """A run of eight ranks with steps of 50 ms whose window holds these collectives."""
    metrics = build(
        run={**ON_GPU, "trainer.world_size": 8, "trainer.strategy": "DDPStrategy", "trainer.backend": "nccl",
             "trainer.num_nodes": 1, **(run or {})},
        steady=steady,
        idle_ratio=0.02,
    )  # fmt: skip
    analysis = TraceAnalysis(communication=communication(collectives), gpus=(device,))
    return replace(metrics, windows=(msgspec.structs.replace(metrics.windows[0], analysis=analysis),))


def on_gpu(
    *windows: WindowFacts,
    devices: tuple[Device, ...] = (),
    times_ms: Mapping[Phase, float] | None = None,
    validation: tuple[int, float] = (0, 0.0),
) -> Metrics:
    """A run of 50 ms a step on a GPU."""
    metrics = build(
        times_ms=times_ms, run={"device.type": "cuda"}, blocked_known=False, validation=validation, checkpoint=(0, 0.0)
    )
    return replace(metrics, windows=windows, devices=devices)
