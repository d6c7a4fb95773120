"""Host time of a step flows in, the part of it that holds the step up flows out."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Gain, Severity, worthwhile
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import MissingSignal
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.share import usable
from lightning_gpuprof.model.signals import device_idle_ratio, device_step, is_cpu_only
from lightning_gpuprof.rules.base import gain, severity

HIDDEN = " The device is not known to be idle that long: if the host is ahead, this costs nothing."
"""Said of time of the host that a device may not wait for."""


@dataclass(frozen=True, kw_only=True)
class HostTime:
    """Time of the host in ordinary steps, and how much of it holds them up."""

    period_ms: float
    ratio: float
    """Certain share of the step."""
    taken_ms: float
    """Per step."""
    most_ratio: float | None
    """Share of the step that it can hold up at most; None: not known."""

    @property
    def held_ratio(self) -> float:
        """Certain share of the step that it holds up, if it does."""
        return self.ratio if self.most_ratio is None else min(self.ratio, self.most_ratio)

    @property
    def recoverable_ms(self) -> float:
        """What a step gets shorter at most without it."""
        return self.taken_ms if self.most_ratio is None else min(self.taken_ms, self.most_ratio * self.period_ms)

    @property
    def gain(self) -> Gain:
        """Of a step without it; nothing is certain where it is not known whether it holds the step up."""
        certain_ms = 0.0 if self.most_ratio is None else self.held_ratio * self.period_ms
        return gain(self.recoverable_ms, certain_ms, self.period_ms)

    def is_worth(self, least_ratio: float, *, fixed_ms: float = 0.0) -> bool:
        """Whether it is worth a finding.

        Args:
            least_ratio: Share of the step that it has to hold up for certain.
            fixed_ms: What it may take without being held against that.
        """
        certain = self.held_ratio - fixed_ms / self.period_ms
        return certain >= least_ratio and worthwhile(self.recoverable_ms, self.period_ms)

    def severity(self, steps: int, *, fixed_ms: float = 0.0) -> Severity:
        """By what it holds up beyond ``fixed_ms``, in this many steps."""
        return "info" if self.most_ratio is None else severity(self.held_ratio - fixed_ms / self.period_ms, steps)


def counted_time(metrics: Metrics, period_ms: float, *, ratio: float, taken_ms: float) -> HostTime:
    """Time of which, on a device, only counts what the device is known to idle.

    Args:
        metrics: The run.
        period_ms: Median period.
        ratio: Certain share of the step.
        taken_ms: Time per step.

    Raises:
        MissingSignal: As :func:`counted_ratio`.
    """
    return HostTime(period_ms=period_ms, ratio=ratio, taken_ms=taken_ms, most_ratio=counted_ratio(metrics, 1.0))


def counted_ratio(metrics: Metrics, host_ratio: float) -> float:
    """On a CPU all of it; on a device not more than the device idles, for the rest is hidden behind its work.

    Args:
        metrics: The run.
        host_ratio: Share of the step time.

    Raises:
        MissingSignal: The device is not known, or no trace window tells how much it idles.
    """
    cpu_only = is_cpu_only(metrics)
    if cpu_only is None:
        raise MissingSignal("the device of the run is not known, so it is not known whether host time counts")
    if cpu_only:
        return host_ratio
    idle_ratio = device_idle_ratio(metrics)
    if idle_ratio is None:
        raise MissingSignal("no trace window shows how long the device is idle, and host time counts only then")
    return min(host_ratio, idle_ratio)


def most_held_ratio(metrics: Metrics, phase: Phase) -> float | None:
    """Share of the step that host time of a phase can hold up at most: that in which the device idles meanwhile.

    Args:
        metrics: The run.
        phase: Where the host is.

    Returns:
        1 on a CPU. Where windows tell the idle time of the whole step only, that. None: no window tells of the device.
    """
    if is_cpu_only(metrics):
        return 1.0
    step = device_step(metrics)
    if step is None or step.window is None:
        return None
    part, share = step.idle_in_phase.get(phase), metrics.share(phase)
    if part is None or share is None or not usable(share):
        return step.idle_ratio
    return min(step.idle_ratio, part * max(share.median_ratio, share.total_ratio))


def idle_evidence(metrics: Metrics, most_ratio: float | None, phase: Phase) -> tuple[Evidence, ...]:
    """What :func:`most_held_ratio` found on a device, for the findings that rest on it."""
    if most_ratio is None or is_cpu_only(metrics):
        return ()
    return (Evidence(name=f"device idle during {phase}, at most", value=most_ratio, unit="ratio"),)


def stalled_ratio(metrics: Metrics, host_ratio: float) -> float:
    """Of what stops the host now and then: what certainly holds the run up, so that 0 is no proof of the opposite.

    On a device not more than it idles, by the trace windows, which hardly hold such a stop, or by NVML, whichever tells
    of more.

    Args:
        metrics: The run.
        host_ratio: Share of the steps' time.
    """
    if is_cpu_only(metrics) is not False:
        return host_ratio
    step = device_step(metrics)
    return min(host_ratio, 0.0 if step is None else max(step.idle_ratio, step.utilization_idle_ratio or 0.0))
