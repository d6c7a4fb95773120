import itertools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import pytest
from faulty_runs import FAULTS
from findings_builder import finding
from metrics_builder import build, distribution, replace, scaled
from trusted import assert_can_be_trusted

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.finding import Finding, Severity
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.report import Validity
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal, NotApplicable
from lightning_gpuprof.rules.engine import diagnose, settle
from lightning_gpuprof.rules.gains import combined_gain


class Fails:
    """A rule with a mistake in it."""

    id: ClassVar[str] = "fails"

    def check(self, metrics: Metrics) -> Finding | None:
        raise ZeroDivisionError("a mistake\nover two lines")


class Blind:
    """A rule whose signal does not exist."""

    id: ClassVar[str] = "blind"

    def check(self, metrics: Metrics) -> Finding | None:
        raise MissingSignal("nobody has looked")


class Says:
    """A rule that always fires."""

    id: ClassVar[str] = "says"

    def check(self, metrics: Metrics) -> Finding | None:
        return finding("says", saved_ms=5.0)


class Wrong:
    """A rule that returns something else."""

    id: ClassVar[str] = "wrong"

    def check(self, metrics: Metrics) -> Finding | None:
        return "a finding"  # type: ignore[return-value]


class Costs:
    """A rule that fires and saves more."""

    id: ClassVar[str] = "costs"

    def check(self, metrics: Metrics) -> Finding | None:
        return finding("costs", saved_ms=10.0, lower_ms=9.0)


class Pauses:
    """A rule about slow steps that fires and saves little."""

    id: ClassVar[str] = "gc-pauses"

    def check(self, metrics: Metrics) -> Finding | None:
        return finding("gc-pauses", saved_ms=9.0, lower_ms=8.0)


def settled(findings: Sequence[Finding], specialises: Mapping[str, tuple[str, ...]] | None = None) -> list[str]:
    return [f.rule for f in settle(findings, build(), specialises or {})]


def test_a_rule_that_fails_is_reported_and_stops_no_other() -> None:
    diagnosis = diagnose(build(), rules=[Fails(), Blind(), Says(), Wrong()])
    assert [f.rule for f in diagnosis.findings] == ["says"]
    assert {n.rule: n.why for n in diagnosis.not_evaluated} == {
        "fails": "failed: ZeroDivisionError: a mistake over two lines",
        "blind": "nobody has looked",
        "wrong": "failed: TypeError: check() must return a Finding or None, got 'a finding'",
    }


def acting(rule: str, **more: Any) -> Finding:
    """A finding that says what to change."""
    return msgspec.structs.replace(finding(rule, **more), change=Change(call="Trainer", arguments={"benchmark": True}))


def with_a_clue(*findings: Finding) -> list[tuple[str, bool]]:
    return [(f.rule, f.gain is not None) for f in settle(findings, build(), {}, {"clue"})]


def test_a_clue_follows_the_first_warning_that_says_what_to_change() -> None:
    clue = finding("clue", saved_ms=30.0, severity="critical")
    assert with_a_clue(clue, acting("acts", saved_ms=5.0)) == [("acts", True), ("clue", True)]
    assert with_a_clue(clue, acting("acts", saved_ms=20.0), finding("other", saved_ms=4.0))[0][0] == "acts"


def test_a_clue_leads_beside_notes_and_what_has_no_change_either() -> None:
    clue = finding("clue", saved_ms=30.0, severity="critical")
    assert with_a_clue(clue, finding("other", saved_ms=15.0))[0][0] == "clue"
    assert with_a_clue(clue, acting("note", saved_ms=2.0, severity="info"))[0][0] == "clue"
    assert with_a_clue(acting("clue", saved_ms=30.0, severity="critical"), acting("acts", saved_ms=5.0))[0][0] == "clue"


@pytest.mark.parametrize(("phase", "first"), [("forward", "grows"), ("data_wait", "compile")])
def test_a_clue_that_explains_the_first_change_in_its_phase_stays_before_it(phase: Phase, first: str) -> None:
    grows = finding("grows", saved_ms=20.0, severity="critical", explains=claims.of_phase(phase))
    python = acting("compile", saved_ms=12.0, severity="critical", explains=claims.PYTHON)
    metrics = build(times_ms={"data_wait": 20.0})
    found = settle([python, grows], metrics, {"grows": ("compile",)}, {"grows"})
    assert found[0].rule == first


def test_of_the_same_time_the_gain_stays_with_what_says_what_to_change() -> None:
    clue = finding("clue", saved_ms=20.0, explains=claims.BACKWARD)
    acts = acting("acts", saved_ms=15.0, explains=claims.BACKWARD)
    assert with_a_clue(clue, acts)[:2] == [("acts", True), ("clue", True)]  # what is beyond the other's gain
    assert with_a_clue(clue, acting("acts", saved_ms=20.0, explains=claims.BACKWARD))[1] == ("clue", False)


def test_a_healthy_run_has_no_finding() -> None:
    diagnosis = diagnose(build())
    assert diagnosis.findings == ()
    assert diagnosis.verdict.kind == "compute-bound"


MEASURED_HEALTHY: dict[str, tuple[dict[Phase, float], int]] = {
    "mlp of 1 ms steps": (
        {
            "data_wait": 0.12,
            "h2d": 0.02,
            "forward": 0.24,
            "backward": 0.17,
            "optimizer": 0.22,
            "zero_grad": 0.01,
            "callbacks": 0.02,
            "logging": 0.235,
            "loop": 0.09,
        },
        0,
    ),
    "mlp of 6.5 ms steps": (
        {
            "data_wait": 0.33,
            "h2d": 0.03,
            "forward": 1.5,
            "backward": 2.4,
            "optimizer": 1.5,
            "zero_grad": 0.02,
            "callbacks": 0.02,
            "logging": 0.45,
            "loop": 0.27,
        },
        0,
    ),
    "the same with a worker": (
        {
            "data_wait": 0.83,
            "h2d": 0.03,
            "forward": 1.5,
            "backward": 2.1,
            "optimizer": 1.4,
            "zero_grad": 0.02,
            "callbacks": 0.02,
            "logging": 0.57,
            "loop": 0.26,
        },
        1,
    ),
}
"""Medians of real runs in which nothing is wrong, on 2 CPUs."""


@pytest.mark.parametrize("run", MEASURED_HEALTHY)
def test_what_lightning_costs_in_any_run_is_no_warning(run: str) -> None:
    times_ms, workers = MEASURED_HEALTHY[run]
    diagnosis = diagnose(
        build(
            times_ms=times_ms,
            num_workers=workers,
            fetch_waited_ratio=0.99,
            usable_cpus=2,
            process_cpus=1.9,
            validation=(0, 0.0),
            checkpoint=(0, 0.0),
        )
    )
    assert [f for f in diagnosis.findings if f.severity != "info"] == []
    assert diagnosis.verdict.kind == "compute-bound"


def test_a_run_without_steps_is_judged_by_no_rule() -> None:
    diagnosis = diagnose(build(steps=0, epochs=1, validation=(0, 0.0), checkpoint=(0, 0.0), blocked_known=False))
    assert diagnosis.findings == ()
    assert len(diagnosis.not_evaluated) >= 9
    assert all(not n.why.startswith("failed") for n in diagnosis.not_evaluated)
    assert diagnosis.verdict.kind == "not-enough-data"


def test_findings_are_told_by_severity_then_by_what_they_save_and_then_by_name() -> None:
    assert settled(
        [
            finding("a", saved_ms=9.0, lower_ms=1.0),
            finding("b", saved_ms=12.0, lower_ms=11.0),
            finding("c", saved_ms=6.0, lower_ms=6.0, confidence=0.5),
            finding("d", saved_ms=11.0, severity="critical"),
            finding("e", saved_ms=8.0, severity="info"),
        ]
    ) == ["d", "b", "a", "c", "e"]
    levels: dict[str, Severity] = {"d": "info", "c": "critical", "b": "warning", "a": "warning"}
    assert settled([finding(rule, severity=level) for rule, level in levels.items()]) == ["c", "a", "b", "d"]


def at_goal(goal: str) -> list[str]:
    found = diagnose(build(run={"gpuprof.goal": goal}), [Costs(), Pauses()])
    return [one.rule for one in found.findings]


def test_where_latency_is_the_goal_slow_steps_come_first() -> None:
    assert at_goal("cost") == ["costs", "gc-pauses"]
    assert at_goal("latency") == ["gc-pauses", "costs"]


@pytest.mark.parametrize(("saved_ms", "level"), [(0.1, "info"), (6.0, "warning"), (12.0, "critical")])
def test_no_finding_is_more_severe_than_its_gain(saved_ms: float, level: Severity) -> None:
    found = settle([finding("a", saved_ms=saved_ms, severity="critical")], build())
    assert found[0].severity == level


def test_a_cause_without_a_bound_comes_before_the_effect_that_it_explains() -> None:
    effect = finding("contention", saved_ms=20.0, explains=claims.NO_CPU, severity="critical")
    cause = finding("threads", explains=claims.WAIT_FOR_BATCHES)
    assert settled([effect, cause]) == ["contention", "threads"]
    assert settled([effect, cause], {"threads": ("contention",)}) == ["threads", "contention"]


def test_a_measurement_that_is_not_valid_says_what_has_to_confirm_it() -> None:
    invalid = replace(build(), validity=Validity(ok=False))
    found = settle([finding("a", saved_ms=20.0, severity="critical"), finding("b", severity="critical")], invalid)
    assert [(f.rule, f.severity) for f in found] == [("b", "critical"), ("a", "warning")]
    assert found[1].summary.endswith("so a longer or complete run has to confirm it.")


@pytest.mark.parametrize(("valid", "level"), [(True, "critical"), (False, "warning")])
def test_what_is_gained_elsewhere_is_no_more_severe_than_there(valid: bool, level: Severity) -> None:
    both = [finding(rule, saved_ms=15.0, severity="critical", explains=claims.FORWARD) for rule in ("a", "b")]
    found = settle(both, replace(build(), validity=Validity(ok=valid)))
    assert [(f.rule, f.severity, f.gain is None) for f in found] == [("a", level, False), ("b", level, True)]


def test_a_finding_whose_time_is_used_up_is_information() -> None:
    whole = finding("whole", saved_ms=49.0, lower_ms=49.0, severity="critical")
    found = settle([whole, finding("rest", saved_ms=15.0, severity="critical")], build())
    assert [(f.rule, f.severity, f.gain is None) for f in found] == [
        ("whole", "critical", False),
        ("rest", "info", True),
    ]
    assert found[1].summary.endswith("already counted under other findings.")


def test_what_is_critical_without_a_gain_comes_first() -> None:
    assert settled(
        [
            finding("slow", saved_ms=9.0, explains=claims.SWAPPING),
            finding("same", severity="critical", explains=claims.SWAPPING),
            finding("oom-risk", severity="critical"),
            finding("a hint", severity="info"),
        ]
    ) == ["oom-risk", "slow", "same", "a hint"]


def test_findings_that_explain_the_same_time_share_one_gain() -> None:
    general = finding("general", saved_ms=20.0, explains=claims.SWAPPING)
    special = finding("special", saved_ms=20.0, explains=claims.SWAPPING)
    other = finding("other", saved_ms=15.0, explains=claims.ALLOCATOR)
    found = settle([general, other, special], build(), {"special": ("general",)})
    assert [f.rule for f in found] == ["special", "general", "other"]
    assert found[0].gain is not None
    assert found[1].gain is None
    assert found[1].summary.endswith(" Same time as special; fixing that fixes this.")


def test_what_a_general_finding_gains_beyond_a_special_one_is_not_lost() -> None:
    general = finding("general", saved_ms=10.0, lower_ms=8.0, explains=claims.LATE_LAUNCHES)
    special = finding("special", saved_ms=6.0, lower_ms=5.0, explains=claims.LATE_LAUNCHES)
    metrics = build()
    found = settle([general, special], metrics, {"special": ("general",)})
    assert [(f.rule, f.gain and f.gain.saved_ms_per_step) for f in found] == [("special", 6.0), ("general", 4.0)]
    assert found[1].gain.saved_lower_ms_per_step == 2.0
    assert found[1].gain.speedup_max == pytest.approx(50 / 46)
    assert found[1].summary.endswith(" 6.00 ms of it is the same time as special; fixing that fixes this part.")
    combined = combined_gain(found, metrics)
    assert combined.saved_ms_per_step == pytest.approx(10.0)


def test_what_all_save_together_is_no_more_than_their_speed_up_says() -> None:
    """As anomaly detection on a crowded machine: 636.8 of 642.9 ms, beside "100x"."""
    metrics = build(times_ms={"forward": 500.0, "backward": 500.0})
    slow = finding("slow", saved_ms=1000.0, explains=claims.ANOMALY_DETECTION, period_ms=1008.0)
    combined = combined_gain([slow], metrics)
    assert combined.saved_ms_per_step == pytest.approx(0.99 * combined.period_ms)
    assert combined.step_speedup_max == pytest.approx(100)


@pytest.mark.parametrize("key", [claims.WARM_UP, claims.RECOMPILES, claims.SANITY_CHECK], ids=str)
def test_time_beside_the_steps_takes_nothing_from_the_steps(key: Claim) -> None:
    metrics = build(validation=(4, 60.0))
    beside = finding("beside", saved_ms=90.0, explains=key, period_ms=metrics.run_ms_per_step)
    found = settle([beside, finding("inside", saved_ms=30.0, explains=claims.ALLOCATOR)], metrics)
    inside = next(f.gain for f in found if f.rule == "inside")
    assert inside.saved_ms_per_step == 30.0
    combined = combined_gain(found, metrics)
    assert combined.saved_ms_per_step == 30.0


ON_A_DEVICE = build(run={"device.type": "cuda"}, idle_ratio=0.1, blocked_known=False)
"""Of 50 ms a device is busy for 45."""


def test_kernels_and_clocks_gain_no_more_than_the_time_in_which_a_device_works() -> None:
    kernels = [
        finding("products", saved_ms=30.0, explains=claims.MATRIX_KERNELS),
        finding("pointwise", saved_ms=20.0, explains=claims.MEMORY_KERNELS),
    ]
    clocks = finding("clocks", saved_ms=18.0, explains=claims.CLOCKS, severity="critical")
    found = {f.rule: f.gain for f in settle([*kernels, clocks], ON_A_DEVICE)}
    assert found["products"].saved_ms_per_step == 30.0
    assert found["pointwise"].saved_ms_per_step == pytest.approx(15.0)
    assert found["clocks"] is None
    less = {f.rule: f.gain for f in settle([kernels[0], clocks], ON_A_DEVICE)}
    assert less["clocks"].saved_ms_per_step == pytest.approx(18.0 * 15 / 45)  # of what is left of the work


def test_hosts_and_idle_causes_gain_no_more_than_the_time_in_which_a_device_has_no_work() -> None:
    both = [
        finding("bar", saved_ms=3.0, explains=claims.WAITS_OF_THE_PROGRESS_BAR),
        finding("allocator", saved_ms=2.5, explains=claims.ALLOCATOR),
    ]

    def gains_ms(metrics: Metrics) -> list[float]:
        return [f.gain.saved_ms_per_step for f in settle(both, metrics) if f.gain is not None]

    assert gains_ms(ON_A_DEVICE) == pytest.approx([3.0, 2.0])
    assert gains_ms(build()) == [3.0, 2.5]
    steps = msgspec.structs.replace(ON_A_DEVICE.steps, period_ms=msgspec.structs.replace(distribution(50.0), mean=53.0))
    assert gains_ms(replace(ON_A_DEVICE, steps=steps)) == [3.0, 2.5]  # a callback every few steps is in no median


@pytest.mark.parametrize(("first_ms", "second_ms", "left_ms"), [(50.0, 9.0, None), (40.0, 30.0, 10.0)])
def test_a_gain_that_is_cut_has_what_is_left_or_says_that_nothing_is(
    first_ms: float, second_ms: float, left_ms: float | None
) -> None:
    first = finding("a", saved_ms=first_ms, explains=claims.SWAPPING)
    second = finding("b", saved_ms=second_ms, explains=claims.ALLOCATOR)
    found, cut = settle([first, second], build(), {})
    assert (found.rule, found.gain is not None, cut.rule) == ("a", True, "b")
    if left_ms is None:
        assert cut.gain is None
        assert cut.summary.endswith("This time is already counted under other findings.")
    else:
        assert (cut.gain.saved_ms_per_step, cut.gain.speedup_max) == pytest.approx((left_ms, 50 / 40))


def test_a_special_finding_without_a_gain_leaves_it_to_the_general_one() -> None:
    general = finding("general", saved_ms=30.0, explains=claims.SWAPPING)
    special = finding("special", explains=claims.SWAPPING)
    found = settle([general, special], build(), {"special": ("general",)})
    assert [(f.rule, f.gain is not None) for f in found] == [("special", False), ("general", True)]


def test_findings_that_explain_nothing_in_particular_are_no_alternatives() -> None:
    found = settle([finding("a", saved_ms=3.0), finding("b", saved_ms=2.0)], build())
    assert all(f.gain is not None for f in found)


TOP = {
    "input": "single-process-loading",
    "workers": "too-few-workers",
    "callback": "callback-slow",
    "logging": "logging-overhead",
    "blocked": "blocked-in-step",
    "validation": "validation-stall",
    "checkpoint": "checkpoint-stall",
    "startup": "worker-startup",
    "stalls": "step-outliers",
}


@pytest.mark.parametrize("fault", TOP)
def test_a_planted_fault_is_the_first_finding_and_the_only_one_but_its_symptom(fault: str) -> None:
    found = diagnose(FAULTS[fault]).findings
    assert found[0].rule == TOP[fault]
    assert {f.rule for f in found} <= {TOP[fault], "input-bound"}


@pytest.mark.parametrize("fault", FAULTS)
def test_reports_of_built_runs_can_be_trusted(fault: str) -> None:
    said = diagnose(FAULTS[fault])
    assert_can_be_trusted(said.findings, said.combined, said.verdict, dict(FAULTS[fault].run))


@pytest.mark.parametrize("fault", FAULTS)
def test_all_gains_together_fit_into_the_run(fault: str) -> None:
    metrics = FAULTS[fault]
    found = diagnose(metrics).findings
    assert found
    gains = [f.gain for f in found if f.gain is not None]
    assert metrics.period_ms is not None
    in_step = [f.gain.saved_ms_per_step for f in found if f.gain is not None and f.claim.is_in_step]
    assert sum(in_step) <= metrics.period_ms + 1e-9
    assert sum(g.saved_ms_per_step for g in gains) <= metrics.run_ms_per_step + 1e-9
    explained = [f.explains for f in found if f.gain is not None]
    assert len(explained) == len(set(explained))
    assert all(g.speedup_max >= 1 for g in gains)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_finding_acts_first_and_has_numbers(fault: str) -> None:
    for found in diagnose(FAULTS[fault]).findings:
        assert found.evidence
        assert found.evidence[0].limit is not None
        assert found.evidence[0].source
        assert any(c.isdigit() for c in found.summary)
        assert found.advice
        assert "increase" not in found.advice.lower()
        assert "may be slow" not in found.advice
        assert 0 < found.confidence <= 1
        assert "nan" not in f"{found.summary} {found.advice}".lower().split()


@pytest.mark.parametrize(("fault", "factor"), list(itertools.product(FAULTS, [0.5, 3.0, 20.0])))
def test_a_run_in_which_all_takes_longer_has_the_same_verdict_and_first_finding(fault: str, factor: float) -> None:
    before, after = diagnose(FAULTS[fault]), diagnose(scaled(FAULTS[fault], factor))
    assert after.verdict.kind == before.verdict.kind
    assert after.findings[0].rule == before.findings[0].rule


def test_a_rule_that_has_nothing_to_judge_is_not_told_of() -> None:
    class Elsewhere:
        id = "elsewhere"

        def check(self, metrics: Metrics) -> Finding | None:
            raise NotApplicable("the model runs on the CPU")

    diagnosis = diagnose(build(), rules=[Elsewhere(), Says()])
    assert [f.rule for f in diagnosis.findings] == ["says"]
    assert diagnosis.not_evaluated == ()
