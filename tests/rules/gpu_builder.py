"""Builds a GPU and a run on it: a healthy one unless a keyword says otherwise."""

from collections.abc import Mapping
from typing import Any

import msgspec
from empty_structs import empty
from metrics_builder import build, distribution, replace
from traced_builder import window

from lightning_gpuprof.model.device import DeviceBusy, DeviceFacts, ErrorCounter, ThrottleShare
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.report import Device, Distribution
from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.model.trace.api_tables import ApiTables, MemorySizeRow, TimeRow
from lightning_gpuprof.model.trace.kernels import KernelFacts, KernelFillFacts
from lightning_gpuprof.model.window import WindowFacts

SAMPLES = 40
HEALTHY: Mapping[str, float] = {
    "utilization_ratio": 0.95,
    "memory_utilization_ratio": 0.4,
    "memory_used_bytes": 60.0 * 2**30,
    "power_w": 610.0,
    "power_limit_w": 700.0,
    "temperature_c": 61.0,
    "sm_clock_mhz": 1900.0,
    "pcie_generation": 5.0,
    "pcie_width": 16.0,
    "compute_processes_count": 1.0,
    "foreign_processes_count": 0.0,
    "memory_own_bytes": 60.0 * 2**30,
    "memory_others_bytes": 0.0,
    "sm_active_ratio": 0.85,
    "tensor_active_ratio": 0.45,
    "dram_active_ratio": 0.4,
}
FACTS = DeviceFacts(
    pci_bus_id="00000000:1A:00.0",
    memory_total_bytes=140 * 2**30,
    sm_clock_max_mhz=1980.0,
    pcie_generation_max=5.0,
    pcie_width_max=16.0,
    power_limit_default_w=700.0,
    mig=False,
    nvlink_active_count=18,
    utilization_refresh_s=0.2,
)


def constant(value: float) -> Distribution:
    """A value that was the same in each sample."""
    return msgspec.structs.replace(distribution(value), std=0.0, p05=value, p95=value, p99=value, min=value, max=value)


def held(reason: str, busy_ratio: float, clock_mhz: float | None = None) -> ThrottleShare:
    """A reason for low clocks, in so many of the busy samples."""
    return ThrottleShare(reason=reason, ratio=busy_ratio, busy_ratio=busy_ratio, sm_clock_median_mhz=clock_mhz)


def gpu(
    *throttle: ThrottleShare,
    values: Mapping[str, float | Distribution | None] | None = None,
    facts: Mapping[str, Any] | None = None,
    busy: int = SAMPLES,
    samples: int = SAMPLES,
    distinct: int | None = SAMPLES,
    clock_mhz: float | None = 1900.0,
    free_mhz: float | None = None,
    reasons_known: bool = True,
    errors: tuple[ErrorCounter, ...] = (),
    xids: tuple[int, ...] = (),
    uuid: str = "GPU-1",
    subject: str = "gpu0",
) -> Device:
    """A busy H200 with cool chips, and what differs."""
    told: dict[str, float | Distribution | None] = {**HEALTHY, **(values or {})}
    return Device(
        name="NVIDIA H200",
        uuid=uuid,
        subject=subject,
        samples=samples,
        distinct_samples=distinct,
        values={name: constant(v) if isinstance(v, float) else v for name, v in told.items()},
        facts=msgspec.structs.replace(FACTS, **(facts or {})),
        throttle=tuple(throttle) if reasons_known else None,
        busy=DeviceBusy(
            samples=busy, sm_clock_median_mhz=clock_mhz, power_median_w=610.0, sm_clock_free_median_mhz=free_mhz
        ),
        errors=errors,
        xids=xids,
    )


def on(*devices: Device, **changes: Any) -> Metrics:
    """A healthy run on GPUs."""
    run = {"device.type": "cuda", **changes.pop("run", {})}
    return replace(build(run=run, **changes), devices=devices)


def copying_window(
    *, h2d_ms: float = 1.0, copies: int = 1, bytes_each: int = 64 * 2**20, pinned: bool = True, steps: int = 5
) -> WindowFacts:
    """A window on a GPU with equal copies from the host in each step."""
    kind = f"Memcpy HtoD ({'Pinned' if pinned else 'Pageable'} -> Device)"
    count, total_us = copies * steps, h2d_ms * 1e3 * steps
    times = empty(TimeRow, name=kind, count=count, total_us=total_us)
    sizes = empty(
        MemorySizeRow,
        name=kind,
        count=count,
        sized_count=count,
        total_bytes=count * bytes_each,
        average_bytes=float(bytes_each),
        max_bytes=bytes_each,
        bandwidth_bytes_per_s=count * bytes_each / total_us * 1e6,
    )
    tables = empty(ApiTables, memory_total_us=total_us, cuda_gpu_mem_time_sum=(times,), cuda_gpu_mem_size_sum=(sizes,))
    return WindowFacts(
        start_step=100,
        stop_step=100 + steps - 1,
        steps_us=(60e3,) * steps,
        kernels=100,
        analysis=TraceAnalysis(api_tables=tables),
    )


def errors(**risen: float) -> tuple[ErrorCounter, ...]:
    """All counters of a GPU with ECC and NVLink, at 3 before the run; those that are named rose by so much."""
    names = (
        "ecc_corrected_count",
        "ecc_uncorrected_count",
        "remapped_rows_count",
        "nvlink_replay_count",
        "nvlink_recovery_count",
        "nvlink_crc_count",
    )
    pending = risen.pop("memory_repair_pending_count", 0.0)
    rows = [ErrorCounter(name=name, first=3.0, last=3.0 + risen.pop(name, 0.0)) for name in names]
    assert not risen
    return (*rows, ErrorCounter(name="memory_repair_pending_count", first=pending, last=pending))


def idle_window(*, step_ms: float = 50.0, reason: str = "planned", **causes: float) -> WindowFacts:
    """A window of five steps in which the GPU was idle for these causes, as shares of it."""
    made = window(period_ms=step_ms, causes=causes)  # type: ignore[arg-type]
    return msgspec.structs.replace(made, reason=reason, analysis=TraceAnalysis(idle=made.analysis.idle))


def kernels_window(*, efficiency: float, known: float = 1.0) -> WindowFacts:
    """A window whose kernels fill so much of the multiprocessors, where so much of their time has a geometry."""
    fill = empty(KernelFillFacts, est_sm_efficiency_ratio=efficiency, est_sm_efficiency_known_ratio=known)
    kernels = empty(KernelFacts, count=100, total_us=1e5, device_window_us=3e5, fill=fill)
    return WindowFacts(
        start_step=100,
        stop_step=104,
        steps_us=(60e3,) * 5,
        kernels=100,
        analysis=TraceAnalysis(kernels=kernels),
    )
