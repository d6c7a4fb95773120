"""What no report may say, whatever the run: over the examples of all rules, and over all computed truth cases."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest
from example_runs import example_run
from truths.cases import CASES
from truths.gpu_runs import Simulated
from truths.recorded import Recorded

from lightning_gpuprof.model.finding import SEVERITIES, CombinedGain, Finding, Verdict
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
LEAST_SPEEDUP = {"critical": 1.25, "warning": 1.03, "info": 1.0}
"""20 % and 3 % of a step, from the lower bound of a share: the gain is told from its median."""


def assert_can_be_trusted(
    findings: tuple[Finding, ...], combined: CombinedGain | None, verdict: Verdict, run: dict[str, Any]
) -> None:
    gains = [(f, f.gain) for f in findings if f.gain is not None]
    order = [(SEVERITIES.index(f.severity), -gain.saved_ms_per_step) for f, gain in gains]
    assert order == sorted(order)
    for found, gain in gains:
        assert gain.speedup_max >= LEAST_SPEEDUP[found.severity], found
    if combined is not None:
        assert combined.saved_ms_per_step <= 0.99 * combined.period_ms
        assert combined.saved_run_ms_per_step <= 0.99 * combined.run_ms_per_step
    for found in findings:
        assert_changes_something(found, run)
    shown = re.search(r"(\d[\d.]*) %", verdict.runner_up)
    first = re.search(r"(\d[\d.]*) %", verdict.summary)
    if shown is not None and first is not None and verdict.kind != "mixed":
        assert float(shown[1]) <= float(first[1]) + 0.5, verdict


def assert_changes_something(found: Finding, run: dict[str, Any]) -> None:
    change = found.change
    if change is None:
        return
    assert change.added or change.removed
    assert change.added != change.removed
    assert (
        any(change.before.get(name) != value for name, value in change.arguments.items()) or change.add + change.remove
    )
    for value in change.arguments.values():
        assert str(value) in found.advice, (found.advice, change)
    if change.call == "torch.set_num_threads":
        assert run.get("torch.num_threads") not in change.arguments.values()


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
