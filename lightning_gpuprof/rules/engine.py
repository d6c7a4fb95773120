"""Runs the rules: findings by severity and gain, rules that could not judge, and the verdict."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from lightning_gpuprof.model.conditions import GOAL, UNTRACED
from lightning_gpuprof.model.evenness import LevelChange
from lightning_gpuprof.model.finding import (
    MIN_GAIN_RATIO,
    Checks,
    CombinedGain,
    Finding,
    NotEvaluated,
    Verdict,
    worthwhile,
)
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.missing import MissingSignal, NotApplicable
from lightning_gpuprof.model.phases import words_of
from lightning_gpuprof.rules.base import Metrics, Need, Rule, millis
from lightning_gpuprof.rules.discovery import describe, installed
from lightning_gpuprof.rules.gains import combined_gain, settled_gains
from lightning_gpuprof.rules.order import Order, at_their_severity
from lightning_gpuprof.rules.prediction import expected
from lightning_gpuprof.rules.steps.phase_change import PhaseChange
from lightning_gpuprof.rules.steps.uneven import WITHOUT_WAITS, elapsed_words
from lightning_gpuprof.rules.thresholds import applied
from lightning_gpuprof.rules.verdict import decide

_MEMORY = "lightning_gpuprof.rules.memory."
"""Where the rules about memory are."""
_ABOUT_LATENCY = ("step-outliers", "input-jitter", "gc-pauses")
"""Rules about steps that are slower than the others."""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules have to say about a run."""

    findings: tuple[Finding, ...]
    """By severity, and within it by what is saved; what explains the same time without a gain follows."""
    not_evaluated: tuple[NotEvaluated, ...]
    verdict: Verdict
    checks: Checks
    """The rules that reported nothing."""
    combined: CombinedGain | None = None
    """What all findings gain together; None if none has a gain."""


def diagnose(metrics: Metrics, rules: Sequence[Rule] | None = None) -> Diagnosis:
    """Ask every rule and settle what they say.

    A rule that lacks a signal, or fails, is reported and does not stop the others; one that has nothing to judge in
    such a run is left out. Thresholds that the run was given (conditions ``gpuprof.threshold.<rule>.<name>``) are used
    in place of the rules' own.

    Args:
        metrics: The run.
        rules: Default: all that :func:`~lightning_gpuprof.rules.discovery.installed` knows.

    Returns:
        Findings in the order of the report, warnings about the user's goal first; rules that could not judge
        in the order of their ids.
    """
    not_evaluated: list[NotEvaluated] = []
    if rules is None:
        discovered = installed()
        rules = discovered.rules
        not_evaluated += discovered.failed
    rules, misfits = applied(rules, metrics.run)
    not_evaluated += misfits
    findings, passed, not_applicable = [], [], []
    for rule in rules:
        try:
            finding = rule.check(metrics)
            if finding is None and (lacking := _lacking(rule, metrics)):
                not_applicable.append(NotEvaluated(rule=rule.id, why=lacking))
            elif finding is None:
                passed.append(rule.id)
            else:
                findings.append(_of_loader(_checked(finding), metrics))
        except NotApplicable as reason:
            not_applicable.append(NotEvaluated(rule=rule.id, why=reason.why))
        except MissingSignal as missing:
            if unasked := _unasked(missing, metrics):
                not_applicable.append(NotEvaluated(rule=rule.id, why=unasked))
            else:
                not_evaluated.append(NotEvaluated(rule=rule.id, why=missing.why))
        except Exception as error:  # one rule's mistake must not cost the report
            not_evaluated.append(NotEvaluated(rule=rule.id, why=f"failed: {describe(error)}"))
    specialises = {rule.id: tuple(getattr(rule, "specialises", ())) for rule in rules}
    clues = {rule.id for rule in rules if getattr(rule, "is_clue", False)}
    settled = with_onset(settle(findings, metrics, specialises, clues), metrics)
    alone = {finding.rule: finding for finding in findings}
    settled = tuple(_with_expected(one, alone[one.rule], metrics) for one in settled)
    return Diagnosis(
        findings=_leading(settled, rules, metrics.condition(GOAL)),
        combined=combined_gain(settled, metrics),
        not_evaluated=tuple(sorted(not_evaluated, key=lambda n: n.rule)),
        verdict=decide(metrics),
        checks=Checks(passed=tuple(passed), not_applicable=tuple(not_applicable)),
    )


def _leading(findings: tuple[Finding, ...], rules: Sequence[Rule], goal: Value) -> tuple[Finding, ...]:
    """Warnings about the user's goal first, each in the order that it had."""
    about = set(_ABOUT_LATENCY) if goal == "latency" else set()
    if goal == "memory":
        about = {rule.id for rule in rules if type(rule).__module__.startswith(_MEMORY)}
    return tuple(sorted(findings, key=lambda one: one.severity == "info" or one.rule not in about))


def _lacking(rule: Rule, metrics: Metrics) -> str:
    """Why a run has nothing that a rule is about; empty if it has."""
    lacks: Mapping[Need | None, tuple[bool, str]] = {
        "gpu": (metrics.is_cpu_only is True, "the model runs on the CPU"),
        "ranks": (metrics.condition("trainer.world_size") == 1, "one rank trains"),
        "workers": (metrics.condition("loader.num_workers") == 0, "batches are loaded without workers"),
        "compile": (metrics.compile is None, "nothing was compiled"),
    }
    is_lacking, why = lacks.get(getattr(rule, "needs", None), (False, ""))
    return why if is_lacking else ""


def _unasked(missing: MissingSignal, metrics: Metrics) -> str:
    """Why nobody wanted a signal that is missing; empty if it was wanted."""
    is_traced = metrics.windows or metrics.condition(UNTRACED) is not True or "no trace window" not in missing.why
    return "" if is_traced else "no trace window was asked for: windows=[]"


def settle(
    findings: Sequence[Finding],
    metrics: Metrics,
    specialises: Mapping[str, tuple[str, ...]] | None = None,
    clues: Collection[str] = (),
) -> tuple[Finding, ...]:
    """Order findings by value, and let no millisecond be gained twice.

    The steps are :func:`~lightning_gpuprof.rules.gains.settled_gains`, where of findings that explain the same time the
    most specific one that has a gain comes first, :func:`~lightning_gpuprof.rules.order.at_their_severity` and
    :meth:`~lightning_gpuprof.rules.order.Order.of`.

    Args:
        findings: What the rules said.
        metrics: The run.
        specialises: Rule id -> ids of more general rules that it explains in more detail.
        clues: Ids of rules that say when and where steps are slow, not why.

    Returns:
        In the order of the report; without a gain if its time is already counted under others.
    """
    order = Order(specialises=specialises or {}, clues=clues)
    had_gain = {finding.rule for finding in findings if finding.gain is not None}
    held = settled_gains(findings, metrics, order.specific_first)
    return tuple(order.of(at_their_severity(held, had_gain, metrics), had_gain))


def _with_expected(finding: Finding, alone: Finding, metrics: Metrics) -> Finding:
    """A finding with what its change is expected to bring, where none of its gain alone is counted elsewhere."""
    found = expected(alone, metrics)
    if found is None or finding.gain is None or alone.gain is None:
        return finding
    if finding.gain.saved_ms_per_step < (1 - MIN_GAIN_RATIO) * alone.gain.saved_ms_per_step:
        return finding
    if worthwhile(found.whole_ms - found.step_ms, found.whole_ms):
        return msgspec.structs.replace(finding, expected=found)
    note = f" With the fix, the step is expected to take {millis(found.step_ms)}, so nothing is gained."
    return msgspec.structs.replace(finding, gain=None, severity="info", summary=finding.summary + note)


def _checked(finding: Finding) -> Finding:
    if not isinstance(finding, Finding):
        raise TypeError(f"check() must return a Finding or None, got {finding!r}")
    return finding


def _of_loader(finding: Finding, metrics: Metrics) -> Finding:
    """A change of the training DataLoader says which one it is for, if there are several."""
    change, which = finding.change, metrics.slowest_of_loaders
    if change is None or change.call != "DataLoader" or change.inside or not which:
        return finding
    return msgspec.structs.replace(finding, change=msgspec.structs.replace(change, which=which))


def with_onset(findings: Sequence[Finding], metrics: Metrics) -> tuple[Finding, ...]:
    """The first finding about the phase that changed says when that was, unless it is the one about the change.

    Args:
        findings: In the order of the report.
        metrics: Metrics of the run.

    Returns:
        The same findings in the same order, at most one of them with a longer summary.
    """
    lasting = PhaseChange().lasting(metrics)
    if lasting is None or not PhaseChange().is_certain(lasting):
        return tuple(findings)
    change = lasting.change
    first = next((finding for finding in findings if finding.explains and finding.explains.phase == change.phase), None)
    if first is None or first.rule == PhaseChange.id:
        return tuple(findings)
    dated = msgspec.structs.replace(first, summary=f"{first.summary} {_words(lasting)}")
    return tuple(dated if finding is first else finding for finding in findings)


def _words(lasting: LevelChange) -> str:
    """As "Since batch 121 (3.10 s into the run), data_wait takes 8.30 ms instead of 4.10 ms"."""
    change = lasting.change
    before, after = sorted((change.slow, change.fast), key=lambda part: part.from_batch)
    now_ms, then_ms = after.phases_ms.get(change.phase, 0.0), before.phases_ms.get(change.phase, 0.0)
    lasts = after is lasting.levels[-1]
    counted = WITHOUT_WAITS if change.undelayed else ""
    when = f"Since batch {after.from_batch}" if lasts else f"From batch {after.from_batch} to {after.to_batch}"
    took = "takes" if lasts else "took"
    what = f"{words_of(change.phase)} {took} {millis(now_ms)} instead of {millis(then_ms)}"
    return f"{when}{elapsed_words(after)}, {what}{counted}."
