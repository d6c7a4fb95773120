"""What rules about a GPU share: which GPUs can be judged, shares of samples with their bounds, what low clocks cost."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from lightning_gpuprof.model.device import ThrottleShare
from lightning_gpuprof.model.finding import SEVERITIES, Evidence, Finding, Gain
from lightning_gpuprof.model.memory import DeviceMemory
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import ONE_SIDED_5_PERCENT
from lightning_gpuprof.model.report import Device, Distribution
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.rules import base
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    NotApplicable,
    device_idle_ratio,
    is_cpu_only,
    possible,
    steady_period_ms,
)

MIN_SAMPLES = 20
"""Samples that a rule about a GPU needs. The method: the driver's utilization is a mean of 1/6 to 1 s."""

LOWERED_RATIO = 0.98
"""Power limit over its default below which somebody has lowered it. Heuristic."""

_SAMPLES_PER_SLOW_READING = 10
"""Links and processes are asked in every tenth sample."""


def sampled_gpus(metrics: Metrics) -> tuple[Device, ...]:
    """The GPUs that the run used and that were sampled.

    Raises:
        NotApplicable: The model runs on the CPU.
        MissingSignal: No GPU was sampled.
    """
    if is_cpu_only(metrics):
        raise NotApplicable("the model runs on the CPU")
    if not metrics.devices:
        told = next((text for text in metrics.validity.caveats if text.startswith("nvml: ")), "")
        raise MissingSignal(f"no GPU was sampled{f' ({told})' if told else ''}")
    return metrics.devices


def judged(metrics: Metrics, judge: Callable[[Device], Finding | None]) -> Finding | None:
    """The weightiest of what a rule finds on the run's GPUs.

    Args:
        metrics: The run.
        judge: One GPU; raises :class:`MissingSignal` if it cannot be judged,
            :class:`NotApplicable` if it has nothing to judge.

    Returns:
        The finding of the highest severity, of equals that of the first GPU; None if each GPU was judged and none has
        it.

    Raises:
        NotApplicable: No GPU has anything to judge.
        MissingSignal: None has it, and not all could be judged; or as :func:`sampled_gpus`.
    """
    found: list[Finding] = []
    missing: dict[str, list[str]] = {}
    inapplicable: list[NotApplicable] = []
    devices = sampled_gpus(metrics)
    for device in devices:
        try:
            finding = judge(device)
        except NotApplicable as signal:
            inapplicable.append(signal)
            continue
        except MissingSignal as signal:
            missing.setdefault(signal.why, []).append(device.subject or device.name)
            continue
        if finding is not None:
            found.append(finding)
    if found:
        return min(found, key=lambda finding: SEVERITIES.index(finding.severity))
    if missing:
        raise MissingSignal("; ".join(f"{', '.join(names)}: {why}" for why, names in missing.items()))
    if len(inapplicable) == len(devices):
        raise inapplicable[0]
    return None


class GpuRule(BaseRule, ABC):
    """A rule that judges the GPUs of a run one by one and reports the weightiest of what it finds."""

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge each GPU."""
        return judged(metrics, lambda device: self.judge(metrics, device))

    @abstractmethod
    def judge(self, metrics: Metrics, device: Device) -> Finding | None:
        """Judge one GPU.

        Args:
            metrics: The run.
            device: One of its GPUs.

        Raises:
            MissingSignal: It cannot be judged.
            NotApplicable: It has nothing to judge.
        """


def title(device: Device) -> str:
    """How findings name a GPU: ``NVIDIA H200 (gpu0)``."""
    return f"{device.name} ({device.subject})" if device.subject and device.subject != device.name else device.name


def place(device: Device) -> str:
    """How an administrator finds it: by its PCI address, else by its UUID."""
    return device.facts.pci_bus_id or device.uuid or device.subject


def known(device: Device, name: str, words: str) -> Distribution:
    """The samples of a value.

    Raises:
        MissingSignal: It was not measured, or is no possible number; ``words`` says what it is.
    """
    found = device.values.get(name)
    if found is None or not all(possible(x) for x in (found.mean, found.std, found.median, found.p95, found.max)):
        raise MissingSignal(f"{words} was not measured")
    return found


def median(device: Device, name: str) -> float | None:
    """Median of a value; None if it was not measured, or is no possible number."""
    found = device.values.get(name)
    return found.median if found is not None and possible(found.median) else None


def require_busy(device: Device) -> int:
    """Samples in which the GPU had work.

    Raises:
        MissingSignal: There are fewer than :data:`MIN_SAMPLES`.
    """
    count = device.busy.samples if device.busy is not None else 0
    if count < MIN_SAMPLES:
        raise MissingSignal(f"{count} of the {MIN_SAMPLES} samples of the busy GPU needed were taken")
    return count


def require_distinct(device: Device) -> int:
    """Samples whose utilization the driver had renewed.

    Raises:
        MissingSignal: There are fewer than :data:`MIN_SAMPLES`, or there is no utilization.
    """
    if device.distinct_samples is None:
        raise MissingSignal("the utilization was not measured")
    if device.distinct_samples < MIN_SAMPLES:
        raise MissingSignal(
            f"{device.distinct_samples} of the {MIN_SAMPLES} distinct samples of the utilization needed were taken"
        )
    return device.distinct_samples


def slow_readings(device: Device) -> int:
    """How often links and processes were read, at least."""
    return device.samples // _SAMPLES_PER_SLOW_READING


def upper_mean(values: Distribution, count: int) -> float:
    """95 % upper bound of a mean, by the normal approximation.

    Args:
        values: The samples.
        count: How many of them are independent.
    """
    return values.mean + ONE_SIDED_5_PERCENT * values.std / math.sqrt(max(1, count))


def limits(device: Device) -> dict[str, ThrottleShare]:
    """What held the clocks down in busy samples, by reason.

    Raises:
        MissingSignal: The driver does not tell, or the GPU was not busy in enough samples.
    """
    require_busy(device)
    if device.throttle is None:
        raise MissingSignal("the driver does not report what holds the clocks down")
    shares = {share.reason: share for share in device.throttle}
    base.require_possible("a share of the samples", *(s.busy_ratio or 0.0 for s in shares.values()))
    return {reason: share for reason, share in shares.items() if share.busy_ratio}


def strongest(shares: dict[str, ThrottleShare], reasons: Iterable[str]) -> ThrottleShare | None:
    """The most frequent of some reasons; None if none of them was seen."""
    found = [shares[reason] for reason in reasons if reason in shares]
    return max(found, key=lambda share: share.busy_ratio or 0.0, default=None)


def full_clock_mhz(device: Device) -> float | None:
    """SM clock of busy samples in which nothing held it down, else the highest that the GPU has."""
    free = device.busy.sm_clock_free_median_mhz if device.busy is not None else None
    return _positive(free) or _positive(device.facts.sm_clock_max_mhz)


def clock_ratio(device: Device, clock_mhz: float | None) -> float | None:
    """An SM clock over the highest that the GPU has; None if one of them is not known."""
    held, most = _positive(clock_mhz), _positive(device.facts.sm_clock_max_mhz)
    return None if held is None or most is None else held / most


def lost_ratio(device: Device, share: ThrottleShare) -> float | None:
    """Share of the speed that is lost while a reason holds the SM clock: 1 - held / full; None if not known."""
    held, full = _positive(share.sm_clock_median_mhz), full_clock_mhz(device)
    return None if held is None or full is None else max(0.0, 1.0 - held / full)


def held_gain(metrics: Metrics, device: Device, share: ThrottleShare, *, ratio: float, lower: float) -> Gain | None:
    """:func:`clock_gain` of what a reason costs while it holds the clock down; None if that is not known, too.

    Args:
        metrics: The run.
        device: The GPU.
        share: The reason.
        ratio: Share of the busy samples in which it held.
        lower: Its lower bound.
    """
    lost = lost_ratio(device, share)
    return None if lost is None else clock_gain(metrics, device, lost=ratio * lost, lower=lower * lost)


def is_power_limit_lowered(device: Device, lowered_ratio: float) -> bool:
    """Whether the power limit in force is known to be below the board's default.

    Args:
        device: The GPU.
        lowered_ratio: Limit over default below which it was lowered.
    """
    limit = device.power_limit_ratio
    return limit is not None and limit < lowered_ratio


def clock_gain(metrics: Metrics, device: Device, *, lost: float, lower: float) -> Gain | None:
    """The most that full clocks gain: work that takes T at a clock c takes T * c / full at the full clock.

    Only time in which the GPU works gets shorter: windows tell it, else the utilization, which is an upper bound. Time
    in which the GPU's memory works may stay as long as it is; the lower bound leaves it out, and is 0 where it was not
    measured.

    Args:
        metrics: The run.
        device: The GPU.
        lost: Lost speed, as a share of busy time.
        lower: The same from the lower bound of the share of samples.

    Returns:
        None if it is not worthwhile, or if it is not known how busy the GPU was.
    """
    period_ms = steady_period_ms(metrics)
    busy = busy_ratio(metrics, device)
    if busy is None or not base.worthwhile(lost * busy * period_ms, period_ms):
        return None
    dram = median(device, "dram_active_ratio")
    certain = 0.0 if dram is None else max(0.0, 1.0 - dram)
    return base.gain(lost * busy * period_ms, lower * busy * certain * period_ms, period_ms)


def busy_ratio(metrics: Metrics, device: Device) -> float | None:
    """Share of a step in which the GPU works, by trace windows, else by the driver's utilization; None: not known."""
    idle = device_idle_ratio(metrics) if len(metrics.devices) == 1 else None
    if idle is not None and possible(idle):
        return min(1.0, 1.0 - min(1.0, idle))
    found = device.values.get("utilization_ratio")
    return min(1.0, found.mean) if found is not None and possible(found.mean) else None


def largest(device: Device, name: str) -> float | None:
    """Largest sample of a value; None if it was not measured, or is no possible number."""
    found = device.values.get(name)
    return found.max if found is not None and possible(found.max) else None


def instead_of(device: Device, held_mhz: float | None) -> str:
    """``: SM clock 900 MHz instead of 1,980 MHz``; empty if one of them is not known."""
    held, full = _positive(held_mhz), full_clock_mhz(device)
    return "" if held is None or full is None else f": SM clock {mhz(held)} instead of {mhz(full)}"


def clock_evidence(device: Device, share: ThrottleShare) -> tuple[Evidence, ...]:
    """The clock while a reason held, the full one, and the highest temperature, as far as they are known."""
    values = (
        ("SM clock while held down", _positive(share.sm_clock_median_mhz), "MHz"),
        ("full SM clock", full_clock_mhz(device), "MHz"),
        ("highest temperature", largest(device, "temperature_c"), "°C"),
    )
    return tuple(Evidence(name=name, value=value, unit=unit) for name, value, unit in values if value is not None)


def allocator_of(metrics: Metrics, device: Device) -> DeviceMemory | None:
    """Torch's allocator on a GPU, by the name that both have; None: it was not read."""
    return next((memory for memory in metrics.memory.devices if memory.name == device.subject), None)


def copies_ms(window: WindowFacts) -> float | None:
    """Time of a step's copies from the host to the device, whether or not kernels ran beside them; None: not known."""
    analysis = window.analysis
    if analysis is None or analysis.api_tables is None or not window.steps_us or not window.kernels:
        return None
    rows = [row for row in analysis.api_tables.cuda_gpu_mem_time_sum if "HtoD" in row.name]
    total_us = sum(row.total_us for row in rows)
    return total_us / 1e3 / len(window.steps_us) if possible(total_us) else None


def mhz(value: float) -> str:
    """A clock for people: ``1,980 MHz``."""
    return f"{value:,.0f} MHz"


def gib(value: float) -> str:
    """Memory for people: ``18.6 GiB``, below one GiB in MiB."""
    amount, unit = (value / 2**30, "GiB") if abs(value) >= 2**30 else (value / 2**20, "MiB")
    return f"{amount:,.0f} {unit}" if abs(amount) >= 999.5 else f"{amount:.3g} {unit}"


def _positive(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value > 0 else None
