"""The block bootstrap of step times: deterministic, and as unsure as the steps' dependence makes it."""

import numpy as np
import pytest
from built_journals import wandering

from lightning_gpuprof.analyze.comparison.resampling import ROUNDS, Drawn, Resampling, draws_from_interval


def width(drawn: Drawn) -> float:
    low, high = np.quantile(drawn.at, [0.025, 0.975])
    return float(high - low)


def test_the_same_steps_give_the_same_draws_and_another_run_gives_others() -> None:
    period = wandering(400, 0.5, 1)
    again, other = Resampling(period, stream=0), Resampling(period, stream=1)
    assert np.array_equal(Resampling(period, stream=0).means(period).at, again.means(period).at)
    assert not np.array_equal(again.means(period).at, other.means(period).at)


@pytest.mark.parametrize(("memory", "least"), [(0.0, 88), (0.8, 78)])
def test_the_interval_of_the_mean_covers_the_truth_about_as_often_as_it_says(memory: float, least: int) -> None:
    hits = 0
    for seed in range(100):
        period = wandering(600, memory, seed)
        low, high = np.quantile(Resampling(period, stream=0).means(period).at, [0.025, 0.975])
        hits += low <= 100 <= high
    assert hits >= least


def test_steps_that_hang_together_get_a_wider_interval() -> None:
    short, long = wandering(2000, 0.0, 3), wandering(2000, 0.95, 3)
    quick, slow = Resampling(short, stream=0), Resampling(long, stream=0)
    assert width(slow.means(long)) / long.std() > 2 * width(quick.means(short)) / short.std()


def test_draws_of_a_quantile_lie_around_it() -> None:
    period = wandering(1000, 0.3, 4)
    resampling = Resampling(period, stream=0)
    for q in (0.5, 0.95):
        draws = resampling.quantiles(period, q).at
        assert draws.shape == (ROUNDS,)
        low, high = np.quantile(draws, [0.025, 0.975])
        assert low <= np.quantile(period, q) <= high


def test_a_constant_and_a_single_step_are_certain() -> None:
    for period in (np.full(50, 3.0), np.array([3.0])):
        resampling = Resampling(period, stream=0)
        assert np.allclose(resampling.means(period).at, 3.0)
        assert np.allclose(resampling.quantiles(period, 0.5).at, 3.0)


def test_cells_of_many_steps_leave_the_mean_where_it_is() -> None:
    period = wandering(50_001, 0.2, 5)
    draws = Resampling(period, stream=0).means(period)
    assert draws.at.mean() == pytest.approx(period.mean(), rel=1e-9)
    assert 0 < width(draws) < 0.1


def test_draws_of_an_interval_have_its_ends() -> None:
    draws = draws_from_interval(10.0, (9.5, 12.0), stream=0).at
    low, middle, high = np.quantile(draws, [0.025, 0.5, 0.975])
    assert (low, middle, high) == pytest.approx((9.5, 10.0, 12.0), abs=0.1)
