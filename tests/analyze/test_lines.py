"""What a line of the user's code costs a step: its share of the looks at a phase, of that phase's time."""

import pytest
from built_journals import build, journal

from lightning_gpuprof.analyze.journal import _add_sites
from lightning_gpuprof.model.journal import CallSites


def test_a_line_has_its_share_of_the_phase_in_which_it_was_seen() -> None:
    of = journal(100)
    slots = {one.step_phase: slot for slot, one in enumerate(of.slots) if one.step_phase}
    fetch, forward = slots["data_wait"], slots["forward"]
    seen = {fetch: {"data.py:9 load": 30}, forward: {"net.py:21 forward": 60, "net.py:22 forward": 4}}
    for _ in range(2):  # as several records
        _add_sites(of, CallSites(counts=seen, looks={fetch: 40, forward: 64}))
    metrics = build(of)
    total_s = {row.phase: row.total_s for row in metrics.phases}
    found = {row.place: row for row in metrics.lines}
    assert found["data.py:9 load"].total_s == pytest.approx(total_s["data_wait"] * 30 / 40)
    assert found["net.py:21 forward"].total_s == pytest.approx(total_s["forward"] * 60 / 64)
    assert found["net.py:22 forward"].looks == 8
    assert [row.total_s for row in metrics.lines] == sorted((row.total_s for row in metrics.lines), reverse=True)
    assert all(row.share == pytest.approx(row.total_s / sum(total_s.values())) for row in metrics.lines)


def test_a_line_seen_in_few_rare_looks_has_no_row() -> None:
    of = journal(100)
    forward = next(slot for slot, one in enumerate(of.slots) if one.step_phase == "forward")
    counts = {"net.py:21 forward": 20, "net.py:22 forward": 4}
    _add_sites(of, CallSites(weight=4, counts={forward: counts}, looks={forward: 24}))
    assert [row.place for row in build(of).lines] == ["net.py:21 forward"]


def test_rarer_looks_count_for_as_much_time_as_they_stand_for() -> None:
    of = journal(100)
    forward = next(slot for slot, one in enumerate(of.slots) if one.step_phase == "forward")
    early, late, state = "net.py:21 forward", "net.py:22 forward", {"net.py:22 forward": (3, 2, 0)}
    _add_sites(of, CallSites(counts={forward: {early: 20}}, looks={forward: 20}))
    _add_sites(of, CallSites(weight=4, counts={forward: {late: 5}}, looks={forward: 5}, states={forward: state}))
    metrics = build(of)
    total_s = next(row.total_s for row in metrics.phases if row.phase == "forward")
    assert [(row.total_s, row.looks) for row in metrics.lines] == [(pytest.approx(total_s / 2), 20)] * 2
    (row,) = (row for row in metrics.lines if row.place == late)
    assert (row.python_ratio, row.native_ratio, row.off_cpu_ratio) == (0.6, 0.4, 0.0)


def test_a_line_that_was_seen_seldom_has_no_row() -> None:
    of = journal(100)
    forward = next(slot for slot, one in enumerate(of.slots) if one.step_phase == "forward")
    _add_sites(of, CallSites(counts={forward: {"net.py:21 forward": 4}}, looks={forward: 4}))
    assert build(of).lines == ()


def test_a_line_says_how_often_it_was_seen_in_python_in_native_code_and_off_the_cpu() -> None:
    of = journal(100)
    forward = next(slot for slot, one in enumerate(of.slots) if one.step_phase == "forward")
    counts = {"net.py:5 training_step;net.py:21 forward": 20, "net.py:22 forward": 20}
    states = {forward: {"net.py:21 forward": (3, 6, 0)}}
    for _ in range(2):
        _add_sites(of, CallSites(counts={forward: counts}, looks={forward: 50}, states=states))
        states = {forward: {"net.py:21 forward": (3, 6, 2)}}
    found = {row.place: (row.python_ratio, row.native_ratio, row.off_cpu_ratio) for row in build(of).lines}
    assert found["net.py:21 forward"] == pytest.approx((0.3, 0.6, 0.1))
    assert found["net.py:22 forward"] == (None, None, None)


def test_stacks_of_a_phase_sum_to_it_and_end_in_the_lines() -> None:
    of = journal(100)
    forward = next(slot for slot, one in enumerate(of.slots) if one.step_phase == "forward")
    counts = {"net.py:5 training_step;net.py:21 forward": 30, "net.py:6 training_step;net.py:21 forward": 10}
    _add_sites(of, CallSites(counts={forward: counts}, looks={forward: 50}))
    metrics = build(of)
    forward_s = next(row.total_s for row in metrics.phases if row.phase == "forward")
    assert [(row.place, row.looks) for row in metrics.lines] == [("net.py:21 forward", 40)]
    assert {row.frames: row.total_s for row in metrics.stacks} == {
        ("net.py:5 training_step", "net.py:21 forward"): pytest.approx(forward_s * 30 / 50),
        ("net.py:6 training_step", "net.py:21 forward"): pytest.approx(forward_s * 10 / 50),
        (): pytest.approx(forward_s * 10 / 50),
    }


def test_a_phase_that_is_outside_of_all_steps_has_no_stacks() -> None:
    of = journal(4)
    validation = next(slot for slot, one in enumerate(of.slots) if one.step_phase == "validation")
    _add_sites(of, CallSites(counts={validation: {"net.py:30 validation_step": 9}}, looks={validation: 9}))
    assert build(of).stacks == ()
