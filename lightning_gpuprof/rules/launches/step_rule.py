"""What rules on a device's step share: its idle causes, and findings that say how certain these are."""

from __future__ import annotations

from abc import ABC
from typing import TYPE_CHECKING

from lightning_gpuprof.model.device_copies import DeviceCopies
from lightning_gpuprof.model.device_step import STARVED_RATIO, DeviceStep, ExplainedStep
from lightning_gpuprof.model.missing import MissingSignal, NotApplicable, Unmeasured
from lightning_gpuprof.rules.base import Cost, Evidence, FamilyRule, Finding, Metrics, Severity, Words

MAX_INFLATION_RATIO = 1.25
"""Traced over untraced step time from which a window's shares are said to be inflated. The method."""

CONFIDENCE = 0.9
"""Of causes that are taken from a window for steps that were not traced. Heuristic."""

INFLATED_CONFIDENCE = 0.7
"""The same if tracing inflated the window. Heuristic."""


def explained_step(metrics: Metrics) -> ExplainedStep:
    """The device's step with the causes of its idle time.

    Raises as :func:`seen_step`, and MissingSignal if no window holds the work of whole steps.
    """
    seen_step(metrics)
    if not isinstance(metrics.device_step, ExplainedStep):
        step = metrics.device_step
        raise MissingSignal(step.why if isinstance(step, Unmeasured) else step.why_unexplained)
    return metrics.device_step


def seen_step(metrics: Metrics) -> DeviceStep:
    """The device's step, as far as a window shows it.

    Raises NotApplicable on the CPU, and MissingSignal if too few steps are untraced or no window shows the device.
    """
    if metrics.is_cpu_only:
        raise NotApplicable("the model runs on the CPU")
    metrics.require_steady()
    step = metrics.device_step
    if isinstance(step, Unmeasured):
        raise MissingSignal(step.why)
    if step.window is None:
        raise MissingSignal(step.why_unexplained)
    return step


def less_work_saves_ms(metrics: Metrics, step: ExplainedStep, work_ms: float) -> float:
    """What less work of the device saves of a step: nothing where late launches or a batch would take its place.

    Args:
        metrics: The run.
        step: Its device's step.
        work_ms: Work of the device per step.

    Returns:
        Milliseconds per step, at least 0.
    """
    if metrics.fetch.workers_set_the_pace and step.data_ms >= STARVED_RATIO * step.period_ms:
        return 0.0
    return max(0.0, work_ms - step.cause_ms("launch", "launch_latency"))


def exposed_upload_ms(metrics: Metrics) -> float:
    """Copies of pinned batches for which the device waits in a step; 0 where that is not known."""
    step = metrics.device_step
    copies = step.copies if isinstance(step, ExplainedStep) else None
    return copies.of("HtoD", pageable=False).exposed_ms if isinstance(copies, DeviceCopies) else 0.0


def confidence(step: DeviceStep) -> float:
    """0 to 1, lower where tracing inflated the window."""
    inflation = None if step.window is None else step.window.inflation_ratio
    return INFLATED_CONFIDENCE if inflation is not None and inflation > MAX_INFLATION_RATIO else CONFIDENCE


def remark(step: ExplainedStep) -> str:
    """What to know of the window, as sentences that begin with a blank; empty if there is nothing."""
    inflation = step.window.inflation_ratio
    if inflation is None or inflation <= MAX_INFLATION_RATIO:
        return ""
    return (
        f" Traced steps took {inflation:.1f} times as long as others: how long the GPU idles is measured on untraced "
        "steps, and why comes from the trace."
    )


def step_evidence(step: DeviceStep) -> tuple[Evidence, ...]:
    """The times that all rules about a device's step use."""
    return (
        Evidence(name="untraced step time", value=step.period_ms, unit="ms"),
        Evidence(name="device busy per step", value=step.busy_ms, unit="ms"),
        Evidence(name="traced steps", value=float(step.steps), unit="steps"),
    )


def compiled(metrics: Metrics) -> bool | None:
    """Whether ``torch.compile`` was in use at the first step, or compiled anything; None: not known."""
    if metrics.compile is not None and metrics.compile.graphs > 0:
        return True
    state = metrics.condition("compile.state")
    return None if state is None else state != "none"


def shapes_vary(step: ExplainedStep) -> bool | None:
    """Whether the traced steps differ in the shapes that operators of the forward pass get; None: not known."""
    operators = step.analysis.operators
    rows = [row for row in (operators.shapes or () if operators is not None else ()) if row.input_shape]
    forward = [row for row in rows if row.phase == "forward" and row.device_self_us]
    if not forward or step.steps < 2:
        return None
    return any(row.occurrences % step.steps for row in forward)


if TYPE_CHECKING:
    from typing_extensions import Unpack


class StepRule(FamilyRule[ExplainedStep], ABC):
    """A rule on the device's step, whose causes come from a window and whose times from untraced steps."""

    def look(self, metrics: Metrics) -> ExplainedStep:
        """The device's step with the causes of its idle time."""
        return explained_step(metrics)

    def of_step(
        self, step: ExplainedStep, cost: Cost, *, severity: Severity | None = None, **words: Unpack[Words]
    ) -> Finding:
        """A finding with the times of the step, and what tracing changed.

        Args:
            step: Of the device.
            cost: What a fix saves of it.
            severity: Default: by the cost.
            **words: Without these.

        Returns:
            Its confidence is lower if tracing inflated the window.
        """
        words["summary"] += remark(step)
        words["confidence"] = self.certainty * confidence(step)
        words["evidence"] += step_evidence(step)
        return self.finding(cost=cost, severity=severity, **words)
