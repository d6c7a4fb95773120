"""Every loop that Lightning has: sleeps of known size are found where they were planted, and nowhere else."""

import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest
from planted_loops.case import Case
from planted_loops.cases import CASES
from planted_loops.check import run_case
from planted_loops.places import in_step

COLD_BESIDE_OTHERS = 8.0
"""Beside other work caches are colder still; the share of what was planted stays at 5 %."""

pytestmark = [
    # Tiny runs give Lightning much to remark.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(autouse=True)
def signals_are_as_found() -> Iterator[None]:
    """No handler is left behind, whatever a trial or an early end does."""
    before = signal.getsignal(signal.SIGUSR2)
    yield
    after = signal.getsignal(signal.SIGUSR2)
    signal.signal(signal.SIGUSR2, before)  # what one case leaves behind is not the next one's fault
    assert after == before


def marked(case: Case) -> object:
    marks = [pytest.mark.slow] if case.slow else []
    if case.wrong:
        marks.append(pytest.mark.xfail(strict=True, reason=case.wrong))
    return pytest.param(case, id=case.name, marks=marks)


@pytest.mark.parametrize("case", [marked(case) for case in CASES])
def test_sleeps_are_found_where_they_were_planted_and_nowhere_else(case: Case) -> None:
    assert run_case(case, cold=COLD_BESIDE_OTHERS).problems == ()


def test_a_sleep_that_is_found_elsewhere_than_expected_is_told() -> None:
    """What the cases rest on: the comparison itself can fail."""
    plain = next(case for case in CASES if case.name == "only backward")
    elsewhere = replace(plain, places={"backward": in_step("forward")})
    outcome = run_case(elsewhere, scale=8.0, alone=True)  # naps longer than a slow machine can explain
    problems = " ".join(outcome.problems)
    assert "only backward: phase forward: " in problems
    assert "phase backward: 0.0 ms were planted" in problems
