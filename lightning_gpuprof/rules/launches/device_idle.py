"""Trace windows and untraced steps of a GPU run flow in; how long the device is idle in a step, and why, flows out.

How much: the period of untraced steps without the busy time of a traced one, since tracing slows the host down and not
the device. Why: the causes of the window, each at most as long as it was there, scaled to that idle time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from lightning_gpuprof.model.finding import Evidence, Severity
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.model.trace.idle import DeviceIdle, IdleCause
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.rules.base import (
    MAX_UNMATCHED_RATIO,
    MissingSignal,
    NotApplicable,
    condition,
    is_cpu_only,
    is_slow_step_window,
    pace_ms,
    require_possible,
    severity,
    steady_period_ms,
)
from lightning_gpuprof.rules.device_split import fetched_beside_device_us
from lightning_gpuprof.rules.input.loading import workers_set_the_pace
from lightning_gpuprof.rules.kernels.device_kernels import STARVED_RATIO
from lightning_gpuprof.rules.wording import counted, listed, millis

MAX_INFLATION_RATIO = 1.25
"""Traced over untraced period from which a window's shares are said to be inflated. The method."""

CONFIDENCE = 0.9
"""Of causes that are taken from a window for steps that were not traced. Heuristic."""

INFLATED_CONFIDENCE = 0.7
"""The same if tracing inflated the window. Heuristic."""

_ONE_SIDED_5_PERCENT = 1.645
_MEDIAN_OVER_MEAN_ERROR = math.sqrt(math.pi / 2)


@dataclass(frozen=True, kw_only=True)
class DeviceStep:
    """The busiest device in an ordinary step, in ms per step.

    ``busy_ms + idle_ms`` is its pace of untraced steps (:func:`~lightning_gpuprof.rules.base.pace_ms`).
    """

    window: WindowFacts
    """The one that the rest is taken from."""
    analysis: TraceAnalysis
    device: DeviceIdle
    steps: int
    """Traced ones."""
    steady_steps: int
    period_ms: float
    busy_ms: float
    idle_ms: float
    idle_lower_ms: float
    """By the lower bound of the period and the longest busy time of all windows."""
    data_wait_ms: float
    """Untraced wait for batches on the host."""
    workers_set_the_pace: bool = False
    """Whether that wait is for workers that are behind, so that it fills what is saved elsewhere in the step."""

    @cached_property
    def traced_ms(self) -> Mapping[IdleCause, float]:
        """Idle time per traced step by cause."""
        return {share.cause: share.idle_us / 1e3 / self.steps for share in self.device.causes}

    @cached_property
    def traced_idle_ms(self) -> float:
        """Idle time per traced step, with what of the steps lies before or after all work of the device."""
        steps_ms = sum(self.window.steps_us) / 1e3
        return max(steps_ms - self.device.busy_us / 1e3, self.device.idle_us / 1e3) / self.steps

    @cached_property
    def data_ms(self) -> float:
        """Idle time while the host waits for a batch: of the untraced wait the part that is idle in traced ones."""
        seen_us = fetched_beside_device_us(self.window)
        traced_wait_ms = (self.window.dataloader_us if seen_us is None else seen_us) / 1e3 / self.steps
        if traced_wait_ms <= 0:
            return min(self.idle_ms, self.traced_ms.get("data", 0.0))
        return min(self.idle_ms, self.data_wait_ms * min(1.0, self.traced_ms.get("data", 0.0) / traced_wait_ms))

    def estimate_ms(self, traced_ms: float) -> float:
        """What is left, in an untraced step, of an idle time per traced step that is not spent on data."""
        others_ms = self.traced_idle_ms - self.traced_ms.get("data", 0.0)
        if others_ms <= 0:
            return 0.0
        return min(traced_ms, (self.idle_ms - self.data_ms) * traced_ms / others_ms)

    def cause_ms(self, *causes: IdleCause) -> float:
        """Idle time of some causes in an untraced step; ``data`` is in :attr:`data_ms`."""
        return self.estimate_ms(sum(self.traced_ms.get(cause, 0.0) for cause in causes))

    def lower_ms(self, idle_ms: float) -> float:
        """The lower bound of a part of the idle time."""
        return idle_ms * self.idle_lower_ms / self.idle_ms if self.idle_ms > 0 else 0.0

    def certain_ms(self, *causes: IdleCause) -> float:
        """What is left for some causes if every other one takes as long as in the trace, which inflates host times."""
        counted_ms = sum(self.traced_ms.get(cause, 0.0) for cause in causes)
        return max(0.0, min(counted_ms, self.idle_lower_ms - (self.traced_idle_ms - counted_ms)))

    def saved_ms(self, work_ms: float) -> float:
        """What less work of the device saves of a step: nothing where late launches or a batch would take its place."""
        if self.workers_set_the_pace and self.data_ms >= STARVED_RATIO * self.period_ms:
            return 0.0
        return max(0.0, work_ms - self.cause_ms("launch", "launch_latency"))

    @property
    def confidence(self) -> float:
        """0 to 1, lower where tracing inflated the window."""
        inflation = self.window.inflation_ratio
        return INFLATED_CONFIDENCE if inflation is not None and inflation > MAX_INFLATION_RATIO else CONFIDENCE

    @property
    def remark(self) -> str:
        """What to know of the window, as sentences that begin with a blank; empty if there is nothing."""
        inflation = self.window.inflation_ratio
        if inflation is None or inflation <= MAX_INFLATION_RATIO:
            return ""
        return (
            f" Tracing made the steps of the window {inflation:.1f} times as long: how long the device is idle is "
            "measured on untraced steps, why is the window's."
        )

    def severity(self, lower_ms: float) -> Severity:
        """By the share that a lower bound has of the period."""
        return severity(lower_ms / self.period_ms, self.steady_steps)

    def evidence(self) -> tuple[Evidence, ...]:
        """The times that all rules about a device's step rest on."""
        return (
            Evidence(name="period, untraced", value=self.period_ms, unit="ms"),
            Evidence(name="device busy per step", value=self.busy_ms, unit="ms"),
            Evidence(name="traced steps", value=float(self.steps), unit="steps"),
        )


def device_step(metrics: Metrics, *, most_unmatched_ratio: float = MAX_UNMATCHED_RATIO) -> DeviceStep:
    """The device's part of an ordinary step.

    Of several windows with work of whole steps the one whose busy time is the median counts. Windows on slow steps do
    not: they are not ordinary.

    Args:
        metrics: The run.
        most_unmatched_ratio: Share of a window's work that may have been launched outside of it. Such work makes the
            busy time per step too long.

    Raises:
        NotApplicable: The model runs on the CPU.
        MissingSignal: There are too few untraced steps, no window tells of the device, or one tells impossible numbers.
    """
    if is_cpu_only(metrics):
        raise NotApplicable("the model runs on the CPU")
    period_ms = steady_period_ms(metrics)
    windows = _usable(metrics, most_unmatched_ratio)
    require_possible("the device's work in the windows", *(_busy_ms(window) for window in windows))
    by_busy = sorted(windows, key=_busy_ms)
    window = by_busy[len(by_busy) // 2]
    analysis = window.analysis
    assert analysis is not None  # _usable saw it
    assert analysis.idle is not None
    wait = metrics.share("data_wait")
    pace = pace_ms(metrics, period_ms)
    return DeviceStep(
        window=window,
        analysis=analysis,
        device=max(analysis.idle.devices, key=lambda device: device.busy_us),
        steps=len(window.steps_us),
        steady_steps=metrics.steps.steady_count,
        period_ms=period_ms,
        busy_ms=_busy_ms(window),
        idle_ms=max(0.0, pace - _busy_ms(window)),
        idle_lower_ms=max(0.0, min(pace, _lower_period_ms(metrics, period_ms)) - _busy_ms(by_busy[-1])),
        data_wait_ms=0.0 if wait is None else wait.median_ms,
        workers_set_the_pace=workers_set_the_pace(metrics),
    )


def compiled(metrics: Metrics) -> bool | None:
    """Whether ``torch.compile`` was in use at the first step, or compiled anything; None: not known."""
    if metrics.compile is not None and metrics.compile.graphs > 0:
        return True
    state = condition(metrics, "compile.state")
    return None if state is None else state != "none"


def shapes_vary(step: DeviceStep) -> bool | None:
    """Whether the traced steps differ in the shapes that operators of the forward pass get; None: not known."""
    operators = step.analysis.operators
    rows = [row for row in (operators.shapes or () if operators is not None else ()) if row.input_shape]
    forward = [row for row in rows if row.phase == "forward" and row.device_self_us]
    if not forward or step.steps < 2:
        return None
    return any(row.occurrences % step.steps for row in forward)


def busy_words(step: DeviceStep) -> str:
    """``the device works 12.1 ms of a step of 30.0 ms``."""
    return f"the device works {millis(step.busy_ms)} of a step of {millis(step.period_ms)}"


def _usable(metrics: Metrics, most_unmatched_ratio: float) -> list[WindowFacts]:
    why = []
    usable = []
    for window in metrics.windows:
        problem = _problem(window, most_unmatched_ratio)
        if problem:
            why.append(problem)
        else:
            usable.append(window)
    if usable:
        return usable
    if not why:
        raise MissingSignal("no trace window was recorded")
    raise MissingSignal(f"of {counted(len(why), 'trace window')} none can be used: {listed(sorted(set(why)))}")


def _problem(window: WindowFacts, most_unmatched_ratio: float) -> str:
    work = window.launches_matched + window.launches_unmatched
    if is_slow_step_window(window):
        return "it was opened on a slow step"
    if not window.devices or not work:
        return "it holds no device work"
    if not window.steps_us:
        return "it holds no whole step"
    if window.launches_unmatched > most_unmatched_ratio * work:
        return f"{window.launches_unmatched:,} of {work:,} device works were launched outside of it"
    if window.analysis is None or window.analysis.idle is None or not window.analysis.idle.devices:
        return "its idle times could not be computed"
    return ""


def _busy_ms(window: WindowFacts) -> float:
    return max(device.busy_us for device in window.devices) / 1e3 / len(window.steps_us)


def _lower_period_ms(metrics: Metrics, period_ms: float) -> float:
    """5 % lower bound of the median period, by the standard error of a median of normal values."""
    period = metrics.steps.period_ms
    if period is None or not math.isfinite(period.p95 - period.p05):
        return period_ms
    std_ms = (period.p95 - period.p05) / (2 * _ONE_SIDED_5_PERCENT)
    error_ms = _MEDIAN_OVER_MEAN_ERROR * std_ms / math.sqrt(metrics.steps.steady_count)
    return period_ms - _ONE_SIDED_5_PERCENT * error_ms
