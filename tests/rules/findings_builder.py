"""A finding with a gain of choice, and the one that a rule has to make of a run."""

from typing import Any

from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.cost import Cost
from lightning_gpuprof.model.finding import Finding, Gain, Severity, speedup
from lightning_gpuprof.model.metrics import Metrics


def gain(saved_ms: float, lower_ms: float, step_ms: float) -> Gain:
    return Cost(ms=saved_ms, lower_ms=lower_ms, step_ms=step_ms, steps=100).gain


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


def fired(rule: Any, metrics: Metrics) -> Any:
    """What the rule finds; it has to find something."""
    found = rule.check(metrics)
    assert found is not None, f"{rule.id} is silent"
    return found
