"""What the rules about a GPU share: which GPUs can be judged, and what low clocks cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from lightning_gpuprof.model.device import MIN_SAMPLES
from lightning_gpuprof.model.finding import SEVERITIES, Evidence, Finding, Gain, Severity
from lightning_gpuprof.model.gpu import Gpu as Gpu
from lightning_gpuprof.model.gpu import GpuClocks as GpuClocks
from lightning_gpuprof.model.gpu import HeldClock
from lightning_gpuprof.model.missing import MissingSignal, NotApplicable, measured
from lightning_gpuprof.model.numbers import mhz
from lightning_gpuprof.model.report import Device, Distribution
from lightning_gpuprof.model.signals import is_cpu_only, steady_period_ms
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, Metrics, Words, possible, severity, worthwhile_gain
from lightning_gpuprof.rules.examples import not_evaluated

if TYPE_CHECKING:
    from typing_extensions import Unpack

NO_REASONS = not_evaluated("the driver names no reasons", "does not report", gpu={"reasons_known": False})
"""An example of all rules about clocks."""


def sampled_gpus(metrics: Metrics) -> tuple[Gpu, ...]:
    """The GPUs that the run used and that were sampled.

    Raises:
        NotApplicable: The model runs on the CPU.
        MissingSignal: No GPU was sampled.
    """
    if is_cpu_only(metrics):
        raise NotApplicable("the model runs on the CPU")
    if not metrics.gpus:
        told = next((text for text in metrics.validity.caveats if text.startswith("nvml: ")), "")
        raise MissingSignal(f"no GPU was sampled{f' ({told})' if told else ''}")
    return metrics.gpus


def judged(metrics: Metrics, judge: Callable[[Gpu], Finding | None]) -> Finding | None:
    """The weightiest of what a rule finds on the run's GPUs.

    Args:
        metrics: The run.
        judge: One GPU; raises :class:`MissingSignal` if it cannot be judged, :class:`NotApplicable` if it has nothing
            to judge.

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
    gpus = sampled_gpus(metrics)
    for gpu in gpus:
        try:
            finding = judge(gpu)
        except NotApplicable as signal:
            inapplicable.append(signal)
            continue
        except MissingSignal as signal:
            missing.setdefault(signal.why, []).append(gpu.device.subject or gpu.device.name)
            continue
        if finding is not None:
            found.append(finding)
    if found:
        return min(found, key=lambda finding: SEVERITIES.index(finding.severity))
    if missing:
        raise MissingSignal("; ".join(f"{', '.join(names)}: {why}" for why, names in missing.items()))
    if len(inapplicable) == len(gpus):
        raise inapplicable[0]
    return None


class GpuRule(BaseRule, ABC):
    """A rule that judges the GPUs of a run one by one and reports the weightiest of what it finds."""

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge each GPU."""
        return judged(metrics, lambda gpu: self.judge(metrics, gpu))

    @abstractmethod
    def judge(self, metrics: Metrics, gpu: Gpu) -> Finding | None:
        """Judge one GPU.

        Args:
            metrics: The run.
            gpu: One of its GPUs.

        Raises:
            MissingSignal: It cannot be judged.
            NotApplicable: It has nothing to judge.
        """


class ClockRule(GpuRule):
    """A rule on what holds the clock of a busy GPU down, and by how much."""

    certainty = 0.9
    explains = claims.CLOCKS

    def judge(self, metrics: Metrics, gpu: Gpu) -> Finding | None:
        """Judge the clocks of a GPU.

        Args:
            metrics: Metrics of the run.
            gpu: One of its GPUs.
        """
        return self.judge_clocks(metrics, gpu, measured(gpu.clocks))

    @abstractmethod
    def judge_clocks(self, metrics: Metrics, gpu: Gpu, clocks: GpuClocks) -> Finding | None:
        """Judge one GPU whose clocks are known.

        Args:
            metrics: Metrics of the run.
            gpu: One of its GPUs.
            clocks: SM clocks of that GPU while it is busy.
        """

    def of_clocks(
        self,
        gpu: Gpu,
        clocks: GpuClocks,
        held: HeldClock,
        *,
        severity: Severity,
        gain: Gain | None,
        **words: Unpack[Words],
    ) -> Finding:
        """A finding on one reason, with the clock while it held and the full one.

        Args:
            gpu: It is slow.
            clocks: Its clocks.
            held: What holds them down.
            severity: How bad it is.
            gain: At the full clock.
            **words: With a summary without its full stop, and without clocks and temperature.
        """
        known = held.sm_clock_mhz is not None and clocks.full_mhz is not None
        slow = f": SM clock {mhz(held.sm_clock_mhz or 0)} instead of {mhz(clocks.full_mhz or 0)}" if known else ""
        values = (
            ("SM clock while held down", held.sm_clock_mhz, "MHz"),
            ("full SM clock", clocks.full_mhz, "MHz"),
            ("highest temperature", gpu.device.largest("temperature_c"), "°C"),
        )
        words["summary"] += f"{slow}."
        words["evidence"] += tuple(Evidence(name=n, value=v, unit=unit) for n, v, unit in values if v is not None)
        return self.finding(severity=severity, gain=gain, **words)


def clock_gain(metrics: Metrics, clocks: GpuClocks, *, lost: float, lower: float) -> Gain | None:
    """The most that full clocks gain: kernels that take T at a clock c take T * c / full at the full clock.

    Args:
        metrics: The run.
        clocks: Of the GPU.
        lost: Lost speed, as a share of busy time.
        lower: The same from the lower bound of the share of samples.

    Returns:
        None if it is not worthwhile, or if it is not known how busy the GPU was.
    """
    period_ms = steady_period_ms(metrics)
    if clocks.busy_ratio is None:
        return None
    busy_ms = clocks.busy_ratio * period_ms
    return worthwhile_gain(lost * busy_ms, lower * busy_ms * clocks.certain_ratio, period_ms)


def held_gain(metrics: Metrics, clocks: GpuClocks, held: HeldClock) -> Gain | None:
    """:func:`clock_gain` of what a reason costs while it holds the clock down; None if that is not known, too.

    Args:
        metrics: Metrics of the run.
        clocks: SM clocks of the GPU while it is busy.
        held: A reason for a low clock, and how often it held.
    """
    if held.lost_ratio is None:
        return None
    return clock_gain(metrics, clocks, lost=held.ratio * held.lost_ratio, lower=held.lower_ratio * held.lost_ratio)


def held_severity(metrics: Metrics, held: HeldClock, gain: Gain | None) -> Severity:
    """Severity by the lower bound of the share of the step that is lost.

    Args:
        metrics: Metrics of the run.
        held: A reason for a low clock, and how often it held.
        gain: What a full clock saves, from :func:`held_gain`; None: not known, or too little.
    """
    saved_ms = 0.0 if gain is None else gain.saved_ms_per_step
    cost = saved_ms / steady_period_ms(metrics) * held.lower_ratio / held.ratio
    return severity(cost, metrics.steps.steady_count)


def at_most_warning(level: Severity) -> Severity:
    """Of what is not certain enough to be critical."""
    return "warning" if level == "critical" else level


def known(device: Device, name: str, words: str) -> Distribution:
    """The samples of a value.

    Args:
        device: Samples of the GPU.
        name: Name of the value, which ends with its unit: ``utilization_ratio``.
        words: The value in words, for the message.

    Raises:
        MissingSignal: It was not measured, or is no possible number; ``words`` says what it is.
    """
    found = device.values.get(name)
    if found is None or not all(possible(x) for x in (found.mean, found.std, found.median, found.p95, found.max)):
        raise MissingSignal(f"{words} was not measured")
    return found


def require_distinct(device: Device) -> int:
    """Samples whose utilization the driver had renewed.

    Raises:
        MissingSignal: There are fewer than :data:`MIN_SAMPLES`, or there is no utilization.
    """
    count = device.distinct_samples
    if count is None:
        raise MissingSignal("the utilization was not measured")
    if count < MIN_SAMPLES:
        raise MissingSignal(f"{count} of the {MIN_SAMPLES} distinct samples of the utilization needed were taken")
    return count
