"""What all rules say that explain a part of a device's step by what a trace window shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightning_gpuprof.model.device_step import ExplainedStep
from lightning_gpuprof.model.numbers import millis
from lightning_gpuprof.rules.base import BaseRule, Finding, Metrics, Words, gain, percent, severity
from lightning_gpuprof.rules.launches.device_idle import confidence, remark, step_evidence

if TYPE_CHECKING:
    from typing_extensions import Unpack


class StepRule(BaseRule):
    """A rule on the device's step, whose causes come from a window and whose times from untraced steps."""

    def of_step(
        self, metrics: Metrics, step: ExplainedStep, *, saved_ms: float, lower_ms: float, **words: Unpack[Words]
    ) -> Finding:
        """A finding whose severity follows from what is saved for certain.

        Args:
            metrics: The run.
            step: Its device's step.
            saved_ms: Per step.
            lower_ms: Of that, what is certain.
            **words: Without the times of the step, and what tracing changed.
        """
        words["summary"] += remark(step)
        words["confidence"] = self.certainty * confidence(step)
        words["evidence"] += step_evidence(step)
        return self.finding(
            severity=severity(lower_ms / step.period_ms, metrics.steps.steady_count),
            gain=gain(saved_ms, lower_ms, step.period_ms),
            **words,
        )


def of_every_step(ms: float, step: ExplainedStep) -> str:
    """``3.60 ms of every 4.50 ms step (80 %)``.

    Args:
        ms: Time per step in ms.
        step: The device's step; only its time is used.
    """
    return f"{millis(ms)} of every {millis(step.period_ms)} step ({percent(ms / step.period_ms)})"
