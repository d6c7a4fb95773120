"""Host time of a step flows in, the part of it that holds the step up flows out."""

from __future__ import annotations

from dataclasses import replace

from lightning_gpuprof.model.finding import Evidence
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.rules.base import MissingSignal, device_idle_ratio, is_cpu_only, usable
from lightning_gpuprof.rules.device_split import device_split

HIDDEN = " The device is not known to be idle so long: the host may be ahead of it, and then it costs nothing."
"""Said of time of the host that a device may not wait for."""


def counted_ratio(metrics: Metrics, host_ratio: float, period_ms: float) -> float:
    """On a CPU all of it; on a device not more than the device idles, for the rest is hidden behind its work.

    Args:
        metrics: The run.
        host_ratio: Share of the period.
        period_ms: Median period.

    Raises:
        MissingSignal: The device is not known, or no trace window tells how much it idles.
    """
    cpu_only = is_cpu_only(metrics)
    if cpu_only is None:
        raise MissingSignal("the device of the run is not known, so time of the host cannot be told from its work")
    if cpu_only:
        return host_ratio
    idle_ratio = device_idle_ratio(metrics, period_ms)
    if idle_ratio is None:
        raise MissingSignal("no trace window tells how long the device is idle, and only then the host's time counts")
    return min(host_ratio, idle_ratio)


def most_held_ratio(metrics: Metrics, phase: Phase, period_ms: float) -> float | None:
    """Share of the step that host time of a phase can hold up at most: that in which the device idles meanwhile.

    Args:
        metrics: The run.
        phase: Where the host is.
        period_ms: Median period.

    Returns:
        1 on a CPU. Where windows tell the idle time of the whole step only, that. None: no window tells of the device.
    """
    if is_cpu_only(metrics):
        return 1.0
    split = device_split(metrics, period_ms)
    if split is None or split.window is None:
        return None
    part, share = split.idle_in_phase.get(phase), metrics.share(phase)
    if part is None or share is None or not usable(share):
        return split.idle_ratio
    return min(split.idle_ratio, part * max(share.median_ratio, share.total_ratio))


def idle_evidence(metrics: Metrics, most_ratio: float | None, phase: Phase) -> tuple[Evidence, ...]:
    """What :func:`most_held_ratio` found on a device, for the findings that rest on it."""
    if most_ratio is None or is_cpu_only(metrics):
        return ()
    return (Evidence(name=f"device idle during {phase}, at most", value=most_ratio, unit="ratio"),)


def stalled_ratio(metrics: Metrics, host_ratio: float, period_ms: float) -> float:
    """Of what stops the host now and then: what certainly holds the run up, so that 0 is no proof of the opposite.

    On a device not more than it idles, by the trace windows, which hardly hold such a stop, or by NVML, whichever tells
    of more.

    Args:
        metrics: The run.
        host_ratio: Share of the steps' time.
        period_ms: Median period.
    """
    if is_cpu_only(metrics) is not False:
        return host_ratio
    found = (device_split(metrics, period_ms), device_split(replace(metrics, windows=()), period_ms))
    return min(host_ratio, max((split.idle_ratio for split in found if split is not None), default=0.0))
