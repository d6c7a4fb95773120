"""Metrics flow in; findings in order of their value, rules that could not judge, and the verdict flow out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from lightning_gpuprof.model.finding import SEVERITIES, Finding, Gain, NotEvaluated, Verdict, speedup
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.phases import PHASES
from lightning_gpuprof.rules.base import MissingSignal, Rule, run_ms_per_step, steady_period_ms
from lightning_gpuprof.rules.discovery import describe, discover
from lightning_gpuprof.rules.verdict import decide

_IN_STEP = frozenset(PHASES) - {"validation", "checkpoint"}
"""What a finding can explain that is part of the ordinary step."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What the rules have to say about a run."""

    findings: tuple[Finding, ...]
    """Most valuable first; alternative explanations of the same time follow each other."""
    not_evaluated: tuple[NotEvaluated, ...]
    verdict: Verdict


def diagnose(metrics: Metrics, rules: Sequence[Rule] | None = None) -> Diagnosis:
    """Ask every rule and settle what they say.

    A rule that lacks a signal, or fails, is reported and does not stop the others.

    Args:
        metrics: The run.
        rules: Default: all that :func:`~lightning_gpuprof.rules.discovery.discover` finds.
    """
    not_evaluated: list[NotEvaluated] = []
    if rules is None:
        discovered = discover()
        rules = discovered.rules
        not_evaluated += discovered.failed
    findings = []
    for rule in rules:
        try:
            finding = rule.check(metrics)
            if finding is not None:
                findings.append(_checked(finding))
        except MissingSignal as missing:
            not_evaluated.append(NotEvaluated(rule=rule.id, why=missing.why))
        except Exception as error:  # one rule's mistake must not cost the report
            not_evaluated.append(NotEvaluated(rule=rule.id, why=f"failed: {describe(error)}"))
    specialises = {rule.id: tuple(getattr(rule, "specialises", ())) for rule in rules}
    return Diagnosis(
        findings=settle(findings, metrics, specialises),
        not_evaluated=tuple(sorted(not_evaluated, key=lambda n: n.rule)),
        verdict=decide(metrics),
    )


def settle(
    findings: Sequence[Finding], metrics: Metrics, specialises: Mapping[str, tuple[str, ...]]
) -> tuple[Finding, ...]:
    """Order findings by value, and let no millisecond be gained twice.

    Findings that explain the same time form a group; the gain stays with the most specific of them that has one. Groups
    are ordered by the lower bound of their gain times confidence, then severity. In that order each gain is held within
    what is left: of the period for what is part of an ordinary step, of the run's time per step for everything.

    Args:
        findings: What the rules said.
        metrics: The run.
        specialises: Rule id -> ids of more general rules that it explains in more detail.
    """
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.explains or f"rule {finding.rule}", []).append(finding)
    settled = [_one_gain(_specific_first(group, specialises)) for group in groups.values()]
    settled.sort(key=lambda group: min(_order(f) for f in group))
    return tuple(_within_the_period([finding for group in settled for finding in group], metrics))


def _checked(finding: Finding) -> Finding:
    if not isinstance(finding, Finding):
        raise TypeError(f"check() must return a Finding or None, got {finding!r}")
    return finding


def _value_ms(finding: Finding) -> float:
    if finding.gain is None:
        return 0.0
    lower_ms = finding.gain.saved_lower_ms_per_step
    return (finding.gain.saved_ms_per_step if lower_ms is None else lower_ms) * finding.confidence


def _order(finding: Finding) -> tuple[float, int, str]:
    return -_value_ms(finding), SEVERITIES.index(finding.severity), finding.rule


def _specific_first(group: list[Finding], specialises: Mapping[str, tuple[str, ...]]) -> list[Finding]:
    present = {finding.rule for finding in group}

    def generality(finding: Finding) -> int:
        return sum(finding.rule in specialises.get(other, ()) for other in present)

    return sorted(sorted(group, key=_order), key=generality)


def _one_gain(group: list[Finding]) -> list[Finding]:
    carrier = next((finding for finding in group if finding.gain is not None), None)
    if carrier is None:
        return group
    return [
        finding
        if finding is carrier or finding.gain is None
        else msgspec.structs.replace(
            finding, gain=None, summary=f"{finding.summary} The gain is counted once, under {carrier.rule}."
        )
        for finding in group
    ]


def _within_the_period(findings: list[Finding], metrics: Metrics) -> list[Finding]:
    period_ms = _or_zero(steady_period_ms, metrics)
    run_ms = _or_zero(run_ms_per_step, metrics)
    left_of_step_ms = period_ms
    left_of_run_ms = max(period_ms, run_ms)
    held = []
    for finding in findings:
        in_step = finding.explains in _IN_STEP
        if finding.gain is not None:
            room_ms = min(left_of_step_ms, left_of_run_ms) if in_step else left_of_run_ms
            finding = msgspec.structs.replace(finding, gain=_held(finding.gain, room_ms))
        if finding.gain is not None:
            left_of_run_ms -= finding.gain.saved_ms_per_step
            left_of_step_ms -= finding.gain.saved_ms_per_step if in_step else 0.0
        held.append(finding)
    return held


def _or_zero(measure: Callable[[Metrics], float], metrics: Metrics) -> float:
    try:
        return measure(metrics)
    except MissingSignal:
        return 0.0


def _held(gain: Gain, room_ms: float) -> Gain | None:
    if gain.saved_ms_per_step <= room_ms:
        return gain
    if room_ms <= 0 or gain.speedup_max <= 1:
        return None
    # T of the finding, from s = T / (T - R)
    whole_ms = gain.saved_ms_per_step * gain.speedup_max / (gain.speedup_max - 1)
    lower_ms = gain.saved_lower_ms_per_step
    return Gain(
        saved_ms_per_step=room_ms,
        speedup_max=speedup(room_ms, whole_ms),
        saved_lower_ms_per_step=None if lower_ms is None else min(lower_ms, room_ms),
    )
