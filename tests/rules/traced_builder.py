"""Builds the facts of a trace window with its analyses from shares of a device's time."""

from collections.abc import Mapping

from empty_structs import empty

from lightning_gpuprof.model.device import DeviceBusy, DeviceFacts, ThrottleShare
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.report import Device, Distribution
from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.model.trace.api_tables import ApiTables, TimeRow
from lightning_gpuprof.model.trace.communication import CollectiveTimes, Communication, DeviceCommunication
from lightning_gpuprof.model.trace.idle import DeviceIdle, HostTime, Idle, IdleCause, IdleShare
from lightning_gpuprof.model.trace.kernels import KernelFacts, KernelFillFacts, SmallKernels
from lightning_gpuprof.model.trace.roofline import Resource, Roofline, RooflineRow
from lightning_gpuprof.model.trace.step_trace import StepRow, StepTrace
from lightning_gpuprof.model.window import DeviceActivity, WindowFacts

STEPS = 5


def window(
    *,
    period_ms: float = 50.0,
    inflation: float = 1.0,
    causes: Mapping[IdleCause, float] | None = None,
    exposed_communication: float = 0.0,
    above_fastest: float = 0.0,
    uploads: float = 0.0,
    host_ms: Mapping[Phase, float] | None = None,
    unmatched: int = 0,
    sm_efficiency: float | None = None,
    at_roof: Mapping[tuple[Resource, float], float] | None = None,
) -> WindowFacts:
    """Five traced steps.

    Args:
        period_ms: Of an untraced step.
        inflation: traced over untraced step time; the idle time takes it all.
        causes: Idle time of the window as shares of the untraced step time; the rest of it is computation.
        exposed_communication: Share of the untraced step time, likewise below.
        above_fastest: Of the collectives' time: what is above the fastest of their size.
        uploads: Copies to the device that nothing covers.
        host_ms: Phases of a traced step on the host.
        unmatched: Device work launched before the window, of 1,000.
        sm_efficiency: Est. SM efficiency of all kernels.
        at_roof: Time of operators by what bounds them and the share of the roofline that they reach.
    """
    causes = causes or {}
    step_us = period_ms * 1e3
    idle_us = STEPS * step_us * (sum(causes.values()) + inflation - 1.0)
    busy_us = STEPS * step_us * (1.0 - sum(causes.values()))
    total = sum(causes.values())
    shares = tuple(
        IdleShare(
            cause=cause,
            idle_us=idle_us * part / total,
            idle_ratio=part / total,
            window_ratio=idle_us * part / total / (idle_us + busy_us),
            gaps=1,
        )
        for cause, part in causes.items()
        if part
    )
    communication_us, copy_us = (STEPS * step_us * part for part in (exposed_communication, uploads))
    kernel_us = max(0.0, busy_us - copy_us)
    return WindowFacts(
        start_step=100,
        stop_step=104,
        inflation_ratio=inflation,
        steps_us=(inflation * step_us,) * STEPS,
        kernels=1000,
        launches_matched=1000 - unmatched,
        launches_unmatched=unmatched,
        devices=(
            DeviceActivity(device="0", kernels=1000, window_us=busy_us + idle_us, busy_us=busy_us, idle_us=idle_us),
        ),
        analysis=TraceAnalysis(
            idle=Idle(
                devices=(
                    DeviceIdle(
                        device="0",
                        window_us=busy_us + idle_us,
                        busy_us=busy_us,
                        idle_us=idle_us,
                        idle_ratio=idle_us / (busy_us + idle_us),
                        gaps=len(shares),
                        causes=shares,
                        host=HostTime(calls_us=0.0, operators_us=0.0, elsewhere_us=0.0),
                        steps=(),
                        longest=(),
                    ),
                )
            ),
            communication=_communication(communication_us, copy_us, busy_us, idle_us, above_fastest),
            api_tables=_copies(copy_us, busy_us + idle_us),
            kernels=_kernels(kernel_us, sm_efficiency),
            roofline=None if at_roof is None else _roofline(at_roof, kernel_us),
            step_trace=None if host_ms is None else _steps(host_ms, inflation * step_us),
        ),
    )


def gpu(
    *,
    utilization: float | None = None,
    distinct: int = 100,
    sm: float | None = None,
    dram: float | None = None,
    tensor: float | None = None,
    clock_mhz: float | None = None,
    clock_max_mhz: float = 1980.0,
    reasons: Mapping[str, float] | None = None,
    held_mhz: float | None = None,
    power_limit_w: float | None = None,
    samples: int = 100,
) -> Device:
    """Samples of one GPU; ``reasons`` are NVML's, as shares of the busy samples, with the clock while they hold."""
    given = {
        "utilization_ratio": utilization,
        "sm_active_ratio": sm,
        "dram_active_ratio": dram,
        "tensor_active_ratio": tensor,
        "power_limit_w": power_limit_w,
    }
    return Device(
        name="NVIDIA H200",
        uuid="GPU-0",
        samples=samples,
        values={name: None if value is None else _steady(value) for name, value in given.items()},
        subject="gpu0",
        facts=DeviceFacts(sm_clock_max_mhz=clock_max_mhz, power_limit_default_w=700.0),
        distinct_samples=distinct,
        throttle=tuple(
            ThrottleShare(reason=reason, ratio=ratio, busy_ratio=ratio, sm_clock_median_mhz=held_mhz)
            for reason, ratio in (reasons or {}).items()
        ),
        busy=DeviceBusy(samples=samples, sm_clock_median_mhz=clock_mhz),
    )


def _steady(value: float) -> Distribution:
    return Distribution(mean=value, std=0.0, median=value, p05=value, p95=value, p99=value, min=value, max=value)


def _communication(
    communication_us: float, copy_us: float, busy_us: float, idle_us: float, above_fastest: float
) -> Communication:
    row = empty(
        CollectiveTimes,
        message_bytes=1 << 20,
        count=10,
        total_us=communication_us,
        mean_us=communication_us / 10,
        min_us=(1 - above_fastest) * communication_us / 10,
        exposed_us=communication_us,
    )
    rows = (row,) if communication_us else ()
    device = DeviceCommunication(
        device="0",
        collectives=10,
        window_us=busy_us + idle_us,
        communication_us=communication_us,
        computation_us=busy_us - communication_us - copy_us,
        overlap_us=0.0,
        exposed_us=communication_us,
        exposed_ratio=communication_us / (busy_us + idle_us),
        copy_us=copy_us,
        copy_exposed_us=copy_us,
    )
    return empty(Communication, rank=0, world_size=1, devices=(device,), kinds=rows, sizes=rows)


def _copies(copy_us: float, window_us: float) -> ApiTables:
    row = empty(
        TimeRow,
        name="Memcpy HtoD (Pageable -> Device)",
        count=STEPS,
        total_us=copy_us,
        share_of_window_ratio=copy_us / window_us,
    )
    return empty(
        ApiTables,
        device_window_us=window_us,
        host_window_us=window_us,
        memory_total_us=copy_us,
        cuda_gpu_mem_time_sum=(row,) if copy_us else (),
    )


def _kernels(total_us: float, sm_efficiency: float | None) -> KernelFacts:
    return empty(
        KernelFacts,
        count=1000,
        total_us=total_us,
        device_window_us=total_us,
        fill=empty(
            KernelFillFacts,
            est_sm_efficiency_ratio=sm_efficiency,
            est_sm_efficiency_known_ratio=None if sm_efficiency is None else 1.0,
        ),
        small=empty(SmallKernels, limit_us=10.0, count_ratio=0.0, total_ratio=0.0),
    )


def _roofline(at_roof: Mapping[tuple[Resource, float], float], total_us: float) -> Roofline:
    return Roofline(
        rows=tuple(
            empty(RooflineRow, device_us=part * total_us, ceiling_ratio=reached, bound=bound)
            for (bound, reached), part in at_roof.items()
        )
    )


def _steps(host_ms: Mapping[Phase, float], step_us: float) -> StepTrace:
    mean = StepRow(
        name="mean",
        total_us=step_us,
        phases_us={phase: ms * 1e3 for phase, ms in host_ms.items()},
        other_us=0.0,
        kernels_launched=200.0,
    )
    return StepTrace(steps=(), mean=mean, has_steps=True)
