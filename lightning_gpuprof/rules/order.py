"""How severe settled findings are, and which is first."""

from collections.abc import Collection, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.finding import SEVERITIES, Finding, Severity
from lightning_gpuprof.rules.base import CRITICAL_STEPS, Metrics, severity
from lightning_gpuprof.rules.gains import by_value
from lightning_gpuprof.rules.prediction import expected


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the rules beside their findings, and the order that follows from it."""

    specialises: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Rule id -> ids of more general rules that it explains in more detail."""
    clues: Collection[str] = ()
    """Ids of rules that say when and where steps are slow, not why."""

    def specific_first(self, group: list[Finding]) -> list[Finding]:
        """Findings that explain the same time, the most specific first; clues last if another says what to change."""
        present = {finding.rule for finding in group}
        acts = any(_acts(finding) for finding in group)

        def generality(finding: Finding) -> tuple[bool, int]:
            return acts and self._is_clue(finding), sum(self._explains(other, finding.rule) for other in present)

        return sorted(sorted(group, key=by_value), key=generality)

    def of(self, findings: Sequence[Finding], had_gain: Collection[str]) -> list[Finding]:
        """What is critical and never had a gain, as a run out of memory; by severity, and within it by what is saved.

        Alternatives without a gain come after the one that has it, a cause whose gain has no bound before the effect
        that it explains, and a clue without a change after the first warning that has one, unless it explains that in a
        phase of both.

        Args:
            findings: With the gains that are left to them.
            had_gain: Ids of the rules whose findings had a gain of their own.

        Returns:
            A new list, in the order of the report.
        """

        def rank(finding: Finding) -> tuple[bool, int, float, str]:
            saved_ms = 0.0 if finding.gain is None else finding.gain.saved_ms_per_step
            disaster = finding.severity == "critical" and finding.gain is None and finding.rule not in had_gain
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
            place = ordered.index(cause)
            first = next((n for n, effect in enumerate(ordered) if self._is_cause(cause, effect)), place)
            if first < place:
                ordered.insert(first, ordered.pop(place))
        return self._clues_after_a_change(ordered)

    def _clues_after_a_change(self, findings: list[Finding]) -> list[Finding]:
        """Steps that get longer and longer are in Python, and get longer compiled: such a clue stays first."""
        change = next((finding for finding in findings if _acts(finding)), None)
        if change is None:
            return findings

        def yields(clue: Finding) -> bool:
            same_phase = set(change.claim.phases).intersection(clue.claim.phases)
            return self._is_clue(clue) and not (same_phase and self._explains(clue.rule, change.rule))

        place = findings.index(change)
        before, clues = [f for f in findings[:place] if not yields(f)], [f for f in findings[:place] if yields(f)]
        return [*before, change, *clues, *findings[place + 1 :]]

    def _is_clue(self, finding: Finding) -> bool:
        return finding.rule in self.clues and finding.change is None

    def _is_cause(self, cause: Finding, effect: Finding) -> bool:
        """What takes a part of the run beside the steps has its cause in that part."""
        beside = effect.explains is not None and effect.explains.part is not None
        return self._explains(cause.rule, effect.rule) and (not beside or cause.explains == effect.explains)

    def _explains(self, rule: str, general: str) -> bool:
        return general in self.specialises.get(rule, ())


def _acts(finding: Finding) -> bool:
    """Whether a finding says what to change, and that this is worth more than a note."""
    return finding.change is not None and finding.gain is not None and finding.severity != "info"


def at_their_severity(findings: Sequence[Finding], had_gain: Collection[str], metrics: Metrics) -> list[Finding]:
    """Findings that are no more severe than what their gain, or that of the same time, and the measurement allow.

    The gain is what the change is expected to bring, or else its bound.

    A finding whose gain is all counted elsewhere is no more severe than the one of the same time that has it, and
    information where there is none.

    Args:
        findings: With the gains that are left.
        had_gain: Ids of the rules whose findings had a gain of their own.
        metrics: The run.

    Returns:
        A new list in the same order; those that are less severe now are copies.
    """
    judged = [_at_its_severity(finding, metrics) for finding in findings]
    leaders: dict[Claim, Severity] = {}
    for finding in judged:
        if finding.gain is not None:
            before = leaders.get(finding.claim, "info")
            leaders[finding.claim] = min(before, finding.severity, key=SEVERITIES.index)
    for n, finding in enumerate(judged):
        if finding.gain is None and finding.rule in had_gain:
            most = max(finding.severity, leaders.get(finding.claim, "info"), key=SEVERITIES.index)
            judged[n] = replace(finding, severity=most)
    return judged


def _at_its_severity(finding: Finding, metrics: Metrics) -> Finding:
    """Where the measurement is not valid, nothing that rests on time is critical."""
    gain, most = finding.gain, finding.severity
    if gain is None:
        return finding
    likely = expected(finding, metrics)
    speedups = (gain.speedup_max, gain.speedup_max if likely is None else likely.speedup)
    most = max(most, severity(1 - 1 / max(1.0, min(speedups)), CRITICAL_STEPS), key=SEVERITIES.index)
    if most == "critical" and not metrics.validity.ok:
        note = " The measurement is not valid, so a longer or complete run has to confirm it."
        return replace(finding, severity="warning", summary=finding.summary + note)
    return replace(finding, severity=most)
