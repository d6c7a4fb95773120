"""Runs the rules: findings by severity and gain, rules that could not judge, and the verdict."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from lightning_gpuprof.model.claim import Resource
from lightning_gpuprof.model.finding import (
    MIN_GAIN_RATIO,
    SEVERITIES,
    Checks,
    CombinedGain,
    Finding,
    Gain,
    NotEvaluated,
    Severity,
    Verdict,
    speedup,
    worthwhile,
)
from lightning_gpuprof.model.missing import MissingSignal, NotApplicable
from lightning_gpuprof.model.share import usable
from lightning_gpuprof.model.signals import device_step
from lightning_gpuprof.rules.base import CRITICAL_STEPS, Claim, Metrics, Phase, Rule, millis, possible, severity
from lightning_gpuprof.rules.bounds import Pace, most_ms, phases_ms, workers_pace
from lightning_gpuprof.rules.claims import OUTLIERS, WAIT_FOR_BATCHES
from lightning_gpuprof.rules.discovery import describe, installed
from lightning_gpuprof.rules.prediction import expected
from lightning_gpuprof.rules.steps.onset import with_onset
from lightning_gpuprof.rules.thresholds import applied
from lightning_gpuprof.rules.verdict import decide

_BESIDE_THE_STEP: frozenset[Resource] = frozenset({"uneven steps", "outside steps"})
"""What is no part of the ordinary step. All else is."""

_IN_IDLE_TIME: frozenset[Resource] = frozenset({"batches", "CPUs", "training thread", "device idle"})
"""What can only be gained, on a device, while the device has no work."""

_LIFTS_THE_PACE: frozenset[Resource] = frozenset({"batches", "CPUs"})
"""What makes the batches come sooner, too, when it is gained."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
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
            if finding is None:
                passed.append(rule.id)
            else:
                findings.append(_checked(finding))
        except NotApplicable as reason:
            not_applicable.append(NotEvaluated(rule=rule.id, why=reason.why))
        except MissingSignal as missing:
            not_evaluated.append(NotEvaluated(rule=rule.id, why=missing.why))
        except Exception as error:  # one rule's mistake must not cost the report
            not_evaluated.append(NotEvaluated(rule=rule.id, why=f"failed: {describe(error)}"))
    specialises = {rule.id: tuple(getattr(rule, "specialises", ())) for rule in rules}
    clues = {rule.id for rule in rules if getattr(rule, "is_clue", False)}
    settled = with_onset(settle(findings, metrics, specialises, clues), metrics)
    alone = {finding.rule: finding for finding in findings}
    settled = tuple(_with_expected(one, alone[one.rule], metrics) for one in settled)
    return Diagnosis(
        findings=settled,
        combined=combined_gain(settled, metrics),
        not_evaluated=tuple(sorted(not_evaluated, key=lambda n: n.rule)),
        verdict=decide(metrics),
        checks=Checks(passed=tuple(passed), not_applicable=tuple(not_applicable)),
    )


def settle(
    findings: Sequence[Finding],
    metrics: Metrics,
    specialises: Mapping[str, tuple[str, ...]],
    clues: Collection[str] = (),
) -> tuple[Finding, ...]:
    """Order findings by value, and let no millisecond be gained twice.

    No gain is above the time of what the finding explains (:func:`~lightning_gpuprof.rules.bounds.most_ms`). Findings
    that explain the same time form a group; the gain stays with the most specific of them that has one. What a more
    general one gains beyond it stays with that, so that a group gains as much as its largest gain. In the order of the
    lower bound of their gain times confidence, what names one phase before what is spread over several, each gain is
    held within what is left: of the step time for what is part of an ordinary step, of its phases where they are known,
    of the run's time per step for everything. Where windows show how long a device is busy, its
    work gains no more than that, host and idle causes no more than the rest of the mean step, and full clocks shorten
    what other gains leave of the work. What makes no batch come sooner gains no more than the pace of the workers
    leaves, unless another finding makes them faster.

    No severity is above what the gain that is left deserves, and where the measurement is not valid, none that rests on
    time is critical. A finding whose gain is all counted elsewhere is no more severe than the one of the same time that
    has it, and information where there is none. They are then in this order: what is critical and never had a
    gain, as a run that ended out of memory; by severity, and within it by what is saved; alternatives without a gain
    after the one that has it; a cause whose gain has no bound before the effect that it explains in more detail; a clue
    without a change after the first warning that has one, unless it explains that in more detail in a phase of both.

    Args:
        findings: What the rules said.
        metrics: The run.
        specialises: Rule id -> ids of more general rules that it explains in more detail.
        clues: Ids of rules that say when and where steps are slow, not why.
    """
    vague = {finding.rule for finding in findings if finding.rule in clues and finding.change is None}
    pace, faster = workers_pace(metrics), _makes_workers_faster(findings, metrics)
    groups: dict[Claim, list[Finding]] = {}
    for finding in findings:
        finding = _bounded(finding, metrics)
        finding = finding if pace is None else _at_the_pace(finding, pace, faster=faster, metrics=metrics)
        groups.setdefault(claim_of(finding), []).append(finding)
    settled = [_one_gain(_specific_first(group, specialises, vague)) for group in groups.values()]
    settled.sort(key=lambda group: (bool(claim_of(group[0]).within), min(_order(f) for f in group)))
    disasters = {finding.rule for group in settled if _is_disaster(group) for finding in group}
    left_of_pace_ms = math.inf if pace is None or faster else pace.room_ms
    held = _within_the_period([f for group in settled for f in group], metrics, left_of_pace_ms)
    judged = _at_their_severity(held, {f.rule for f in findings if f.gain is not None}, metrics)
    return tuple(_clues_after_a_change(_in_order(judged, specialises, disasters), specialises, vague))


def combined_gain(findings: Sequence[Finding], metrics: Metrics) -> CombinedGain | None:
    """Amdahl's bound for all fixes at once, from gains that :func:`settle` has made disjoint.

    Args:
        findings: Findings whose gains do not overlap.
        metrics: Metrics of the run.

    Returns:
        None if no finding has a gain, if neither the step time nor the run's time per step is known, or if the
        measurement is not valid.
    """
    if not metrics.validity.ok:
        return None
    gains = [(finding, finding.gain) for finding in findings if finding.gain is not None]
    period_ms, run_ms = _times_ms(metrics)
    if not gains or run_ms <= 0:
        return None
    in_step = [gain for finding, gain in gains if is_in_step(finding)]
    longest_ms = max((gain.saved_ms_per_step for gain in in_step), default=0.0)
    room_ms = max(longest_ms, period_ms - _unclaimed_ms([f for f, _ in gains if is_in_step(f)], metrics))
    saved_ms = min(period_ms, room_ms, sum(gain.saved_ms_per_step for gain in in_step))
    saved_run_ms = min(run_ms, sum(gain.saved_ms_per_step for _, gain in gains))
    return CombinedGain(
        period_ms=period_ms,
        saved_ms_per_step=saved_ms,
        step_speedup_max=speedup(saved_ms, period_ms),
        run_ms_per_step=run_ms,
        saved_run_ms_per_step=saved_run_ms,
        run_speedup_max=speedup(saved_run_ms, run_ms),
        saved_lower_ms_per_step=min(saved_ms, sum(map(_lower_ms, in_step))),
        saved_run_lower_ms_per_step=min(saved_run_ms, sum(_lower_ms(gain) for _, gain in gains)),
    )


def _unclaimed_ms(findings: Sequence[Finding], metrics: Metrics) -> float:
    """Time of the ordinary step in phases that no finding takes anything from; 0 where that is not known of one.

    Gains are of the mean step, which stalls make longer: their sum may pass all of the ordinary one.

    Args:
        findings: Those that gain a part of the ordinary step.
        metrics: The run.
    """
    claimed = [claim_of(finding).phases for finding in findings]
    if not all(claimed):
        return 0.0
    left = set(metrics.shares).difference(*claimed)
    return sum(share.median_ms for phase in left if usable(share := metrics.shares[phase]))


def _with_expected(finding: Finding, alone: Finding, metrics: Metrics) -> Finding:
    """A finding with what its change is expected to bring, where none of its gain is counted elsewhere.

    Args:
        finding: With the gain that is left to it.
        alone: As its rule has it.
        metrics: The run.
    """
    found = expected(alone, metrics)
    if found is None or finding.gain is None or alone.gain is None:
        return finding
    if finding.gain.saved_ms_per_step < (1 - MIN_GAIN_RATIO) * alone.gain.saved_ms_per_step:
        return finding
    if worthwhile(found.whole_ms - found.step_ms, found.whole_ms):
        return msgspec.structs.replace(finding, expected=found)
    note = f" But the step is expected to take {millis(found.step_ms)} then: nothing is gained."
    return msgspec.structs.replace(finding, gain=None, severity="info", summary=finding.summary + note)


def claim_of(finding: Finding) -> Claim:
    """What a finding explains; a part of the step of its own if it does not say."""
    return finding.explains or Claim(resource="step", name=f"rule {finding.rule}")


def is_in_step(finding: Finding) -> bool:
    """Whether what a finding explains is part of the ordinary step."""
    return claim_of(finding).resource not in _BESIDE_THE_STEP


def _checked(finding: Finding) -> Finding:
    if not isinstance(finding, Finding):
        raise TypeError(f"check() must return a Finding or None, got {finding!r}")
    return finding


def _value_ms(finding: Finding) -> float:
    return 0.0 if finding.gain is None else _lower_ms(finding.gain) * finding.confidence


def _lower_ms(gain: Gain) -> float:
    return gain.saved_ms_per_step if gain.saved_lower_ms_per_step is None else gain.saved_lower_ms_per_step


def _order(finding: Finding) -> tuple[float, int, str]:
    return -_value_ms(finding), SEVERITIES.index(finding.severity), finding.rule


def _is_disaster(group: list[Finding]) -> bool:
    """Whether a group is critical although no time is gained: the run ended out of memory, or data may be wrong."""
    return all(f.gain is None for f in group) and any(f.severity == "critical" for f in group)


def _specific_first(
    group: list[Finding], specialises: Mapping[str, tuple[str, ...]], vague: Collection[str]
) -> list[Finding]:
    present = {finding.rule for finding in group}
    acts = any(_acts(finding) for finding in group)

    def generality(finding: Finding) -> tuple[bool, int]:
        return acts and finding.rule in vague, sum(finding.rule in specialises.get(other, ()) for other in present)

    return sorted(sorted(group, key=_order), key=generality)


def _one_gain(group: list[Finding]) -> list[Finding]:
    """Leave each gain that is larger than those before it what is above them, and no other gain."""
    counted: Finding | None = None
    counted_ms = 0.0
    settled = []
    for finding in group:
        gain = finding.gain
        if gain is not None and counted is not None:
            above = _above(gain, counted_ms)
            note = (
                f"Same time as {counted.rule}; fixing that fixes this."
                if above is None
                else f"{millis(counted_ms)} of it is the same time as {counted.rule}; fixing that fixes this part."
            )
            summary = f"{finding.summary} {note}"
            finding = msgspec.structs.replace(finding, gain=above, summary=summary)
        if gain is not None and finding.gain is not None:
            counted, counted_ms = counted or finding, gain.saved_ms_per_step
        settled.append(finding)
    return settled


def _above(gain: Gain, counted_ms: float) -> Gain | None:
    """What a gain is above another one of the same time; None if that is not worthwhile."""
    above_ms = gain.saved_ms_per_step - counted_ms
    if above_ms <= 0 or gain.speedup_max <= 1 or not worthwhile(above_ms, _whole_ms(gain)):
        return None
    return Gain(
        saved_ms_per_step=above_ms,
        speedup_max=speedup(above_ms, _whole_ms(gain)),
        saved_lower_ms_per_step=max(0.0, _lower_ms(gain) - counted_ms),
    )


def _bounded(finding: Finding, metrics: Metrics) -> Finding:
    """A finding whose gain is no more than the time of what it explains."""
    gain = finding.gain
    if gain is None or gain.speedup_max <= 1:
        return finding
    held = _held(gain, most_ms(claim_of(finding), _whole_ms(gain), metrics))
    return msgspec.structs.replace(finding, gain=held, severity="info" if held is None else finding.severity)


def _at_their_severity(findings: Sequence[Finding], had_gain: Collection[str], metrics: Metrics) -> list[Finding]:
    """Findings that are no more severe than what their gain, or that of the same time, and the measurement allow.

    Args:
        findings: With the gains that are left.
        had_gain: Ids of the rules whose findings had a gain of their own.
        metrics: The run.
    """
    judged = [_at_its_severity(finding, metrics) for finding in findings]
    leaders: dict[Claim, Severity] = {}
    for finding in judged:
        if finding.gain is not None:
            before = leaders.get(claim_of(finding), "info")
            leaders[claim_of(finding)] = min(before, finding.severity, key=SEVERITIES.index)
    for n, finding in enumerate(judged):
        if finding.gain is None and finding.rule in had_gain:
            most = max(finding.severity, leaders.get(claim_of(finding), "info"), key=SEVERITIES.index)
            judged[n] = msgspec.structs.replace(finding, severity=most)
    return judged


def _at_its_severity(finding: Finding, metrics: Metrics) -> Finding:
    """A finding that is no more severe than what its gain, if it has one, and the measurement allow."""
    gain, most = finding.gain, finding.severity
    if gain is None:
        return finding
    most = max(most, severity(1 - 1 / max(1.0, gain.speedup_max), CRITICAL_STEPS), key=SEVERITIES.index)
    if most == "critical" and not metrics.validity.ok:
        note = " The measurement is not valid, so a longer or complete run has to confirm it."
        return msgspec.structs.replace(finding, severity="warning", summary=finding.summary + note)
    return msgspec.structs.replace(finding, severity=most)


def _in_order(
    findings: Sequence[Finding], specialises: Mapping[str, tuple[str, ...]], disasters: Collection[str]
) -> list[Finding]:
    def rank(finding: Finding) -> tuple[bool, int, float, str]:
        saved_ms = 0.0 if finding.gain is None else finding.gain.saved_ms_per_step
        disaster = finding.gain is None and finding.rule in disasters
        return not disaster, SEVERITIES.index(finding.severity), -saved_ms, finding.rule

    with_gain = {finding.explains for finding in findings if finding.gain is not None and finding.explains}
    followers = [finding for finding in findings if finding.gain is None and finding.explains in with_gain]
    ordered: list[Finding] = []
    for finding in sorted((f for f in findings if f not in followers), key=rank):
        ordered.append(finding)
        if finding.gain is not None and finding.explains in with_gain:
            with_gain.discard(finding.explains)
            ordered += [follower for follower in followers if follower.explains == finding.explains]
    for cause in [finding for finding in ordered if finding.gain is None]:
        effects = specialises.get(cause.rule, ())
        first = next((place for place, finding in enumerate(ordered) if finding.rule in effects), len(ordered))
        if first < ordered.index(cause):
            ordered.remove(cause)
            ordered.insert(first, cause)
    return ordered


def _acts(finding: Finding) -> bool:
    """Whether a finding says what to change, and that this is worth more than a note."""
    return finding.change is not None and finding.gain is not None and finding.severity != "info"


def _clues_after_a_change(
    findings: list[Finding], specialises: Mapping[str, tuple[str, ...]], vague: Collection[str]
) -> list[Finding]:
    """Findings of which the first that says what to change stands before all that only say where to look.

    Not before one that says why it is slow: steps that get longer and longer are in Python, and get longer compiled.
    """
    first = next((finding for finding in findings if _acts(finding)), None)
    if first is None:
        return findings
    phases = set(claim_of(first).phases)

    def yields(clue: Finding) -> bool:
        explains = first.rule in specialises.get(clue.rule, ()) and phases.intersection(claim_of(clue).phases)
        return clue.rule in vague and not explains

    place = findings.index(first)
    before, clues = [f for f in findings[:place] if not yields(f)], [f for f in findings[:place] if yields(f)]
    return [*before, first, *clues, *findings[place + 1 :]]


def _makes_workers_faster(findings: Sequence[Finding], metrics: Metrics) -> bool:
    """Whether workers are the limit and a finding on the wait for them has a gain: its fix lifts their pace."""
    behind = metrics.input is not None and metrics.input.verdict == "processing"
    return behind and any(f.gain is not None and f.explains in (WAIT_FOR_BATCHES, OUTLIERS) for f in findings)


def _is_paced(finding: Finding) -> bool:
    """Whether what a finding explains is part of the step and in no way of the making of batches."""
    return is_in_step(finding) and claim_of(finding).resource not in _LIFTS_THE_PACE


def _at_the_pace(finding: Finding, pace: Pace, *, faster: bool, metrics: Metrics) -> Finding:
    """A finding by itself with the gain that the pace of the workers leaves it, or with what else that gain needs."""
    gain = finding.gain
    if gain is None or not _is_paced(finding) or gain.saved_ms_per_step <= pace.room_ms:
        return finding
    if faster:
        note = f" {pace.words}: what goes beyond that is gained only if batches come faster, too."
        return msgspec.structs.replace(finding, summary=finding.summary + note)
    held = _held(gain, pace.room_ms)
    left_ratio = 0.0 if held is None else _lower_ms(held) / pace.period_ms
    return msgspec.structs.replace(
        finding,
        gain=held,
        severity=max(finding.severity, severity(left_ratio, metrics.steps.steady_count), key=SEVERITIES.index),
        summary=f"{finding.summary} {pace.words}, so no step gets shorter than that: it would wait for them instead.",
    )


def _within_the_period(findings: list[Finding], metrics: Metrics, left_of_pace_ms: float) -> list[Finding]:
    left_of_step_ms, left_of_run_ms = _times_ms(metrics)
    times = _device_times_ms(metrics)
    left_idle_ms, left_busy_ms = times or (math.inf, math.inf)
    held = list(findings)
    taken_ms: dict[frozenset[Phase], float] = {}
    clocks_last = sorted(range(len(held)), key=lambda n: times is not None and claim_of(held[n]).resource == "clocks")
    for n in clocks_last:
        finding = held[n]
        if finding.gain is None:
            continue
        resource = claim_of(finding).resource
        room_ms = left_of_run_ms
        if is_in_step(finding):
            room_ms = min(room_ms, left_of_step_ms)
        if _is_paced(finding):
            room_ms = min(room_ms, left_of_pace_ms)
        in_known_phases = is_in_step(finding) and finding.gain.speedup_max > 1
        phases = frozenset(claim_of(finding).phases if in_known_phases else ())
        if phases:
            room_ms = min(room_ms, _left_of_phases_ms(phases, taken_ms, _whole_ms(finding.gain), metrics))
        if resource in _IN_IDLE_TIME:
            room_ms = min(room_ms, left_idle_ms)
        elif resource == "device busy":
            room_ms = min(room_ms, left_busy_ms)
        elif resource == "clocks" and times is not None and times[1] > 0:
            room_ms = min(room_ms, left_busy_ms, finding.gain.saved_ms_per_step * left_busy_ms / times[1])
        gain = _held(finding.gain, room_ms)
        note = "" if gain is not None else " The time is counted under other findings already."
        held[n] = msgspec.structs.replace(finding, gain=gain, summary=finding.summary + note)
        saved_ms = 0.0 if gain is None else gain.saved_ms_per_step
        taken_ms[phases] = taken_ms.get(phases, 0.0) + saved_ms
        left_of_run_ms -= saved_ms
        left_of_step_ms -= saved_ms if is_in_step(finding) else 0.0
        left_of_pace_ms -= saved_ms if _is_paced(finding) else 0.0
        left_idle_ms -= saved_ms if resource in _IN_IDLE_TIME else 0.0
        left_busy_ms -= saved_ms if resource == "device busy" else 0.0
    return held


def _left_of_phases_ms(
    phases: frozenset[Phase], taken_ms: Mapping[frozenset[Phase], float], whole_ms: float, metrics: Metrics
) -> float:
    """What others leave of some phases: of these alone, and of these with all phases that the others' claims join.

    Args:
        phases: Those that a claim takes time from, at least one.
        taken_ms: What is gained already, by the phases that it is taken from.
        whole_ms: T of the gain.
        metrics: The run.
    """
    joined = phases.union(*(others for others in taken_ms if others & phases))
    return min(
        phases_ms(among, whole_ms, metrics) - sum(ms for others, ms in taken_ms.items() if others and others <= among)
        for among in (phases, joined)
    )


def _device_times_ms(metrics: Metrics) -> tuple[float, float] | None:
    """Idle and busy time of the busiest device in a step; None on a CPU, and if no window shows it.

    Idle time is that of the mean step: what the host does every few steps is in no median.
    """
    step, period_ms = device_step(metrics), _or_zero(Metrics.require_steady, metrics)
    if step is None or step.window is None or period_ms <= 0:
        return None
    mean_ms = period_ms if metrics.steps.period_ms is None else metrics.steps.period_ms.mean
    busy_ms = step.pace_ms - step.idle_ms
    return max(period_ms, mean_ms if possible(mean_ms) else 0.0) - busy_ms, busy_ms


def _times_ms(metrics: Metrics) -> tuple[float, float]:
    """The period, and the run's time per step, which is at least that; 0 for what was not measured."""
    period_ms = _or_zero(Metrics.require_steady, metrics)
    return period_ms, max(period_ms, _or_zero(lambda run: run.run_ms_per_step, metrics))


def _or_zero(measure: Callable[[Metrics], float], metrics: Metrics) -> float:
    try:
        return measure(metrics)
    except MissingSignal:
        return 0.0


def _held(gain: Gain, room_ms: float) -> Gain | None:
    if gain.saved_ms_per_step <= room_ms:
        return gain
    if room_ms <= 0 or gain.speedup_max <= 1 or not worthwhile(room_ms, _whole_ms(gain)):
        return None
    lower_ms = gain.saved_lower_ms_per_step
    return Gain(
        saved_ms_per_step=room_ms,
        speedup_max=speedup(room_ms, _whole_ms(gain)),
        saved_lower_ms_per_step=None if lower_ms is None else min(lower_ms, room_ms),
    )


def _whole_ms(gain: Gain) -> float:
    """T of a gain whose speed-up is above 1, from s = T / (T - R)."""
    return gain.saved_ms_per_step * gain.speedup_max / (gain.speedup_max - 1)
