"""Short, empty, torn and impossible journals give a calm report."""

import msgspec
import numpy as np
import pytest
from built_journals import MS, ints, journal

from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.analyze.metrics import build
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.pipeline import report_of
from lightning_gpuprof.sinks import html, json_report, tensorboard_text


def report(of: Journal) -> Report:
    made = report_of(build(of, []))
    assert msgspec.json.decode(json_report.encode(made), type=Report) == made
    assert html.render_html(made)
    assert tensorboard_text.markdown(made)
    return made


def assert_calm(made: Report) -> None:
    assert [n for n in made.not_evaluated if n.why.startswith("failed")] == []
    assert [f.rule for f in made.findings if f.severity != "info"] == []
    said = [made.verdict.summary, *(level.answer for level in made.method.levels)]
    for text in said:
        assert not {"nan", "inf"} & set(text.lower().split()), text


@pytest.mark.parametrize("steps", [0, 1, 2, 9])
def test_too_few_steps_are_no_data(steps: int) -> None:
    made = report(journal(steps))
    assert_calm(made)
    assert made.verdict.kind == "not-enough-data"
    assert not next(level for level in made.method.levels if level.name == "component").unfolded


def test_a_journal_without_an_end_is_read() -> None:
    assert_calm(report(journal(2, finished=False)))
    assert_calm(report(journal(0, finished=False)))


def test_epochs_of_one_step_have_no_steady_step() -> None:
    made = report(journal(60, epochs=60))
    assert_calm(made)
    assert made.verdict.kind == "not-enough-data"


def test_without_conditions_nothing_fails() -> None:
    of = journal(200)
    made = report(msgspec.structs.replace(of, conditions={}))
    assert [n for n in made.not_evaluated if n.why.startswith("failed")] == []


def test_steps_that_took_no_time_are_no_data() -> None:
    of = journal(200)
    nothing = np.zeros(200, np.int64)
    steps = msgspec.structs.replace(of.steps, period_ns=nothing, charged=dict.fromkeys(of.steps.charged, nothing))
    made = report(msgspec.structs.replace(of, steps=steps))
    assert_calm(made)
    assert made.verdict.kind == "not-enough-data"


@pytest.mark.parametrize("jump_ns", [3_600_000 * MS, -3_600_000 * MS, -5 * MS])
def test_a_clock_that_jumps_in_one_step_makes_no_alarm_of_ordinary_steps(jump_ns: int) -> None:
    of = journal(300, forward_ms=np.full(300, 50.0))
    period, forward = of.steps.period_ns.copy(), of.steps.charged[2].copy()
    period[150] += jump_ns
    forward[150] += jump_ns
    start = of.steps.start_ns.copy()
    start[151:] += jump_ns
    steps = msgspec.structs.replace(
        of.steps, period_ns=ints(period), start_ns=ints(start), charged={**of.steps.charged, 2: ints(forward)}
    )
    made = report(msgspec.structs.replace(of, steps=steps))
    assert [n for n in made.not_evaluated if n.why.startswith("failed")] == []
    assert {f.rule for f in made.findings if f.severity != "info"} <= {"step-outliers"}


def test_twice_the_same_journal_is_twice_the_same_report() -> None:
    assert report(journal(200)) == report(journal(200))
