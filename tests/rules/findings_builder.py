"""A finding with a gain of choice."""

from __future__ import annotations

from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.finding import Finding, Gain, Severity, speedup


def finding(
    rule: str,
    *,
    saved_ms: float | None = None,
    lower_ms: float | None = None,
    explains: Claim | None = None,
    confidence: float = 1.0,
    severity: Severity = "warning",
    period_ms: float = 50.0,
) -> Finding:
    gain = None
    if saved_ms is not None:
        gain = Gain(
            saved_ms_per_step=saved_ms,
            speedup_max=speedup(saved_ms, period_ms),
            saved_lower_ms_per_step=lower_ms,
        )
    return Finding(
        rule=rule,
        severity=severity,
        subject="",
        summary="Something is slow.",
        advice="Change it.",
        evidence=(),
        gain=gain,
        confidence=confidence,
        explains=explains,
    )
