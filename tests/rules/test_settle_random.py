"""Random findings: whatever is settled fits into the run, and no time is gained twice."""

import math
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metrics_builder import build, replace

from lightning_gpuprof.model.claim import Resource
from lightning_gpuprof.model.finding import SEVERITIES, Finding, Gain, speedup
from lightning_gpuprof.model.report import Validity
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import CRITICAL_RATIO, WARNING_RATIO
from lightning_gpuprof.rules.engine import settle
from lightning_gpuprof.rules.gains import combined_gain

METRICS = build(validation=(4, 12.0), checkpoint=(4, 6.0))
PERIOD_MS = METRICS.period_ms or 0.0
RUN_MS = METRICS.run_ms_per_step
RULES = tuple("abcdef")
CLAIMS = (None, *claims.ALL)


@st.composite
def findings(draw: st.DrawFn) -> list[Finding]:
    made = []
    for _ in range(draw(st.integers(0, 8))):
        saved_ms = draw(st.none() | st.floats(0.0, 3 * RUN_MS))
        gain = None
        if saved_ms is not None:
            gain = Gain(
                saved_ms_per_step=saved_ms,
                speedup_max=speedup(saved_ms, draw(st.sampled_from((PERIOD_MS, RUN_MS)))),
                saved_lower_ms_per_step=draw(st.none() | st.floats(0.0, saved_ms)),
            )
        made.append(
            Finding(
                rule=draw(st.sampled_from(RULES)),
                severity=draw(st.sampled_from(SEVERITIES)),
                subject="",
                summary="Something.",
                advice="Change it.",
                evidence=(),
                gain=gain,
                confidence=draw(st.floats(0.05, 1.0)),
                explains=draw(st.sampled_from(CLAIMS)),
            )
        )
    return made


ON_A_DEVICE = build(run={"device.type": "cuda"}, idle_ratio=0.1, blocked_known=False)
"""Of 50 ms a device is busy for 45."""


@given(findings())
@settings(max_examples=60, deadline=None)
def test_no_resource_is_gained_beyond_what_there_is_of_it(found: list[Finding]) -> None:
    """All claims that a rule can make, of which none is known to this test by name."""
    saved_ms = dict.fromkeys(get_args(Resource), 0.0)
    for one in settle(found, ON_A_DEVICE):
        saved_ms[one.claim.resource] += gain_ms(one)
    beside = saved_ms.pop("uneven steps") + saved_ms.pop("outside steps")
    assert beside <= ON_A_DEVICE.run_ms_per_step + 1e-9
    assert sum(saved_ms.values()) <= 50.0 + 1e-9
    assert saved_ms["device busy"] + saved_ms["clocks"] <= 45.0 + 1e-9
    idle: tuple[Resource, ...] = ("batches", "CPUs", "training thread", "device idle")
    assert sum(saved_ms[resource] for resource in idle) <= 5.0 + 1e-9


@given(findings())
@settings(max_examples=60, deadline=None)
def test_no_phase_is_gained_beyond_its_time(found: list[Finding]) -> None:
    """Python between operators lies in forward and backward: what it gains, neither of them gains again."""
    settled = [one for one in settle(found, METRICS) if one.claim.is_in_step]
    for phases in {claim.phases for claim in claims.ALL if claim.phases and claim.part is None}:
        of_phases = [one for one in settled if set(one.claim.phases) & set(phases)]
        together = {phase for one in of_phases for phase in one.claim.phases}
        if not together <= set(METRICS.shares):
            continue  # without a time there is no bound
        most_ms = sum(METRICS.shares[phase].total_ratio for phase in together) * PERIOD_MS
        assert sum(map(gain_ms, of_phases)) <= most_ms + 1e-9


SPECIALISES = st.dictionaries(st.sampled_from(RULES), st.sampled_from([(r,) for r in RULES]), max_size=4)


@given(findings(), SPECIALISES)
@settings(max_examples=60, deadline=None)
def test_totals_fit_and_each_time_is_gained_once(found: list[Finding], specialises: dict[str, tuple[str, ...]]) -> None:
    settled = settle(found, METRICS, specialises)
    gains = [(f, f.gain) for f in settled if f.gain is not None]
    assert len(settled) == len(found)
    assert sorted(f.rule for f in settled) == sorted(f.rule for f in found)
    assert sum(g.saved_ms_per_step for f, g in gains if f.claim.is_in_step) <= PERIOD_MS + 1e-9
    assert sum(g.saved_ms_per_step for _, g in gains) <= RUN_MS + 1e-9
    for key in {f.explains for f, _ in gains if f.explains}:
        largest_ms = max(f.gain.saved_ms_per_step for f in found if f.explains == key and f.gain is not None)
        assert sum(g.saved_ms_per_step for f, g in gains if f.explains == key) <= largest_ms + 1e-9
    for _, gain in gains:
        assert gain.saved_ms_per_step >= 0
        assert 1.0 <= gain.speedup_max <= 100.1
        assert (gain.saved_lower_ms_per_step or 0.0) <= gain.saved_ms_per_step


def gain_ms(finding: Finding) -> float:
    return 0.0 if finding.gain is None else finding.gain.saved_ms_per_step


@given(findings())
@settings(max_examples=30, deadline=None)
def test_what_is_told_first_is_more_severe_or_saves_more(found: list[Finding]) -> None:
    settled = [f for f in settle(found, METRICS) if f.gain is not None]
    assert settled == sorted(settled, key=lambda f: (SEVERITIES.index(f.severity), -gain_ms(f), f.rule))
    for one in settled:
        saved_ratio = 1 - 1 / one.gain.speedup_max
        assert one.severity != "critical" or saved_ratio >= CRITICAL_RATIO
        assert one.severity == "info" or saved_ratio >= WARNING_RATIO


@given(findings())
@settings(max_examples=30, deadline=None)
def test_alternatives_without_a_gain_follow_the_one_that_has_it(found: list[Finding]) -> None:
    settled = settle(found, METRICS)
    for key in {f.explains for f in settled if f.explains and f.gain is not None}:
        first = next(n for n, f in enumerate(settled) if f.explains == key)
        alternatives = sum(f.explains == key and f.gain is None for f in settled)
        assert all(f.explains == key for f in settled[first : first + 1 + alternatives])
        assert all(f.gain is None for f in settled[first + 1 : first + 1 + alternatives])


@given(findings())
@settings(max_examples=30, deadline=None)
def test_no_gain_is_above_the_time_of_what_it_ends(found: list[Finding]) -> None:
    for one in settle(found, METRICS):
        claim = one.explains
        if claim is None or claim == claims.EPOCH_START:
            continue
        if claim.part is not None:
            assert gain_ms(one) <= METRICS.wall.parts[claim.part] * 1e3 / METRICS.steps.count + 1e-9
        elif claim.phase in METRICS.shares:
            assert gain_ms(one) <= METRICS.shares[claim.phase].median_ms + 1e-9


@given(findings())
@settings(max_examples=30, deadline=None)
def test_a_measurement_that_is_not_valid_makes_no_saving_critical(found: list[Finding]) -> None:
    settled = settle(found, replace(METRICS, validity=Validity(ok=False)))
    had_gain = {f.rule for f in found if f.gain is not None}
    assert not [f for f in settled if f.rule in had_gain and f.severity == "critical"]


@given(findings(), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_the_order_of_the_rules_changes_no_total(found: list[Finding], dice: object) -> None:
    def totals(some: list[Finding]) -> tuple[float, ...]:
        combined = combined_gain(settle(some, METRICS), METRICS)
        if combined is None:
            return ()
        return combined.saved_ms_per_step, combined.saved_run_ms_per_step

    mixed = list(found)
    dice.shuffle(mixed)  # type: ignore[attr-defined]
    one_of_each = {(f.rule, f.explains): f for f in found}
    if len(one_of_each) == len(found):  # two of one rule about one time have no order
        assert totals(mixed) == pytest.approx(totals(found))


@given(findings())
@settings(max_examples=30, deadline=None)
def test_the_combined_bound_is_amdahls_and_no_less_than_any_single_one(found: list[Finding]) -> None:
    settled = settle(found, METRICS)
    combined = combined_gain(settled, METRICS)
    gains = [f.gain for f in settled if f.gain is not None]
    if combined is None:
        assert not gains
        return
    assert math.isfinite(combined.run_speedup_max)
    assert 0 <= combined.saved_lower_ms_per_step <= combined.saved_ms_per_step <= PERIOD_MS + 1e-9
    assert combined.saved_ms_per_step <= combined.saved_run_ms_per_step + 1e-9 <= RUN_MS + 1e-6
    assert combined.step_speedup_max == pytest.approx(speedup(combined.saved_ms_per_step, PERIOD_MS))
    assert combined.run_speedup_max == pytest.approx(speedup(combined.saved_run_ms_per_step, RUN_MS))
    for gain in gains:
        assert combined.run_speedup_max >= speedup(gain.saved_ms_per_step, RUN_MS) - 1e-9


def test_without_a_gain_or_steps_there_is_no_combined_bound() -> None:
    assert combined_gain((), METRICS) is None
    assert combined_gain((), build(steps=0, epochs=1)) is None
