"""What a rule says: a finding with its evidence and the most that its cure can gain."""

from __future__ import annotations

from typing import Literal

import msgspec

Severity = Literal["critical", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")

VerdictKind = Literal[
    "input-bound",
    "transfer-bound",
    "sync-bound",
    "host-bound",
    "comm-bound",
    "compute-bound",
    "memory-bound",
    "latency-bound",
    "loop-bound",
    "outside-steps",
    "hardware-limited",
    "mixed",
    "not-enough-data",
]


class Evidence(msgspec.Struct, kw_only=True, frozen=True):
    """A measured number and the limit that it is held against."""

    name: str
    value: float | str
    unit: str = ""
    limit: float | None = None
    source: str = ""
    """Where the limit comes from."""


class Gain(msgspec.Struct, kw_only=True, frozen=True):
    """Upper bound of what the cure can gain (Amdahl): with R of T recoverable the speed-up is at most T/(T-R)."""

    saved_ms_per_step: float
    """Of the period; what is outside the steps is spread over all steps."""
    speedup_max: float
    saved_lower_ms_per_step: float | None = None
    """The same from the lower bounds of the measured shares; findings are ranked by it. None: ``saved_ms_per_step``."""


class Finding(msgspec.Struct, kw_only=True, frozen=True):
    """A diagnosis of one cause, with its numbers and what to change."""

    rule: str
    severity: Severity
    subject: str
    """Who or what it is about: a callback class, a loader, a source line."""
    summary: str
    advice: str
    """The action first, with this run's values."""
    evidence: tuple[Evidence, ...]
    gain: Gain | None = None
    confidence: float = 1.0
    """0 to 1."""
    explains: str = ""
    """The time that the gain is taken from, e.g. a phase. Findings that explain the same time are alternatives: only
    one of them carries the gain. Empty: stands for itself."""


class NotEvaluated(msgspec.Struct, kw_only=True, frozen=True):
    """A rule that could not judge, and why; never the same as "nothing found"."""

    rule: str
    why: str


class Verdict(msgspec.Struct, kw_only=True, frozen=True):
    """What bounds the run, in one word and one sentence; the runner-up is the next cause or empty."""

    kind: VerdictKind
    summary: str
    runner_up: str = ""


def speedup(recoverable_ms: float, period_ms: float) -> float:
    """Amdahl's bound ``T / (T - R)``.

    Args:
        recoverable_ms: R, the time per step that the cure can remove at most.
        period_ms: T, the period of a step.

    Returns:
        At least 1.0. R is held below 99 % of T, so that the bound stays finite.
    """
    if period_ms <= 0 or recoverable_ms <= 0:
        return 1.0
    return period_ms / (period_ms - min(recoverable_ms, 0.99 * period_ms))
