"""What all rules say that explain a part of a device's step by what a trace window shows."""

from __future__ import annotations

from typing import ClassVar

from lightning_gpuprof.model.device_step import ExplainedStep
from lightning_gpuprof.model.numbers import millis
from lightning_gpuprof.rules.base import BaseRule, Change, Claim, Evidence, Finding, Metrics, gain, percent, severity
from lightning_gpuprof.rules.launches.device_idle import confidence, remark, step_evidence


class StepRule(BaseRule):
    """A rule on the device's step, whose causes come from a window and whose times from untraced steps."""

    explains: ClassVar[Claim]
    certainty: ClassVar[float] = 1.0
    """How sure the cause is, apart from what tracing changed."""

    def of_step(
        self,
        metrics: Metrics,
        step: ExplainedStep,
        *,
        subject: str,
        summary: str,
        advice: str,
        evidence: tuple[Evidence, ...],
        saved_ms: float,
        lower_ms: float,
        explains: Claim | None = None,
        change: Change | None = None,
    ) -> Finding:
        """A finding whose severity follows from what is saved for certain.

        Args:
            metrics: The run.
            step: Its device's step.
            subject: What is slow.
            summary: Sentences.
            advice: Sentences.
            evidence: Beside the times of the step.
            saved_ms: Per step.
            lower_ms: Of that, what is certain.
            explains: Default: :attr:`explains`.
            change: The advice as data.
        """
        return self.finding(
            severity=severity(lower_ms / step.period_ms, metrics.steps.steady_count),
            subject=subject,
            summary=summary + remark(step),
            advice=advice,
            evidence=(*evidence, *step_evidence(step)),
            gain=gain(saved_ms, lower_ms, step.period_ms),
            confidence=self.certainty * confidence(step),
            explains=explains or self.explains,
            change=change,
        )


def of_every_step(ms: float, step: ExplainedStep) -> str:
    """``3.60 ms of every 4.50 ms step (80 %)``.

    Args:
        ms: Time per step in ms.
        step: The device's step; only its time is used.
    """
    return f"{millis(ms)} of every {millis(step.period_ms)} step ({percent(ms / step.period_ms)})"
