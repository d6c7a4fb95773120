"""One label for each step, and where a run is warm."""

import numpy as np
import pytest
from built_journals import MS, build, charge, journal

from lightning_gpuprof.analyze import steady
from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.analyze.steady import Selection
from lightning_gpuprof.model.journal import DISTURBED, LAST_OF_EPOCH, PROFILED
from lightning_gpuprof.model.report import STEP_LABELS


def select(of: Journal) -> Selection:
    return steady.select(of.steps, of.phases)


def label(chosen: Selection, index: int) -> str:
    return STEP_LABELS[chosen.labels[index]]


def noisy(n: int, ms: float = 5, *, seed: int = 0) -> np.ndarray:
    return ms * np.random.default_rng(seed).lognormal(0, 0.05, n)


def warm_from(forward_ms: np.ndarray) -> int:
    return select(journal(len(forward_ms), forward_ms=forward_ms)).first_steady


def test_each_step_has_one_label_and_the_counts_sum() -> None:
    of = journal(200, epochs=2)
    of.steps.flags[99] |= LAST_OF_EPOCH
    of.steps.flags[40:45] |= PROFILED
    of.steps.flags[45:48] |= DISTURBED
    charge(of, 5, 70, 50 * MS)
    charge(of, 6, 80, 50 * MS)
    chosen = select(of)
    where = {
        "warm-up": [0, 5],
        "profiled": [40, 44],
        "disturbed": [45, 47],
        "validation-adjacent": [70, 71],
        "checkpoint": [80, 81],
        "last-of-epoch": [99],
        "first-of-epoch": [100],
        "steady": [6, 39, 48, 69, 72, 82, 98, 101, 199],
    }
    assert {name: [i for i in at if label(chosen, i) == name] for name, at in where.items()} == where
    counts = build(of).steps.labels
    assert counts == {
        "profiled": 5,
        "disturbed": 3,
        "compiled": 0,
        "warm-up": 6,
        "checkpoint": 2,
        "validation-adjacent": 2,
        "first-of-epoch": 1,
        "last-of-epoch": 1,
        "steady": 180,
    }
    assert sum(counts.values()) == build(of).steps.count


def test_where_every_other_step_validates_the_steps_between_count() -> None:
    of = journal(100)
    for index in range(0, 100, 2):
        charge(of, 5, index, 50 * MS)
    counts = build(of).steps.labels
    assert counts["steady"] >= 40
    assert counts["validation-adjacent"] >= 40


def test_epochs_of_two_steps_keep_the_second() -> None:
    of = journal(300, epochs=150)
    of.steps.flags[1::2] |= LAST_OF_EPOCH
    counts = build(of).steps.labels
    assert (counts["last-of-epoch"], counts["first-of-epoch"]) == (0, 144)
    assert counts["steady"] == 145


def test_a_run_too_short_to_leave_out_the_steps_beside_an_analysis_counts_them_and_says_so() -> None:
    of = journal(60)
    of.steps.flags[20:55] |= DISTURBED
    m = build(of)
    assert (m.steps.steady_count, m.steps.labels["disturbed"]) == (54, 0)
    assert m.validity.ok
    assert "35 of 54 steady steps ran during the analysis of a trace: the run is short" in m.validity.caveats
    assert m.outliers is None  # such a step may be long because of the analysis
    long = journal(100)
    long.steps.flags[20:55] |= DISTURBED
    assert build(long).steps.labels["disturbed"] == 35


def test_a_run_that_never_became_steady_is_all_warm_up() -> None:
    of = journal(5)
    of.steps.flags[3] |= PROFILED
    m = build(of)
    assert (m.steps.steady_from, m.steps.labels["warm-up"], m.steps.labels["profiled"]) == (None, 4, 1)
    assert m.steps.speed_levels == ()


@pytest.mark.parametrize("n", [7, 10, 30, 100, 1000])
def test_noise_has_no_long_warm_up(n: int) -> None:
    assert np.quantile([warm_from(noisy(n, seed=seed)) for seed in range(40)], 0.9) <= 8


@pytest.mark.parametrize("length", [8, 12, 30, 150])
def test_slow_steps_at_the_start_are_warm_up_to_the_last_one(length: int) -> None:
    forward = noisy(1000)
    forward[:length] *= 6
    assert length <= warm_from(forward) <= length + 2


def test_recompilations_keep_a_run_from_being_steady() -> None:
    forward = noisy(1000)
    forward[[0, 1, 7, 13, 20]] = 900
    assert 21 <= warm_from(forward) <= 23


def test_slow_convergence_ends_within_a_tenth_of_the_level() -> None:
    index = np.arange(10_000)
    start = warm_from(noisy(10_000) * (1 + 4 * np.exp(-index / 50)))
    assert 100 <= start <= 300


def test_a_drift_that_never_ends_is_warm_up_for_a_fifth_at_most() -> None:
    assert warm_from(noisy(1000) * np.linspace(3, 1, 1000)) <= 201


@pytest.mark.parametrize("turn", [300, 500, 900])
def test_a_late_change_is_no_warm_up(turn: int) -> None:
    forward = noisy(1000)
    forward[turn:] *= 4
    assert warm_from(forward) <= 8
    assert warm_from(forward[::-1].copy()) <= (8 if turn < 800 else 1000 - turn + 2)


def test_a_fast_start_is_no_warm_up() -> None:
    forward = noisy(1000)
    forward[100:] *= 4
    assert warm_from(forward) <= 8
