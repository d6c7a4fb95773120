"""Where the level of a run changes, and where it only looks so."""

from collections.abc import Callable

import numpy as np
import pytest

from lightning_gpuprof.analyze.speed_levels import change_points

Shape = Callable[[np.random.Generator, int], np.ndarray]

SEEDS = 200


def periods(levels: list[tuple[int, float]], *, noise: float = 0.05, seed: int = 0) -> np.ndarray:
    """Steps of so many ns at each level in ms, with log-normal noise."""
    level = np.concatenate([np.full(n, ms) for n, ms in levels])
    return 1e6 * level * np.random.default_rng(seed).lognormal(0, noise, len(level))


def autoregressive(rng: np.random.Generator, n: int) -> np.ndarray:
    """Noise of 10 % whose neighbours are correlated by 0.9."""
    x = np.empty(n)
    value = rng.normal()
    for i, shock in enumerate(rng.normal(0, np.sqrt(1 - 0.9**2), n)):
        value = 0.9 * value + shock
        x[i] = value
    return np.exp(0.1 * x)


NOISE: dict[str, tuple[Shape, int]] = {
    "log-normal, 10 %": (lambda rng, n: rng.lognormal(0, 0.1, n), 0),
    "log-normal, 60 %": (lambda rng, n: rng.lognormal(0, 0.6, n), 1),
    "tails without a variance": (lambda rng, n: 1 + 0.2 * rng.pareto(1.5, n), 0),
    "tails without a mean": (lambda rng, n: 1 + 0.5 * rng.pareto(0.7, n), 0),
    "neighbours alike": (autoregressive, 3),
    "one in ten slow, at random": (lambda rng, n: np.where(rng.random(n) < 0.1, 3, 1) * rng.lognormal(0, 0.05, n), 1),
    "one in two slow, at random": (lambda rng, n: np.where(rng.random(n) < 0.5, 2, 1) * rng.lognormal(0, 0.05, n), 10),
}
"""Noise without a change, and how often of 200 seeds one may be seen in 200 steps."""


@pytest.mark.parametrize("name", NOISE)
def test_noise_has_one_speed_level(name: str) -> None:
    shape, allowed = NOISE[name]
    seen = [change_points(1e7 * shape(np.random.default_rng(seed), 200)) for seed in range(SEEDS)]
    assert sum(bool(found) for found in seen) <= allowed


@pytest.mark.parametrize("every", [2, 3, 4, 10, 50])
@pytest.mark.parametrize("n", [60, 200, 1000])
def test_steps_that_are_slow_now_and_then_are_no_speed_level(every: int, n: int) -> None:
    steps = periods([(n, 10)])
    steps[::every] *= 3
    assert change_points(steps) == []


def test_a_burst_of_fifteen_slow_steps_in_a_hundred_is_no_speed_level() -> None:
    steps = periods([(1000, 10)])
    steps[np.arange(1000) % 100 < 15] *= 2
    assert change_points(steps) == []


@pytest.mark.parametrize("n", [200, 1000, 20_000])
def test_a_slow_drift_is_no_speed_level(n: int) -> None:
    assert change_points(periods([(n, 10)]) * np.linspace(1, 2, n)) == []


@pytest.mark.parametrize("n", [0, 1, 39, 40, 1000])
def test_equal_steps_are_one_speed_level(n: int) -> None:
    assert change_points(np.full(n, 10_000_000)) == []


@pytest.mark.parametrize(
    ("levels", "within"),
    [
        ([(500, 10), (500, 15)], 0),
        ([(500, 10), (500, 13)], 2),
        ([(500, 15), (500, 10)], 0),
        ([(30, 20), (970, 10)], 0),
        ([(970, 10), (30, 20)], 0),
        ([(400, 10), (200, 20), (400, 10)], 0),
        ([(400, 10), (30, 20), (570, 10)], 0),
        ([(250, 10), (250, 15), (250, 22), (250, 33)], 0),
        ([(20, 10), (20, 20)], 0),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_changes_are_found_where_they_are(levels: list[tuple[int, float]], within: int, seed: int) -> None:
    planted = np.cumsum([n for n, _ in levels])[:-1]
    found = change_points(periods(levels, seed=seed))
    assert len(found) == len(planted)
    assert np.abs(np.array(found) - planted).max() <= within


def test_a_change_is_found_in_noise_of_a_third_and_with_every_tenth_step_slow() -> None:
    steps = periods([(500, 10), (500, 16)], noise=0.3)
    steps[::10] *= 4
    (found,) = change_points(steps)
    assert abs(found - 500) <= 25


def test_a_change_of_less_than_a_fifth_is_none() -> None:
    assert change_points(periods([(500, 10), (500, 11.5)], noise=0.01)) == []


def test_a_change_in_a_million_steps_is_found_to_the_step() -> None:
    (found,) = change_points(periods([(700_000, 10), (300_000, 20)]))
    assert abs(found - 700_000) <= 2
