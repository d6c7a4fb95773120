"""Computed runs: what is planted is found, its twin is quiet, and what must not matter does not."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from truths.case import Case
from truths.cases_of_drivers import DRIVERS
from truths.cases_of_gpus import GPUS
from truths.cases_of_hosts import HOSTS
from truths.cases_of_recorded import RECORDED
from truths.driven import Driven
from truths.gpu_runs import Simulated
from truths.host_runs import Hosted
from truths.judging import Judgement, judge
from truths.recorded import Recorded
from truths.running import RunOutcome, read_outcome

from lightning_gpuprof.rules.discovery import discover

RULES = {rule.id for rule in discover(entry_points=()).rules}
BY_NAME = {case.name.removeprefix("GPU: "): case for case in (*GPUS, *HOSTS)}
FAULTS = [name for name, case in BY_NAME.items() if case.group == "fault"]
OTHERS = [name for name, case in BY_NAME.items() if case.group != "fault"]
QUICK = ("the loss is read in each step", "batches come late", "batches in pageable memory")


def told(source: Simulated | Hosted | Recorded, seed: int) -> RunOutcome:
    with TemporaryDirectory() as folder:
        return read_outcome(source(Path(folder), seed))


@cache
def of(name: str, seed: int = 1) -> RunOutcome:
    source = BY_NAME[name].source
    assert isinstance(source, Simulated | Hosted)
    return told(source, seed)


def judged(case: Case, found: RunOutcome) -> Judgement:
    return judge(case, found, rules=RULES)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in FAULTS]
)
def test_a_computed_fault_is_the_first_finding(name: str) -> None:
    judgement = judged(BY_NAME[name], of(name))
    assert (judgement.ranks, judgement.false_alarms) == ((1,), ())
    assert judgement.verdict_right is not False, judgement.said


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_a_training_without_the_fault_has_no_warning(name: str) -> None:
    judgement = judged(BY_NAME[name], of(name))
    assert (judgement.false_alarms, judgement.not_judged) == ((), ())
    assert all(rank is not None and rank <= 3 for rank in judgement.ranks), judgement.said
    assert judgement.verdict_right is not False, judgement.said


def test_a_loop_in_python_is_named_by_its_line_and_not_as_slow_launches() -> None:
    found = of("a loop in Python between launches")
    assert [(f.rule, f.subject) for f in found.findings] == [("gpu-gaps", "loss.py(31): match")]
    judgement = judged(BY_NAME["a loop in Python between launches"], found)
    assert judgement.ranks == (1,)
    called_slow = replace(found, findings=(replace(found.findings[0], rule="launch-bound"),))
    judgement = judged(BY_NAME["a loop in Python between launches"], called_slow)
    assert (judgement.ranks, judgement.false_alarms) == ((None,), ("launch-bound",))


def test_the_promised_gain_is_what_the_twin_is_shorter_by() -> None:
    name = "the loss is read in each step"
    source = BY_NAME[name].source
    assert isinstance(source, Simulated)
    # The twin's host is ahead until the queue is full, some ten steps: the mean of many is the device's pace.
    before, after = of(name), told(replace(source, faulty=False, steps=600), 1)
    assert before.period_mean_ms is not None
    assert after.period_mean_ms is not None
    assert before.findings[0].saved_ms == pytest.approx(before.period_mean_ms - after.period_mean_ms, rel=0.1)


@pytest.mark.parametrize("factor", [3.0, 20.0])
@pytest.mark.parametrize("name", QUICK)
def test_a_trace_in_which_all_takes_longer_has_the_same_verdict(name: str, factor: float) -> None:
    source = BY_NAME[name].source
    assert isinstance(source, Simulated)
    slower = told(replace(source, factor=factor), 1)
    assert slower.verdict == of(name).verdict
    assert slower.findings[0].rule == of(name).findings[0].rule


def test_time_before_the_first_traced_step_changes_nothing() -> None:
    name = QUICK[0]
    source = BY_NAME[name].source
    assert isinstance(source, Simulated)
    found = told(replace(source, before_us=2e6), 1)
    assert found.verdict == of(name).verdict
    assert [f.rule for f in found.findings] == [f.rule for f in of(name).findings]
    # Before the first of five traced steps the queue is empty: its wait blocks the host for less.
    assert found.findings[0].saved_ms == pytest.approx(of(name).findings[0].saved_ms, rel=0.2)


def test_each_fault_has_its_twin_and_each_source_its_cases() -> None:
    programs = {
        flag: {
            case.source.program
            for case in BY_NAME.values()
            if isinstance(case.source, Simulated | Hosted) and case.group == group
        }
        for flag, group in ((True, "fault"), (False, "healthy"))
    }
    assert programs[True] <= programs[False]
    assert len(programs[True]) >= 14
    assert {case.group for case in DRIVERS} in ({"fault", "healthy", "decoy", "pair"}, set())
    assert all(isinstance(case.source, Driven) for case in DRIVERS)


@pytest.mark.slow
@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case.name)
def test_a_recorded_trace_says_what_is_known_of_it(case: Case) -> None:
    assert isinstance(case.source, Recorded)
    judgement = judged(case, told(case.source, 1))
    assert all(rank is not None and rank <= 3 for rank in judgement.ranks), judgement
    assert judgement.false_alarms == ()
    assert judgement.verdict_right is not False, judgement.said
