import dataclasses
import re
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from metrics_builder import build
from msgspec.structs import replace

from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import threshold
from lightning_gpuprof.rules.discovery import discover
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.thresholds import thresholds_of, with_thresholds


@dataclass(frozen=True, kw_only=True)
class Limits:
    """A rule of another package: fires from so many steps on."""

    id: ClassVar[str] = "limits"

    least_steps: int = threshold(10**6, source="ours")
    least_ratio: float = threshold(0.5, source="ours")

    def check(self, metrics: Metrics) -> Finding | None:
        if metrics.steps.count < self.least_steps:
            return None
        return Finding(
            rule=self.id, severity="info", subject="", summary="Many steps.", advice="Run fewer.", evidence=()
        )


class Bare(Limits):
    """A rule that is made of more than its thresholds."""

    id: ClassVar[str] = "bare"


def test_a_threshold_is_replaced_and_keeps_its_type() -> None:
    (rule,) = with_thresholds([Limits()], {"limits": {"least_steps": 5.0, "least_ratio": 1}})
    assert isinstance(rule, Limits)
    assert (rule.least_steps, rule.least_ratio) == (5, 1.0)
    assert isinstance(rule.least_steps, int)
    assert Limits().least_steps == 10**6


@pytest.mark.parametrize(
    ("thresholds", "words"),
    [
        (
            {"limit": {"least_steps": 5}},
            r"thresholds must name rules, got 'limit'\. Did you mean limits\?",
        ),
        (
            {"limits": {"least_step": 5}},
            r"thresholds\.limits must name thresholds of the rule: least_steps, least_ratio, got 'least_step'",
        ),
        ({"limits": {"least_ratio": "much"}}, r"thresholds\.limits\.least_ratio must be a finite number"),
        ({"limits": {"least_ratio": float("nan")}}, r"must be a finite number of at least 0, got nan"),
        ({"limits": {"least_ratio": -0.1}}, r"must be a finite number of at least 0"),
        ({"limits": {"least_ratio": True}}, r"must be a finite number"),
        ({"limits": {"least_steps": 5.5}}, r"thresholds\.limits\.least_steps must be a whole number"),
        ({"limits": 0.5}, r"thresholds\.limits must be a mapping of thresholds"),
        ([1], r"thresholds must be a mapping of rules"),
    ],
)
def test_errors_name_argument_value_and_way_out(thresholds: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        with_thresholds([Limits()], thresholds)


@pytest.mark.parametrize(("given", "near"), [("input-bond", ["input-bound", "val-input-bound"]), ("xyz", []), (3, [])])
def test_an_unknown_rule_names_the_closest_few_and_how_to_list_all(given: object, near: list[str]) -> None:
    rules = discover(entry_points=()).rules
    with pytest.raises(ArgumentError) as caught:
        with_thresholds(rules, {given: {}})  # type: ignore[dict-item]
    message = str(caught.value)
    named = re.findall(r"[\w-]+", message.partition("Did you mean")[2])
    assert [name for name in named if name in {rule.id for rule in rules}] == near
    assert message.endswith("gpuprof explain without a rule lists all.")
    assert ("Did you mean" in message) == bool(near)


def test_the_run_s_conditions_hold_them_so_that_later_reports_agree() -> None:
    metrics = build(run={"gpuprof.threshold.limits.least_steps": 100})
    assert thresholds_of(metrics.run) == {"limits": {"least_steps": 100}}
    assert [f.rule for f in diagnose(metrics, rules=[Limits()]).findings] == ["limits"]
    assert diagnose(build(), rules=[Limits()]).findings == ()


def test_a_threshold_that_another_version_knew_is_told_and_left_out() -> None:
    metrics = build(run={"gpuprof.threshold.limits.old": 1.0, "gpuprof.threshold.gone.old": 1.0})
    told = {n.rule: n.why for n in diagnose(metrics, rules=[Limits()]).not_evaluated}
    assert set(told) == {"limits", "gone"}
    assert all("given threshold is not used" in why for why in told.values())


def test_every_threshold_of_every_rule_can_be_given() -> None:
    rules = discover(entry_points=()).rules
    given = {
        rule.id: {field.name: getattr(rule, field.name) for field in dataclasses.fields(rule)}
        for rule in rules
        if dataclasses.is_dataclass(rule)
    }
    again = with_thresholds(rules, given)
    assert {rule.id: vars(rule) for rule in again} == given


def test_a_limit_out_of_reach_silences_a_rule() -> None:
    slow = build(times_ms={"callbacks": 40.0}, callbacks_ms={("Slow", "on_train_batch_end"): 39.0})
    assert "callback-slow" in {f.rule for f in diagnose(slow).findings}
    rule = next(rule for rule in discover(entry_points=()).rules if rule.id == "callback-slow")
    assert dataclasses.is_dataclass(rule)
    ratio = next(field.name for field in dataclasses.fields(rule) if field.name.endswith("_ratio"))
    quiet = replace(slow, run={**slow.run, f"gpuprof.threshold.callback-slow.{ratio}": 5.0})
    assert "callback-slow" not in {f.rule for f in diagnose(quiet).findings}
