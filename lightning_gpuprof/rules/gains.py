"""Lets no millisecond be gained twice: what is left of each gain beside the others, and what all gain together."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec.structs import replace

from lightning_gpuprof.model.finding import SEVERITIES, CombinedGain, Finding, Gain, speedup
from lightning_gpuprof.model.loading import Loading, Pace
from lightning_gpuprof.model.missing import MissingSignal
from lightning_gpuprof.model.phases import Part
from lightning_gpuprof.model.signals import device_step
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import Claim, Metrics, Phase, millis, possible, severity, usable
from lightning_gpuprof.rules.claims import OUTLIERS, WAIT_FOR_BATCHES

_MOST_RATIO = 0.99
"""Of a time, all fixes together save no more: bounds of speed-ups end at 100x (:func:`speedup`)."""


def settled_gains(
    findings: Sequence[Finding], metrics: Metrics, specific_first: Callable[[list[Finding]], list[Finding]]
) -> list[Finding]:
    """Findings with the gain that is left to each.

    No gain is above the time of what the finding explains (:func:`most_ms`). Findings
    that explain the same time form a group; the gain stays with the most specific of them that has one. What a more
    general one gains beyond it stays with that, so that a group gains as much as its largest gain. In the order of the
    lower bound of their gain times confidence, what names one phase before what is spread over several, each gain is
    held within what is left: of the step time for what is part of an ordinary step, of its phases where they are known,
    of the run's time per step for everything. Where windows show how long a device is busy, its work gains no more than
    that, host and idle causes no more than the rest of the mean step, and full clocks shorten what other gains leave of
    the work. What makes no batch come sooner gains no more than the pace of the workers leaves, unless another finding
    makes them faster.

    Args:
        findings: What the rules said.
        metrics: The run.
        specific_first: Puts the findings of a group into that order.

    Returns:
        A new list, the findings of a group beside each other; a gain of which nothing is left is None.
    """
    pace = metrics.loading.pace if isinstance(metrics.loading, Loading) else None
    faster = _makes_workers_faster(findings, metrics)
    groups: dict[Claim, list[Finding]] = {}
    for finding in findings:
        finding = _bounded(finding, metrics)
        finding = finding if pace is None else _at_the_pace(finding, pace, faster=faster, metrics=metrics)
        groups.setdefault(finding.claim, []).append(finding)
    shared = [_one_gain(specific_first(group)) for group in groups.values()]
    shared.sort(key=lambda group: (bool(group[0].claim.within), min(by_value(f) for f in group)))
    return _within_budgets([f for group in shared for f in group], metrics, None if faster else pace)


def by_value(finding: Finding) -> tuple[float, int, str]:
    """A key that sorts by the lower bound of the gain times confidence, largest first."""
    value_ms = 0.0 if finding.gain is None else finding.gain.lower_ms * finding.confidence
    return -value_ms, SEVERITIES.index(finding.severity), finding.rule


def combined_gain(findings: Sequence[Finding], metrics: Metrics) -> CombinedGain | None:
    """Amdahl's bound for all fixes at once, from gains that were made disjoint.

    Args:
        findings: Findings whose gains do not overlap.
        metrics: Metrics of the run.

    Returns:
        None if no finding has a gain, if neither the step time nor the run's time per step is known, or if the
        measurement is not valid.
    """
    gains = [finding.gain for finding in findings if finding.gain is not None]
    period_ms, run_ms = _times_ms(metrics)
    if not metrics.validity.ok or not gains or run_ms <= 0:
        return None
    inside = [finding for finding in findings if finding.claim.is_in_step and finding.gain is not None]
    in_step = [finding.gain for finding in inside if finding.gain is not None]
    longest_ms, longest_run_ms = _most_ms(inside, period_ms), _most_ms(findings, run_ms)
    room_ms = max(longest_ms, _room_ms(inside, period_ms, metrics))
    saved_ms = min(_MOST_RATIO * period_ms, room_ms, max(longest_ms, sum(gain.saved_ms_per_step for gain in in_step)))
    saved_run_ms = min(_MOST_RATIO * run_ms, max(longest_run_ms, sum(gain.saved_ms_per_step for gain in gains)))
    return CombinedGain(
        period_ms=period_ms,
        saved_ms_per_step=saved_ms,
        step_speedup_max=speedup(saved_ms, period_ms),
        run_ms_per_step=run_ms,
        saved_run_ms_per_step=saved_run_ms,
        run_speedup_max=speedup(saved_run_ms, run_ms),
        saved_lower_ms_per_step=min(saved_ms, sum(gain.lower_ms for gain in in_step)),
        saved_run_lower_ms_per_step=min(saved_run_ms, sum(gain.lower_ms for gain in gains)),
    )


def _most_ms(findings: Sequence[Finding], whole_ms: float) -> float:
    """The most that one of them saves of a time, which is never all of it; together they save no less."""
    most_ms = max((finding.most_saved_ms for finding in findings if finding.gain is not None), default=0.0)
    return min(_MOST_RATIO * whole_ms, most_ms)


def _room_ms(findings: Sequence[Finding], period_ms: float, metrics: Metrics) -> float:
    """The most of the ordinary step that some findings save together.

    Those about phases leave all phases that none of them claims. What the others save lies anywhere, so that a part of
    it is what those save already. Gains are of the mean step, which stalls make longer: of the ordinary one each saves
    the part that it saves of its own whole, as their sum may pass all of it.
    """
    taken = {phase for finding in findings for phase in finding.claim.phases}
    shares = metrics.shares.items()
    left_ms = period_ms
    if taken:
        left_ms = sum(share.median_ms for phase, share in shares if phase not in taken and usable(share))
    anywhere = [finding.gain for finding in findings if finding.gain is not None and not finding.claim.phases]
    if anywhere:
        in_phases = [finding.gain for finding in findings if finding.gain is not None and finding.claim.phases]
        left_ms = max(left_ms, period_ms * (1 - sum(map(_ratio, in_phases))))
    return period_ms - left_ms * (1 - min(1.0, sum(map(_ratio, anywhere))))


def _ratio(gain: Gain) -> float:
    """Share of its own whole that a gain saves: R / T, from s = T / (T - R)."""
    return 1 - 1 / gain.speedup_max


def _bounded(finding: Finding, metrics: Metrics) -> Finding:
    """A finding whose gain is no more than the time of what it explains."""
    gain = finding.gain
    if gain is None or gain.speedup_max <= 1:
        return finding
    held = gain.within(most_ms(finding.claim, gain.whole_ms, metrics))
    return replace(finding, gain=held, severity="info" if held is None else finding.severity)


def _one_gain(group: list[Finding]) -> list[Finding]:
    """Leave each gain that is larger than those before it what is above them, and no other gain."""
    counted: Finding | None = None
    counted_ms = 0.0
    settled = []
    for finding in group:
        gain = finding.gain
        if gain is not None and counted is not None:
            above = gain.beyond(counted_ms)
            note = (
                f"Same time as {counted.rule}; fixing that fixes this."
                if above is None
                else f"{millis(counted_ms)} of it is the same time as {counted.rule}; fixing that fixes this part."
            )
            finding = replace(finding, gain=above, summary=f"{finding.summary} {note}")
        if gain is not None and finding.gain is not None:
            counted, counted_ms = counted or finding, gain.saved_ms_per_step
        settled.append(finding)
    return settled


def _makes_workers_faster(findings: Sequence[Finding], metrics: Metrics) -> bool:
    """Whether workers are the limit and a finding on the wait for them has a gain: its fix lifts their pace."""
    behind = metrics.input is not None and metrics.input.verdict == "processing"
    return behind and any(f.gain is not None and f.explains in (WAIT_FOR_BATCHES, OUTLIERS) for f in findings)


def _at_the_pace(finding: Finding, pace: Pace, *, faster: bool, metrics: Metrics) -> Finding:
    """A finding by itself with the gain that the pace of the workers leaves it, or with what else that gain needs."""
    gain = finding.gain
    if gain is None or not finding.claim.is_paced or gain.saved_ms_per_step <= pace.room_ms:
        return finding
    if faster:
        note = f" {pace.words}: to gain more, load batches faster as well."
        return replace(finding, summary=finding.summary + note)
    held = gain.within(pace.room_ms)
    left_ratio = 0.0 if held is None else held.lower_ms / pace.period_ms
    return replace(
        finding,
        gain=held,
        severity=max(finding.severity, severity(left_ratio, metrics.steps.steady_count), key=SEVERITIES.index),
        summary=f"{finding.summary} {pace.words}, so no step can be shorter than that.",
    )


def _within_budgets(findings: list[Finding], metrics: Metrics, pace: Pace | None) -> list[Finding]:
    """Each gain within what those before it leave of every time that it is a part of; that of full clocks last."""
    step_ms, run_ms = _times_ms(metrics)
    times = _device_times_ms(metrics)
    idle_ms, busy_ms = times or (math.inf, math.inf)
    pace_ms = math.inf if pace is None else pace.room_ms
    left_ms = {"run": run_ms, "step": step_ms, "pace": pace_ms, "idle": idle_ms, "busy": busy_ms}
    taken_ms: dict[frozenset[Phase], float] = {}
    held = list(findings)
    for n in sorted(range(len(held)), key=lambda n: times is not None and held[n].claim.resource == "clocks"):
        finding, gain, claim = held[n], held[n].gain, held[n].claim
        if gain is None:
            continue
        budgets = _budgets(claim)
        rooms_ms = [left_ms[name] for name in budgets]
        phases = frozenset(claim.phases if claim.is_in_step and gain.speedup_max > 1 else ())
        if phases:
            rooms_ms.append(_left_of_phases_ms(phases, taken_ms, gain.whole_ms, metrics))
        if claim.resource == "clocks" and times is not None and busy_ms > 0:
            rooms_ms += [left_ms["busy"], gain.saved_ms_per_step * left_ms["busy"] / busy_ms]
        gain = gain.within(min(rooms_ms))
        note = "" if gain is not None else " This time is already counted under other findings."
        held[n] = replace(finding, gain=gain, summary=finding.summary + note)
        saved_ms = 0.0 if gain is None else gain.saved_ms_per_step
        taken_ms[phases] = taken_ms.get(phases, 0.0) + saved_ms
        for name in budgets:
            left_ms[name] -= saved_ms
    return held


def _budgets(claim: Claim) -> list[str]:
    """The times that a gain is part of."""
    known = {"step": claim.is_in_step, "pace": claim.is_paced, "idle": claim.is_in_idle_time}
    return ["run", *(name for name, holds in known.items() if holds), *["busy"] * (claim.resource == "device busy")]


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


def most_ms(claim: Claim, whole_ms: float, metrics: Metrics) -> float:
    """The most that can be saved per step, averaged over the run, by ending what a finding explains.

    Of a phase, its time in the mean step, and of the whole that the gain refers to no larger share than the phase has:
    all other phases are the floor. A median alone would promise a wait that began in the middle of the run for all of
    it.

    Args:
        claim: What the gain is taken from (``Finding.explains``).
        whole_ms: T of the gain.
        metrics: The run.

    Returns:
        Infinite where the ledger does not say.
    """
    if claim.part is not None:
        first_s = sum(start.first_wait_s for start in metrics.epoch_starts) if claim == claims.EPOCH_START else 0.0
        return _per_step_ms(metrics, claim.part) + first_s * 1e3 / max(1, metrics.steps.count)
    if claim.resource == "uneven steps":
        period = metrics.steps.period_ms
        return math.inf if period is None else max(0.0, _per_step_ms(metrics, "train") - period.p05)
    return phases_ms(claim.phases, whole_ms, metrics)


def phases_ms(phases: Collection[Phase], whole_ms: float, metrics: Metrics) -> float:
    """Time of some phases in the mean step, and of ``whole_ms`` no larger share than they have.

    Args:
        phases: Their names; none: the time is not known.
        whole_ms: Time of which the phases are a part.
        metrics: The run.

    Returns:
        Milliseconds per step; infinite if unknown.
    """
    return sum(_of_phase_ms(phase, whole_ms, metrics) for phase in phases) if phases else math.inf


def _of_phase_ms(phase: Phase, whole_ms: float, metrics: Metrics) -> float:
    share, period = metrics.share(phase), metrics.steps.period_ms
    if share is None or period is None or not possible(period.mean):
        return math.inf
    return min(share.total_ratio * period.mean, max(share.median_ratio, share.total_ratio) * whole_ms)


def _per_step_ms(metrics: Metrics, part: Part) -> float:
    part_s = metrics.wall.parts.get(part)
    if part_s is None or not possible(part_s) or metrics.steps.count < 1:
        return math.inf
    return part_s * 1e3 / metrics.steps.count
