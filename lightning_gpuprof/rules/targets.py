"""Whether a target can be reached."""

from lightning_gpuprof.model.config import parse_target
from lightning_gpuprof.model.finding import CombinedGain
from lightning_gpuprof.model.method import Outlook
from lightning_gpuprof.model.numbers import amount, listed
from lightning_gpuprof.rules.base import Finding, Metrics, MissingSignal, millis, possible
from lightning_gpuprof.rules.engine import Diagnosis

TARGET = "gpuprof.target"
"""Condition with the target as it was given."""


def outlook(metrics: Metrics, diagnosis: Diagnosis) -> Outlook | None:
    """Hold the run's target against what its findings can gain.

    A factor is one of the run's time without setup and teardown; samples per second are those of steady steps. To get
    from a time T to T / s, T (1 - 1/s) must be saved; gains of different findings are disjoint and add up.

    Args:
        metrics: Metrics of the run.
        diagnosis: What the rules said; its gains are added up.

    Returns:
        None if no target was given. Nothing is promised by a measurement that is not valid.
    """
    given = metrics.condition(TARGET)
    if not isinstance(given, (str, int, float)) or isinstance(given, bool):
        return None
    target = parse_target(given)
    if not metrics.validity.ok:
        return _not_held(str(target), "the measurement is not valid")
    if target.speedup is not None:
        return _of_run(str(target), target.speedup, metrics, diagnosis)
    now = metrics.steps.samples_per_s
    if now is None or not possible(now) or now == 0 or target.samples_per_s is None:
        return _not_held(str(target), "samples per second were not measured: the batch size is not known")
    return _of_steps(str(target), target.samples_per_s / now, now, metrics, diagnosis)


def _of_run(target: str, factor: float, metrics: Metrics, diagnosis: Diagnosis) -> Outlook:
    try:
        whole_ms = metrics.run_ms_per_step
    except MissingSignal as missing:
        return _not_held(target, missing.why)
    combined = diagnosis.combined
    return _held(
        target,
        whole_ms * (1 - 1 / factor),
        whole_ms,
        diagnosis.findings,
        available_ms=0.0 if combined is None else combined.saved_run_ms_per_step,
        lower_ms=0.0 if combined is None else combined.saved_run_lower_ms_per_step,
        what="the run's time per step",
    )


def _of_steps(target: str, factor: float, now: float, metrics: Metrics, diagnosis: Diagnosis) -> Outlook:
    period = metrics.steps.period_ms
    if period is None or not possible(period.mean) or period.mean == 0:
        return _not_held(target, "the step time was not measured")
    if factor <= 1:
        return Outlook(
            target=target,
            reached=True,
            reachable=True,
            certain=True,
            needed_ms_per_step=0.0,
            summary=f"The target of {target} is reached: {amount(now)} samples/s.",
        )
    combined: CombinedGain | None = diagnosis.combined
    beside = [finding for finding in diagnosis.findings if finding.claim.resource == "uneven steps"]
    gains = [finding.gain for finding in beside if finding.gain is not None]
    beside_ms = sum(gain.saved_ms_per_step for gain in gains)
    beside_lower_ms = sum(gain.saved_lower_ms_per_step or 0.0 for gain in gains)
    return _held(
        target,
        period.mean * (1 - 1 / factor),
        period.mean,
        [finding for finding in diagnosis.findings if finding.claim.is_in_step or finding in beside],
        available_ms=min(period.mean, beside_ms + (0.0 if combined is None else combined.saved_ms_per_step)),
        lower_ms=min(period.mean, beside_lower_ms + (0.0 if combined is None else combined.saved_lower_ms_per_step)),
        what="the mean step",
    )


def _held(
    target: str,
    needed_ms: float,
    whole_ms: float,
    findings: tuple[Finding, ...] | list[Finding],
    *,
    available_ms: float,
    lower_ms: float,
    what: str,
) -> Outlook:
    rules: list[str] = []
    saved_ms = 0.0
    for finding in findings:
        if finding.gain is not None and saved_ms < needed_ms:
            rules.append(finding.rule)
            saved_ms += finding.gain.saved_ms_per_step
    reachable = available_ms >= needed_ms
    certain = lower_ms >= needed_ms
    of = f"{millis(needed_ms)} of {millis(whole_ms)} ({what}) must be saved"
    if not rules:
        summary = f"The target of {target} is out of reach by what was found: {of}, and no finding has a gain."
    elif not reachable:
        summary = (
            f"The target of {target} is out of reach by what was found: {of}, and all findings together save at most "
            f"{millis(available_ms)} ({listed(rules)})."
        )
    else:
        sure = "also by the lower bounds of the gains" if certain else "if the fixes gain what they can at most"
        summary = f"The target of {target} is within reach by {listed(rules)}, {sure}: {of}."
    return Outlook(
        target=target,
        reached=False,
        reachable=reachable,
        certain=certain,
        needed_ms_per_step=needed_ms,
        available_ms_per_step=available_ms,
        rules=tuple(rules),
        summary=summary,
    )


def _not_held(target: str, why: str) -> Outlook:
    return Outlook(
        target=target, reached=False, reachable=None, summary=f"The target of {target} could not be judged: {why}."
    )
