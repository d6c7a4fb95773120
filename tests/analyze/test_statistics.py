"""Intervals: how often they hold the truth, and what they do with few, equal and many values."""

import numpy as np
import pytest

from lightning_gpuprof.analyze.statistics import (
    lower_bound_of_total_share,
    mean_interval,
    median_interval,
    share,
)

ROUNDS = 200


def correlated(rng: np.random.Generator, n: int) -> np.ndarray:
    """Log-normal values whose neighbours are correlated by a half; their median is 1, their mean exp(0.02)."""
    x = np.empty(n)
    value = rng.normal()
    for i, shock in enumerate(rng.normal(0, np.sqrt(0.75), n)):
        value = 0.5 * value + shock
        x[i] = value
    return np.exp(0.2 * x)


def test_intervals_of_dependent_steps_hold_the_truth_in_nine_of_ten_runs() -> None:
    held_median = held_mean = 0
    for seed in range(ROUNDS):
        values = correlated(np.random.default_rng(seed), 400)
        median, mean = median_interval(values), mean_interval(values)
        held_median += median[0] <= 1 <= median[1]
        held_mean += mean[0] <= np.exp(0.02) <= mean[1]
    assert 0.89 * ROUNDS <= held_median <= 0.99 * ROUNDS
    assert 0.87 * ROUNDS <= held_mean <= 0.99 * ROUNDS


def test_intervals_are_around_their_value_and_repeat() -> None:
    values = np.random.default_rng(1).lognormal(0, 0.4, 500)
    median, mean = median_interval(values), mean_interval(values)
    assert median[0] < np.median(values) < median[1]
    assert mean[0] < values.mean() < mean[1]
    assert (median, mean) == (median_interval(values), mean_interval(values))


def test_four_times_the_steps_halve_an_interval_also_beyond_the_cells() -> None:
    widths = []
    for n in (10_000, 160_000):
        interval = median_interval(np.random.default_rng(2).lognormal(0, 0.4, n))
        widths.append(interval[1] - interval[0])
    assert widths[0] / widths[1] == pytest.approx(4, rel=0.25)


def test_an_interval_scales_with_its_values() -> None:
    values = np.random.default_rng(3).lognormal(0, 0.4, 100)
    assert median_interval(values * 7) == pytest.approx(np.multiply(median_interval(values), 7))
    assert mean_interval(values * 7) == pytest.approx(np.multiply(mean_interval(values), 7))


def test_equal_values_have_an_interval_without_width_and_few_have_none() -> None:
    assert median_interval(np.full(50, 3.0)) == (3.0, 3.0)
    assert mean_interval(np.full(50, 3.0)) == pytest.approx((3.0, 3.0))
    assert median_interval(np.ones(19)) is None
    assert mean_interval(np.ones(19)) is None
    assert median_interval(np.array([])) is None


def test_the_bound_of_a_total_holds_what_comes_again_and_again_and_not_one_stall() -> None:
    period = np.full(400, 10_000_000)
    often, once = np.zeros(400, np.int64), np.zeros(400, np.int64)
    often[::8] = 5_000_000
    once[200] = 250_000_000
    found = [share(part, period + part) for part in (often, once)]
    assert all(one is not None and one.total_ratio == pytest.approx(0.0588, abs=1e-4) for one in found)
    bounds = [one.total_lower_ratio for one in found if one is not None and one.total_lower_ratio is not None]
    assert 0.04 < bounds[0] < 0.0588
    assert bounds[1] == 0


def test_the_bound_of_a_total_scales_with_the_cells_of_many_steps() -> None:
    part, period = np.full(10_000, 2.0), np.full(10_000, 8.0)
    assert lower_bound_of_total_share(part, period) == pytest.approx(0.25)


def test_steps_of_two_kinds_are_known_to_wait_by_what_all_of_them_wait() -> None:
    """Two workers hand over their batches together: half of the steps wait 53 ms, the other half nearly nothing."""
    waits_ms = np.random.default_rng(1).permutation([53.0] * 39 + [11.0] * 34)
    found = share((waits_ms * 1e6).astype(np.int64), ((waits_ms + 6.0) * 1e6).astype(np.int64))
    assert found.median_ratio >= found.lower_ratio > 0.75


def test_what_a_tenth_of_the_steps_hold_is_no_share_of_ordinary_ones() -> None:
    part_ms = np.where(np.arange(200) % 20 == 7, 500.0, 1.0)
    found = share((part_ms * 1e6).astype(np.int64), ((part_ms + 9.0) * 1e6).astype(np.int64))
    assert found.lower_ratio == pytest.approx(0.1, abs=0.01)
    assert found.total_ratio > 0.7


def test_what_came_in_the_middle_of_the_run_is_not_certain_of_all_of_it() -> None:
    part_ms = np.where(np.arange(200) < 98, 2.0, 60.0)
    found = share((part_ms * 1e6).astype(np.int64), ((part_ms + 6.0) * 1e6).astype(np.int64))
    assert found.median_ratio > 0.9
    assert found.lower_ratio < 0.3
