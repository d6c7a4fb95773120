"""What trace windows added to a run, apart from what happened to lie beside them."""

import pytest
from built_journals import MS, build, charge, journal

from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.model.journal import DISTURBED, PROFILED

BOUNDARY, VALIDATION, SAVE, FORWARD, FETCH = 4, 5, 6, 2, 1


def traced(slow_ms: int = 5) -> Journal:
    """100 steps of 10 ms: 5 traced ones take 5 ms longer, the window's end 30 ms; 20 lie beside its analysis."""
    of = journal(100)
    of.steps.flags[40:45] |= PROFILED
    of.steps.flags[45:65] |= DISTURBED
    for step in range(40, 45):
        charge(of, FORWARD, step, slow_ms * MS)
    charge(of, BOUNDARY, 44, 30 * MS)
    return of


def cost_s(of: Journal) -> float | None:
    return build(of).overhead["windows_s"]


def test_it_is_slower_steps_and_the_end_of_the_window() -> None:
    assert cost_s(traced()) == pytest.approx(0.055)


@pytest.mark.parametrize(("slot", "step"), [(VALIDATION, 50), (SAVE, 42), (FETCH, 55)])
def test_what_lies_beside_it_by_chance_is_not_counted(slot: int, step: int) -> None:
    of = traced(slow_ms=0)
    charge(of, slot, step, 3000 * MS)
    assert cost_s(of) == pytest.approx(0.03)


def test_steps_beside_the_analysis_count_by_what_they_take_longer() -> None:
    of = traced()
    charge(of, FORWARD, 46, 100 * MS)  # the interpreter was held
    assert cost_s(of) == pytest.approx(0.155)


@pytest.mark.parametrize(("every", "longer_ms"), [(10, 12), (2, 6), (4, 3)])
def test_steps_of_which_some_always_take_longer_are_not_slower_by_a_window(every: int, longer_ms: int) -> None:
    of = journal(400)
    of.steps.flags[100:105] |= PROFILED
    of.steps.flags[105:220] |= DISTURBED
    for step in range(3, 400, every):
        charge(of, FORWARD, step, longer_ms * MS)
        charge(of, BOUNDARY, step, 2 * MS)
    assert cost_s(of) == pytest.approx(0.0, abs=0.005)
    charge(of, BOUNDARY, 104, 30 * MS)
    assert cost_s(of) == pytest.approx(0.03, abs=0.005)


def test_a_stall_beside_a_window_hides_nothing() -> None:
    of = traced()
    charge(of, FORWARD, 30, 5000 * MS)
    assert cost_s(of) == pytest.approx(0.055, abs=0.001)


def test_a_window_is_held_against_the_speed_level_that_it_lies_in() -> None:
    of = traced()
    for step in range(70, 100):
        charge(of, FORWARD, step, -4 * MS)
    assert cost_s(of) == pytest.approx(0.055)
    of = traced()
    for step in range(38):
        charge(of, FORWARD, step, 40 * MS)
    assert cost_s(of) == pytest.approx(0.055, abs=0.01)


def test_without_a_window_it_is_nothing_and_without_steady_steps_unknown() -> None:
    assert cost_s(journal(100)) == 0.0
    of = traced()
    of.steps.flags[:] |= PROFILED
    assert cost_s(of) is None
