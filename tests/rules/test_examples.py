"""The examples in the rules' own files: the run of each is made once, judged by its rule, and its report is read."""

import re
import sys
import textwrap
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
from checked_screen import check
from example_runs import example_run
from metrics_builder import build
from more_examples import MORE
from patched_script import assert_placed_or_said
from trusted import assert_can_be_trusted
from words import IN_FINDINGS, unwanted

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.pipeline import report_of
from lightning_gpuprof.rules.base import BaseRule, MissingSignal, NotApplicable
from lightning_gpuprof.rules.discovery import discover
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.examples import Example

RULES = cast(list[BaseRule], list(discover(entry_points=()).rules))

UNJUDGED = {"not evaluated": MissingSignal, "not applicable": NotApplicable}
ALWAYS_JUDGED = {"graph-breaks"}
"""Without a compiled model there is nothing to judge, and of one all is known."""


def run_of(example: Example) -> Metrics:
    return example_run(**cast(dict[str, Any], example.changes))


class Runs:
    """A rule, its examples and their runs, which are most of the work here."""

    def __init__(self, rule: Any) -> None:
        self.rule = rule
        self._made = [(one, run_of(one)) for one in (*rule.examples, *MORE.get(rule.id, ()))]

    def each(self, check_one: Callable[[Any, Example, Metrics], None]) -> None:
        """Check all of them; what fails says of which."""
        for one, metrics in self._made:
            try:
                check_one(self.rule, one, metrics)
            except (Exception, pytest.fail.Exception) as error:
                raise AssertionError(f"{self.rule.id}: {one.run}") from error


@pytest.fixture(scope="module", params=RULES, ids=lambda rule: rule.id)
def runs(request: pytest.FixtureRequest) -> Runs:
    return Runs(request.param)


def judge(rule: Any, example: Example, metrics: Metrics) -> None:
    if example.outcome in UNJUDGED:
        with pytest.raises(MissingSignal) as missing:
            rule.check(metrics)
        assert type(missing.value) is UNJUDGED[example.outcome]
        assert example.says in missing.value.why
        return
    found = rule.check(metrics)
    assert (found is not None) is (example.outcome == "fires")
    if found is not None:
        assert found.severity == example.severity
        text = f"{found.subject}: {found.summary} {found.advice}"
        for part in example.says.split(" ... "):
            assert part in text
        assert not example.lacks or example.lacks not in text
        if example.saves_ms is not None:
            saved_ms = 0.0 if found.gain is None else found.gain.saved_ms_per_step
            assert saved_ms == pytest.approx(example.saves_ms, rel=0.02)


def test_more_examples_are_of_rules_that_are_there() -> None:
    assert set(MORE) <= {rule.id for rule in RULES}


def test_examples_say_what_is_said() -> None:
    examples = [one for rule in RULES for one in (*rule.examples, *MORE.get(rule.id, ()))]
    assert all(one.says for one in examples if one.outcome in ("fires", *UNJUDGED))


def test_a_rule_that_cannot_judge_a_healthy_run_has_an_example_that_says_why() -> None:
    examples = {rule.id: (*rule.examples, *MORE.get(rule.id, ())) for rule in RULES}
    for found in diagnose(build()).not_evaluated:
        assert [one for one in examples[found.rule] if one.outcome == "not evaluated" and one.says in found.why], found


def test_a_rule_judges_its_examples_as_they_say(runs: Runs) -> None:
    runs.each(judge)


def test_a_rule_speaks_the_field_s_english(runs: Runs) -> None:
    """Titles, summaries, advice, names of evidence and reasons."""

    def check_words(rule: Any, example: Example, metrics: Metrics) -> None:
        try:
            found = rule.check(metrics)
        except MissingSignal as missing:
            said = [missing.why]
        else:
            said = [found.title, found.summary, found.advice, *(e.name for e in found.evidence)] if found else []
        assert not [words for text in said for words in unwanted(text, IN_FINDINGS)]

    assert not unwanted(runs.rule.title, IN_FINDINGS)
    runs.each(check_words)


def test_a_limit_has_the_unit_of_its_value(runs: Runs) -> None:
    def check_limits(rule: Any, example: Example, metrics: Metrics) -> None:
        found = rule.check(metrics) if example.outcome == "fires" else None
        for one in () if found is None else found.evidence:
            assert one.limit is None or not isinstance(one.value, str), one

    runs.each(check_limits)


def test_a_function_is_named_as_code(runs: Runs) -> None:
    """``need() (train.py:42)``: a user may call a function by any word."""

    def check_names(rule: Any, example: Example, metrics: Metrics) -> None:
        found = None
        with suppress(MissingSignal):
            found = rule.check(metrics)
        for text in () if found is None else (found.title, found.summary, found.advice):
            assert not re.findall(r"\b[a-z_]\w* \([^()]*\.py:\d+\)", text), text

    runs.each(check_names)


def test_the_change_of_an_example_is_put_into_a_plain_script_or_one_line_says_why_not(
    runs: Runs, tmp_path: Path
) -> None:
    def check_change(rule: Any, example: Example, metrics: Metrics) -> None:
        found = rule.check(metrics) if example.outcome == "fires" else None
        if found is not None and found.change is not None:
            assert_placed_or_said(found.change, tmp_path)

    runs.each(check_change)


def test_reports_of_examples_can_be_trusted_and_have_a_first_screen(runs: Runs) -> None:
    def check_report(rule: Any, example: Example, metrics: Metrics) -> None:
        report = report_of(metrics)
        check(report)
        assert not unwanted(report.verdict.summary, IN_FINDINGS)
        if example.outcome == "fires":
            assert_can_be_trusted(report.findings, report.combined, report.verdict, dict(metrics.run))

    runs.each(check_report)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_has_a_title_for_a_headline(rule: BaseRule) -> None:
    assert 10 <= len(rule.title) <= 40  # with what a fix gains, one line of a laptop
    assert not re.search(r"\b\d", rule.title)
    assert not rule.title.endswith(".")


def test_the_rule_in_contributing_judges_its_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    source = textwrap.dedent(text.partition("   ```python\n")[2].partition("   ```")[0])
    module = ModuleType("zero_grad_slow")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(source, vars(module))
    rule = module.ZeroGradSlow()
    for example in rule.examples:
        judge(rule, example, run_of(example))


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.examples], ids=lambda rule: rule.id)
def test_examples_show_all_that_a_rule_can_say(rule: Any) -> None:
    with suppress(MissingSignal):
        assert rule.check(example_run()) is None
    shown = {one.outcome for one in rule.examples}
    assert {"fires", "quiet", "looks alike"} <= shown
    assert shown & set(UNJUDGED) or rule.id in ALWAYS_JUDGED
