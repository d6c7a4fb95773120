"""What no report may say, whatever the run: over the examples of all rules, and over all computed truth cases."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest
from example_runs import example_run
from trusted import assert_can_be_trusted
from truths.cases import CASES
from truths.gpu_runs import Simulated
from truths.recorded import Recorded

from lightning_gpuprof.pipeline import load_report
from lightning_gpuprof.rules.base import BaseRule
from lightning_gpuprof.rules.discovery import discover
from lightning_gpuprof.rules.engine import diagnose

RULES = cast(list[BaseRule], list(discover(entry_points=()).rules))
FIRING = [
    pytest.param(one.changes, id=f"{rule.id}: {one.run}")
    for rule in RULES
    for one in rule.examples
    if one.outcome == "fires"
]
COMPUTED = [case for case in CASES if isinstance(case.source, Simulated | Recorded)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_has_a_title_for_a_headline(rule: BaseRule) -> None:
    assert 10 <= len(rule.title) <= 60
    assert not re.search(r"\b\d", rule.title)
    assert not rule.title.endswith(".")


@pytest.mark.parametrize("changes", FIRING)
def test_a_report_of_an_example_can_be_trusted(changes: dict[str, Any]) -> None:
    metrics = example_run(**changes)
    said = diagnose(metrics)
    assert_can_be_trusted(said.findings, said.combined, said.verdict, dict(metrics.run))


@pytest.mark.slow
@pytest.mark.parametrize("case", COMPUTED, ids=lambda case: case.name)
def test_a_report_of_a_computed_run_can_be_trusted(case: Any, tmp_path: Path) -> None:
    report = load_report(case.source(tmp_path, 3).parent)
    assert_can_be_trusted(report.findings, report.combined, report.verdict, report.run)
