"""Runs whose steps depend on each other: equal ones are not called changed, and too few independent ones are told."""

from __future__ import annotations

from functools import cache

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from test_compared_steps import report_of, row
from test_resampling import wandering

from lightning_gpuprof.analyze.compare import compare
from lightning_gpuprof.analyze.comparison.dependence import dependence
from lightning_gpuprof.analyze.comparison.resampling import MIN_BLOCKS
from lightning_gpuprof.analyze.comparison.step_times import StepTimes
from lightning_gpuprof.model.comparison import Comparison
from lightning_gpuprof.model.report import Report

Floats = npt.NDArray[np.float64]

MEMORIES = (0.0, 0.5, 0.9, 0.98)
REPEATS = {50: 40, 200: 40, 1000: 12, 5000: 6}
"""Steps -> pairs of runs; decision 69 has the table of 500."""


def periods(count: int, memory: float, seed: int, *, mean_ms: float = 20.0, noise_ratio: float = 0.05) -> Floats:
    """Periods of an autoregression of order 1."""
    scatter = (wandering(count, memory, seed) - 100) * np.sqrt(1 - memory**2)
    return np.asarray(mean_ms * (1 + noise_ratio * scatter), np.float64)


def compared(before: Floats, after: Floats, *, threshold_ratio: float = 0.0) -> Comparison:
    times = tuple(StepTimes(period_ms=period, phases_ms={"forward": period}) for period in (before, after))
    return compare(*(whole(one) for one in times), times=times, threshold_ratio=threshold_ratio)  # type: ignore[arg-type]


def whole(times: StepTimes) -> Report:
    """A report whose wall time is that of its steps and two seconds."""
    report = report_of(times)
    total_s = 2 + float(times.period_ms.sum()) / 1e3
    return msgspec.structs.replace(report, wall=msgspec.structs.replace(report.wall, total_s=total_s))


@cache
def alarms(count: int, memory: float) -> list[frozenset[str]]:
    """What each pair of equal runs was called changed in, at no threshold: at the bare 5 % level."""
    found = []
    for seed in range(REPEATS[count]):
        result = compared(periods(count, memory, seed), periods(count, memory, seed + 10_000))
        found.append(frozenset(one.measure for one in result.judged if one.outcome in ("improved", "regressed")))
    return found


@pytest.mark.parametrize("count", REPEATS)
@pytest.mark.parametrize("memory", MEMORIES)
def test_equal_runs_are_limited_called_changed_however_long_they_wander(count: int, memory: float) -> None:
    for measure in ("throughput", "wall", "period", "p95", "phase.forward"):
        hits = sum(measure in one for one in alarms(count, memory))
        assert hits <= 1 + 0.07 * REPEATS[count], measure


@pytest.mark.parametrize("measure", ["throughput", "wall", "period", "p95", "phase.forward"])
def test_at_most_seven_percent_of_all_equal_runs_are_called_changed(measure: str) -> None:
    pairs = [one for count in REPEATS for memory in MEMORIES for one in alarms(count, memory)]
    assert np.mean([measure in one for one in pairs]) <= 0.07


def test_a_tenth_is_found_among_independent_steps() -> None:
    results = [
        compared(periods(200, 0, seed), periods(200, 0, seed + 10_000, mean_ms=22.0), threshold_ratio=0.03)
        for seed in range(40)
    ]
    assert np.mean([result.outcome == "regressed" for result in results]) > 0.95
    assert np.mean([row(result, "phase.forward").outcome == "regressed" for result in results]) > 0.95


def test_too_few_independent_steps_are_told_instead_of_a_verdict() -> None:
    result = compared(periods(200, 0.98, 1), periods(200, 0.98, 10_001), threshold_ratio=0.03)
    assert result.outcome == result.training.outcome == "not comparable"
    for why in (result.training.why, result.wall.why, row(result, "period").why, row(result, "phase.forward").why):
        assert why.startswith("steps depend on each other over ")
        assert "its 200 are worth only" in why
        assert f"independent blocks, {MIN_BLOCKS} are needed" in why


def test_runs_that_lie_clearly_apart_are_judged_however_their_steps_wander() -> None:
    result = compared(periods(200, 0.98, 1), periods(200, 0.98, 10_001, mean_ms=30.0), threshold_ratio=0.03)
    assert result.outcome == result.wall.outcome == row(result, "phase.forward").outcome == "regressed"
    assert "independent blocks" in result.training.why
    assert "independent blocks" in row(result, "phase.forward").why


def test_runs_that_stay_closer_than_the_threshold_are_within_noise_however_their_steps_wander() -> None:
    wanderers = [periods(200, 0.98, seed, noise_ratio=0.002) for seed in (1, 10_001)]
    result = compared(*wanderers, threshold_ratio=0.03)
    assert result.outcome == row(result, "period").outcome == "within noise"


@pytest.mark.parametrize("count", [50, 200, 1000, 5000])
@pytest.mark.parametrize("memory", MEMORIES)
def test_steps_are_worth_about_as_many_independent_ones_as_the_formula_says(count: int, memory: float) -> None:
    true = count * (1 - memory) / (1 + memory)
    found = float(np.median([dependence(wandering(count, memory, seed)).blocks for seed in range(40)]))
    assert 0.6 * true <= found <= max(1.25 * true, MIN_BLOCKS)


def test_the_error_of_a_mean_is_that_of_as_many_independent_ones() -> None:
    means = [wandering(1000, 0.9, seed).mean() for seed in range(200)]
    errors = [dependence(wandering(1000, 0.9, seed)).error for seed in range(50)]
    assert np.median(errors) == pytest.approx(np.std(means), rel=0.2)


@pytest.mark.parametrize("values", [[3.0], [3.0] * 50, [1.0, 2.0, 3.0]])
def test_constants_and_a_handful_of_values_are_taken_as_independent(values: list[float]) -> None:
    assert dependence(np.array(values)).blocks == len(values)
