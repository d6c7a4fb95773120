"""What holds a GPU's clock down, what that may cost, and its PCIe link."""

import math

from lightning_gpuprof.model.cost import Cost
from lightning_gpuprof.model.device import MIN_SAMPLES, ThrottleShare
from lightning_gpuprof.model.gpu import ActiveMultiprocessors, Gpu, GpuClocks, HeldClock, NumaPlace, PcieLink
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import MissingSignal, NotApplicable, Unmeasured, measured, or_unmeasured
from lightning_gpuprof.model.numbers import lower_share, possible
from lightning_gpuprof.model.report import Device, Distribution
from lightning_gpuprof.model.signals import device_idle_ratio, require_possible
from lightning_gpuprof.model.window import WindowFacts

_SAMPLES_PER_SLOW_READING = 10
"""Links and processes are asked in every tenth sample."""

_KNOWN_RATIO = 0.95
"""Share of kernel time whose geometry a window must know. Heuristic."""


def gpus(metrics: Metrics) -> tuple[Gpu, ...]:
    """The sampled GPUs; ``device_step`` of the run is read."""
    return tuple(
        Gpu(
            device=device,
            utilization=_utilization(device),
            clocks=_clocks(metrics, device),
            active=_active(metrics, device),
            link=_link(device.largest("pcie_generation"), device.largest("pcie_width")),
            best_link=_link(device.facts.pcie_generation_max, device.facts.pcie_width_max),
            numa=_numa(metrics, device),
            slow_readings=device.samples // _SAMPLES_PER_SLOW_READING,
            busy_samples=_busy_samples(device),
        )
        for device in metrics.devices
    )


def copies_to_device_ms(metrics: Metrics) -> float | None:
    """Time of a step's copies to the device, whether or not kernels ran beside them: the median of all windows.

    None: no window has their times.
    """
    found = sorted(copied for window in metrics.windows if (copied := _copies_ms(window)) is not None)
    return found[len(found) // 2] if found else None


def _copies_ms(window: WindowFacts) -> float | None:
    tables = window.results.api_tables
    if tables is None or not window.steps_us or not window.kernels:
        return None
    total_us = sum(row.total_us for row in tables.cuda_gpu_mem_time_sum if "HtoD" in row.name)
    return total_us / 1e3 / len(window.steps_us) if possible(total_us) else None


def _link(generation: float | None, lanes: float | None) -> PcieLink | None:
    return None if generation is None or lanes is None else PcieLink(generation=generation, lanes=lanes)


@or_unmeasured
def _numa(metrics: Metrics, device: Device) -> NumaPlace:
    count, own = metrics.positive("machine.numa_nodes"), metrics.condition("machine.affinity_numa_nodes")
    if count == 1:
        raise NotApplicable("the machine has one NUMA node")
    if count is None or not isinstance(own, str):
        raise MissingSignal("the NUMA nodes of the process's CPUs are not known")
    if device.facts.numa_node is None:
        raise MissingSignal("the NUMA node of the GPU is not known")
    return NumaPlace(node=device.facts.numa_node, process_nodes=own)


@or_unmeasured
def _utilization(device: Device) -> Distribution:
    found, count = device.values.get("utilization_ratio"), device.distinct_samples
    if found is None or count is None or not all(possible(x) for x in (found.mean, found.std, found.median)):
        raise MissingSignal("the utilization was not measured")
    if count < MIN_SAMPLES:
        raise MissingSignal(f"{count} of the {MIN_SAMPLES} distinct samples of the utilization needed were taken")
    return found


@or_unmeasured
def _clocks(metrics: Metrics, device: Device) -> GpuClocks:
    busy, count = device.busy, measured(_busy_samples(device))
    if device.throttle is None:
        raise MissingSignal("the driver does not report why clocks are throttled")
    shares = {share.reason: share for share in device.throttle}
    require_possible("a share of the samples", *(share.busy_ratio or 0.0 for share in shares.values()))
    ratios = {reason: share.busy_ratio for reason, share in shares.items() if share.busy_ratio}
    highest = _positive(device.facts.sm_clock_max_mhz)
    full = (_positive(busy.sm_clock_free_median_mhz) if busy is not None else None) or highest
    unnamed = ratios.get("hw_slowdown", 0.0) - sum(ratios.get(name, 0.0) for name in ("hw_thermal", "hw_power_brake"))
    return GpuClocks(
        samples=count,
        median_mhz=_positive(busy.sm_clock_median_mhz) if busy is not None else None,
        highest_mhz=highest,
        full_mhz=full,
        held={reason: _held(shares[reason], ratio, count, full) for reason, ratio in ratios.items()},
        unnamed_slowdown=_held(shares["hw_slowdown"], max(0.0, unnamed), count, full)
        if "hw_slowdown" in ratios
        else None,
        work=_work(metrics, device),
    )


def _busy_samples(device: Device) -> int | Unmeasured:
    count = 0 if device.busy is None else device.busy.samples
    if count >= MIN_SAMPLES:
        return count
    return Unmeasured(why=f"{count} of the {MIN_SAMPLES} samples of the busy GPU needed were taken")


def _held(share: ThrottleShare, ratio: float, count: int, full_mhz: float | None) -> HeldClock:
    clock = _positive(share.sm_clock_median_mhz)
    return HeldClock(
        reason=share.reason,
        ratio=ratio,
        lower_ratio=lower_share(ratio, count),
        sm_clock_mhz=clock,
        lost_ratio=None if clock is None or full_mhz is None else max(0.0, 1.0 - clock / full_mhz),
    )


@or_unmeasured
def _work(metrics: Metrics, device: Device) -> Cost | None:
    ratio, dram = _busy_ratio(metrics, device), device.median("dram_active_ratio")
    if ratio is None:
        return None
    work_ms = ratio * metrics.step_ms
    return metrics.cost(work_ms, 0.0 if dram is None else work_ms * max(0.0, 1.0 - dram))


def _busy_ratio(metrics: Metrics, device: Device) -> float | None:
    idle = device_idle_ratio(metrics) if len(metrics.devices) == 1 else None
    if idle is not None and possible(idle):
        return min(1.0, 1.0 - min(1.0, idle))
    found = device.values.get("utilization_ratio")
    return min(1.0, found.mean) if found is not None and possible(found.mean) else None


def _active(metrics: Metrics, device: Device) -> ActiveMultiprocessors | Unmeasured:
    counted = device.values.get("sm_active_ratio")
    if counted is not None and possible(counted.mean) and possible(counted.std):
        upper = counted.upper_mean(device.samples)
        return ActiveMultiprocessors(ratio=counted.mean, upper_ratio=upper, source="by its counters")
    for window in metrics.windows:
        fill = window.results.kernels.fill if window.results.kernels else None
        if fill is None or fill.est_sm_efficiency_ratio is None:
            continue
        if (fill.est_sm_efficiency_known_ratio or 0.0) >= _KNOWN_RATIO and math.isfinite(fill.est_sm_efficiency_ratio):
            estimate = fill.est_sm_efficiency_ratio
            source = "estimated from the kernels of a trace window"
            return ActiveMultiprocessors(ratio=estimate, upper_ratio=estimate, source=source)
    return Unmeasured(why="neither the activity of the multiprocessors nor the geometry of kernels was measured")


def _positive(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value > 0 else None
