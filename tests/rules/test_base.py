import ast
import inspect
import math
import textwrap
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass, fields

import msgspec
import pytest
from findings_builder import gain
from metrics_builder import build, distribution, replace

from lightning_gpuprof.model.cost import Cost
from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.report import Wall
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    device_idle_ratio,
    severity,
    threshold,
    worthwhile,
)
from lightning_gpuprof.rules.discovery import discover
from lightning_gpuprof.rules.pages import page
from lightning_gpuprof.rules.thresholds import with_thresholds


@pytest.mark.parametrize(
    ("lower_ratio", "steps", "expected"),
    [
        (0.0999, 100, "info"),
        (0.10, 100, "warning"),
        (0.1999, 100, "warning"),
        (0.20, 100, "critical"),
        (0.90, 19, "warning"),
        (0.90, 20, "critical"),
        (0.90, 9, "info"),
    ],
)
def test_severity_needs_share_and_steps(lower_ratio: float, steps: int, expected: str) -> None:
    assert severity(lower_ratio, steps) == expected


@pytest.mark.parametrize(
    ("recoverable_ms", "period_ms", "expected"),
    [(0.19, 1.0, False), (0.2, 1.0, True), (0.2, 100.0, False), (2.9, 100.0, False), (3.0, 100.0, True)],
)
def test_a_gain_must_be_worth_a_word(recoverable_ms: float, period_ms: float, expected: bool) -> None:
    assert worthwhile(recoverable_ms, period_ms) is expected


def test_gain_is_amdahls_bound_with_a_lower_bound_within() -> None:
    found = gain(20.0, 30.0, 50.0)
    assert found.speedup_max == pytest.approx(50 / 30)
    assert found.saved_lower_ms_per_step == 20.0
    assert gain(20.0, -3.0, 50.0).saved_lower_ms_per_step == 0.0


@pytest.mark.parametrize(
    ("most_ratio", "saved_ms", "certain_ms", "severity"),
    [(1.0, 20.0, 15.0, "critical"), (0.12, 6.0, 6.0, "warning"), (None, 20.0, 0.0, "info")],
)
def test_a_cost_gives_back_what_holds_the_step_up(
    most_ratio: float | None, saved_ms: float, certain_ms: float, severity: str
) -> None:
    cost = Cost(ms=20.0, lower_ms=15.0, step_ms=50.0, steps=100, most_ratio=most_ratio)
    assert cost.gain.saved_ms_per_step == saved_ms == cost.held.ms
    assert cost.gain.saved_lower_ms_per_step == pytest.approx(certain_ms)
    assert cost.severity == severity
    assert str(cost) == "20.0 ms of each 50.0 ms step (40 %)"
    assert cost.part(0.5).gain.saved_ms_per_step == saved_ms / 2
    assert cost.is_worth(0.12)
    assert not cost.is_worth(0.12, fixed_ms=15.0)
    assert cost.uncertain.gain.saved_lower_ms_per_step == 0.0


@pytest.mark.parametrize("period_ms", [math.nan, math.inf, 0.0, -1.0])
def test_a_period_that_is_no_positive_number_is_not_measured(period_ms: float) -> None:
    metrics = build()
    broken = msgspec.structs.replace(metrics.steps, period_ms=distribution(period_ms))
    with pytest.raises(MissingSignal, match="step time"):
        replace(metrics, steps=broken).require_steady()


def test_run_time_leaves_set_up_and_tear_down_out() -> None:
    metrics = build()
    parts = metrics.wall.parts
    assert metrics.run_s == pytest.approx(metrics.wall.total_s - parts["setup"] - parts["teardown"])
    assert metrics.run_ms_per_step * metrics.steps.count == pytest.approx(metrics.run_s * 1e3)


def test_a_remainder_a_little_below_zero_is_no_broken_number() -> None:
    metrics = build()
    parts = {**metrics.wall.parts, "unexplained": -1e-6}
    assert replace(metrics, wall=Wall(total_s=metrics.wall.total_s, parts=parts)).run_s > 0
    with pytest.raises(MissingSignal, match="part of the wall time"):
        _ = replace(metrics, wall=Wall(total_s=metrics.wall.total_s, parts={**parts, "validation": -1.0})).run_s


def test_a_run_without_wall_time_is_not_measured() -> None:
    with pytest.raises(MissingSignal, match="wall time"):
        _ = replace(build(), wall=Wall(total_s=math.nan, parts={})).run_s


def test_device_idle_time_is_held_against_untraced_steps() -> None:
    metrics = build(idle_ratio=0.3, run={"device.type": "cuda"})
    assert device_idle_ratio(metrics) == pytest.approx(0.3)
    assert device_idle_ratio(build()) is None
    orphaned = msgspec.structs.replace(metrics.windows[0], launches_matched=100, launches_unmatched=400)
    assert device_idle_ratio(replace(metrics, windows=(orphaned,))) is None  # nor is known how tracing inflated it


class Example(BaseRule):
    """A rule of two thresholds."""

    id = "example"
    least_ratio: float = threshold(0.05, source="somebody")
    least_count: int = threshold(3, source="heuristic")


def test_evidence_has_limit_and_source_of_its_threshold() -> None:
    rule = Example(least_count=4)
    assert rule.evidence("least_ratio", 0.1, "share") == Evidence(
        name="share", value=0.1, unit="ratio", limit=0.05, source="somebody"
    )
    assert rule.evidence("least_count", 9, "times") == Evidence(name="times", value=9, limit=4, source="heuristic")
    assert rule.evidence("least_ratio", 7.0, "time", "ms", limit=5.0) == Evidence(
        name="time", value=7.0, unit="ms", limit=5.0, source="somebody"
    )
    with pytest.raises(AttributeError, match="least_rato"):
        rule.evidence("least_rato", 0.1, "share")


def test_what_a_change_leaves_ends_the_advice() -> None:
    words = {"subject": "loader", "summary": "It waits.", "advice": "Set it.", "evidence": ()}
    found = Example().finding(**words, leaves="the first epoch")
    assert (found.advice, found.leaves) == ("Set it. Remaining cost: the first epoch.", "the first epoch")
    assert Example().finding(**words).advice == "Set it."


@pytest.mark.parametrize("slots", [False, True])
def test_a_rule_may_be_decorated_by_hand_as_well(slots: bool) -> None:
    @dataclass(frozen=True, kw_only=True, slots=slots)
    class Decorated(BaseRule):
        """A rule of another package."""

        id = "decorated"
        least_ratio: float = threshold(0.05, source="somebody")

        def check(self, metrics: Metrics) -> Finding | None:
            return None

    rule = Decorated(least_ratio=0.1)
    assert rule.evidence("least_ratio", 0.2, "share") == Evidence(
        name="share", value=0.2, unit="ratio", limit=0.1, source="somebody"
    )
    assert rule == Decorated(least_ratio=0.1) != Decorated()
    assert with_thresholds([Decorated()], {"decorated": {"least_ratio": 0.1}}) == (rule,)
    assert "`least_ratio` 0.1 (somebody)" in page(rule)
    with pytest.raises(FrozenInstanceError):
        rule.least_ratio = 0.5  # type: ignore[misc]


@pytest.mark.parametrize("rule", [Example(), *discover().rules], ids=lambda rule: rule.id)
def test_a_rule_is_frozen(rule: BaseRule) -> None:
    with pytest.raises(FrozenInstanceError):
        rule.least_ratio = 0.5
    with pytest.raises(FrozenInstanceError):
        del rule.id


def thresholds_named(rule: type) -> Iterator[str | None]:
    """What each call of ``self.evidence`` in a class names first; None where that is no constant."""
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(rule)))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "self.evidence":
            first = node.args[0]
            for name in (first.body, first.orelse) if isinstance(first, ast.IfExp) else (first,):
                yield name.value if isinstance(name, ast.Constant) else None


@pytest.mark.parametrize("rule", discover(entry_points=()).rules, ids=lambda rule: rule.id)
def test_evidence_is_held_against_thresholds_that_the_rule_has(rule: BaseRule) -> None:
    assert set(thresholds_named(type(rule))) <= {field.name for field in fields(rule)}
