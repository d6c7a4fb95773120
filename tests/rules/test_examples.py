"""The examples in the rules' own files: each is a test."""

from __future__ import annotations

import sys
import textwrap
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
from example_runs import example_run

from lightning_gpuprof.rules.base import BaseRule, MissingSignal
from lightning_gpuprof.rules.discovery import discover
from lightning_gpuprof.rules.examples import Example

RULES = [rule for rule in discover(entry_points=()).rules if cast(BaseRule, rule).examples]

ALWAYS_JUDGED = {"graph-breaks"}
"""Without a compiled model there is nothing to judge, and of one all is known."""


def judge(rule: Any, example: Example) -> None:
    metrics = example_run(**cast(dict[str, Any], example.changes))
    if example.outcome == "not evaluated":
        with pytest.raises(MissingSignal) as missing:
            rule.check(metrics)
        assert example.says in missing.value.why
        return
    found = rule.check(metrics)
    assert (found is not None) is (example.outcome == "fires")
    if found is not None:
        assert found.severity == example.severity
        text = f"{found.summary} {found.advice}"
        for part in example.says.split(" ... "):
            assert part in text
        assert not example.lacks or example.lacks not in text
        if example.saves_ms is not None:
            assert found.gain is not None
            assert found.gain.saved_ms_per_step == pytest.approx(example.saves_ms, rel=0.02)


@pytest.mark.parametrize(
    ("rule", "example"),
    [
        pytest.param(rule, one, id=f"{rule.id}: {one.run}")
        for rule in cast(list[BaseRule], RULES)
        for one in rule.examples
    ],
)
def test_a_rule_judges_its_examples_as_they_say(rule: Any, example: Example) -> None:
    judge(rule, example)


def test_the_rule_in_contributing_judges_its_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    source = textwrap.dedent(text.partition("   ```python\n")[2].partition("   ```")[0])
    module = ModuleType("zero_grad_slow")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(source, vars(module))
    rule = module.ZeroGradSlow()
    for example in rule.examples:
        judge(rule, example)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_examples_show_all_that_a_rule_can_say(rule: Any) -> None:
    with suppress(MissingSignal):
        assert rule.check(example_run()) is None
    needed = {"fires", "quiet", "looks alike"} | (set() if rule.id in ALWAYS_JUDGED else {"not evaluated"})
    assert {one.outcome for one in rule.examples} == needed
    assert all(one.says for one in rule.examples if one.outcome in ("fires", "not evaluated"))
