"""Runs whose steps depend on each other: equal ones are not called changed, and too few independent ones are named."""

from functools import cache

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from built_journals import wandering
from built_reports import finding, report_of, row
from simulated_speeds import Speeds, demo, demo_fixed, outlasting, steady

from lightning_gpuprof.analyze.compare import compare
from lightning_gpuprof.analyze.comparison import too_few
from lightning_gpuprof.analyze.comparison.resampling import MIN_BLOCKS, Drawn, dependence
from lightning_gpuprof.analyze.comparison.uncertainty import StepTimes
from lightning_gpuprof.model.comparison import Comparison
from lightning_gpuprof.model.finding import Checks
from lightning_gpuprof.model.report import Report

Floats = npt.NDArray[np.float64]

MEMORIES = (0.0, 0.5, 0.9, 0.98)
REPEATS = {50: 20, 200: 20, 1000: 8, 5000: 4}
"""Steps -> pairs of runs; decision 69 has the table of 500."""


def periods(count: int, memory: float, seed: int, *, mean_ms: float = 20.0, noise_ratio: float = 0.05) -> Floats:
    """Step times of an autoregression of order 1."""
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
    for measure in ("throughput", "wall", "step_time", "p95", "phase.forward"):
        hits = sum(measure in one for one in alarms(count, memory))
        assert hits <= 1 + 0.07 * REPEATS[count], measure


@pytest.mark.parametrize("measure", ["throughput", "wall", "step_time", "p95", "phase.forward"])
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
    for why in (result.training.why, result.wall.why, row(result, "step_time").why, row(result, "phase.forward").why):
        assert " run stayed fast or slow for " in why
        assert "its 200 steps are worth" in why
        assert f"independent measurements, {MIN_BLOCKS} are needed" in why


def test_runs_that_lie_clearly_apart_are_judged_however_their_steps_wander() -> None:
    result = compared(periods(200, 0.98, 1), periods(200, 0.98, 10_001, mean_ms=30.0), threshold_ratio=0.03)
    assert result.outcome == result.wall.outcome == row(result, "phase.forward").outcome == "regressed"
    assert result.training.from_levels
    assert "every tenth of the earlier run" in result.training.why
    assert "every tenth of the earlier run" in row(result, "phase.forward").why


def two_levels(first_ms: float, second_ms: float, *, count: int = 200, seed: int = 1) -> Floats:
    """A run that changes its speed once, at nine twentieths."""
    level = np.where(np.arange(count) < 0.45 * count, first_ms, second_ms)
    return np.asarray(level * np.random.default_rng(seed).lognormal(0, 0.05, count), np.float64)


def test_a_run_of_two_speeds_is_judged_where_each_lies_beyond_all_of_the_other_run() -> None:
    before, after = two_levels(149, 200), two_levels(103, 103, seed=2)
    result = compared(before, after, threshold_ratio=0.03)
    assert result.outcome == result.training.outcome == result.wall.outcome == "improved"
    assert 1.3 < result.training.lower < 149 / 103  # never more than the closest two levels
    back = compared(after, before, threshold_ratio=0.03)
    assert back.outcome == back.wall.outcome == "regressed"
    assert 103 / 149 < back.training.upper < 1 / 1.3


@pytest.mark.parametrize("later", [(149, 149), (170, 170), (103, 160), (135, 135)])
def test_levels_that_overlap_or_lie_closer_than_one_run_moved_by_itself_are_not_judged(
    later: tuple[float, float],
) -> None:
    result = compared(two_levels(149, 200), two_levels(*later, seed=2), threshold_ratio=0.03)
    assert result.outcome == result.training.outcome == "not comparable"
    assert not result.training.from_levels


def grown(by_ms: float, severity: str = "") -> tuple[Report, StepTimes]:
    """A run whose steps get longer, from 8 ms on, and the severity of the finding that says so; empty: none does."""
    noise = np.random.default_rng(int(by_ms)).lognormal(0, 0.05, 300)
    times = StepTimes(period_ms=np.linspace(8, 8 + by_ms, 300) * noise, phases_ms={})
    says = msgspec.structs.replace(finding("step-drift", 2.0), severity=severity)
    checks = Checks(passed=() if severity else ("step-drift",))
    return msgspec.structs.replace(whole(times), findings=(says,) if severity else (), checks=checks), times


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        (grown(22, "warning"), grown(0), "improved"),
        (grown(22), grown(0), "not comparable"),
        (grown(22, "info"), grown(0), "not comparable"),
        (grown(22, "warning"), grown(14, "warning"), "not comparable"),
    ],
)
def test_a_run_whose_steps_no_longer_grow_is_compared_with_the_mean_of_the_one_that_did(
    before: tuple[Report, StepTimes], after: tuple[Report, StepTimes], outcome: str
) -> None:
    result = compare(before[0], after[0], times=(before[1], after[1]), threshold_ratio=0.03)
    assert result.outcome == result.training.outcome == outcome
    if outcome == "improved":
        assert result.wall.outcome == "improved"
        assert 1.8 < result.training.lower < 19 / 8
        assert "steps no longer grow" in result.training.why


def test_levels_of_other_batches_are_not_held_against_each_other() -> None:
    times = [StepTimes(period_ms=one, phases_ms={}) for one in (two_levels(149, 200), two_levels(103, 103, seed=2))]
    reports = [
        msgspec.structs.replace(whole(one), run={**whole(one).run, "loader.batch_size": size})
        for one, size in zip(times, (32, 64), strict=True)
    ]
    result = compare(reports[0], reports[1], times=(times[0], times[1]), allow=("batch",))
    assert not result.training.from_levels


def test_at_most_five_percent_of_equal_runs_that_drift_or_change_level_are_called_changed() -> None:
    """Decision 108 has the table of 500 pairs of each kind and length."""

    def drifting(seed: int) -> Floats:
        slope = np.random.default_rng(seed).uniform(-0.2, 0.2)
        return periods(200, 0.98, seed) * np.exp(slope * np.linspace(0, 1, 200))

    def switching(seed: int) -> Floats:
        rng = np.random.default_rng(seed)
        slow = np.cumsum(rng.random(200) < 0.01) % 2 == rng.integers(2)  # a level lasts 100 steps on average
        return periods(200, 0.9, seed) * np.where(slow, 1.35, 1.0)

    for kind in (drifting, switching):
        found = [compared(kind(seed), kind(seed + 10_000), threshold_ratio=0.03).outcome for seed in range(40)]
        assert np.mean([outcome in ("improved", "regressed") for outcome in found]) <= 0.05


def test_noise_that_outlasts_the_run_is_seldom_called_a_change_and_the_demo_always() -> None:
    """``benchmarks/compare_alarms.py`` has 500 pairs of each kind."""

    def outcomes(before: Speeds, after: Speeds) -> list[Comparison]:
        sides = before, after
        return [
            compared(
                *(one(200, np.random.default_rng((side, seed))) for side, one in enumerate(sides)), threshold_ratio=0.03
            )
            for seed in range(40)
        ]

    found = outcomes(outlasting(1), outlasting(1))
    assert np.mean([one.outcome in ("improved", "regressed") for one in found]) <= 0.07
    assert any("drifted: two runs may differ as much" in one.training.why for one in found)
    assert np.mean([one.outcome == "improved" for one in outcomes(demo, demo_fixed)]) >= 0.95
    assert np.mean([one.outcome == "within noise" for one in outcomes(steady, steady)]) >= 0.95


@pytest.mark.parametrize(("after_ms", "outcome"), [(61.0, "improved"), (100.0, "not comparable")])
def test_a_large_difference_of_few_independent_steps_is_judged_with_a_cautious_interval(
    after_ms: float, outcome: str
) -> None:
    before = periods(444, 0.98, 26, mean_ms=122.0, noise_ratio=0.2)
    after = periods(444, 0.98, 10_026, mean_ms=after_ms, noise_ratio=0.2)
    result = compared(before, after, threshold_ratio=0.03)
    assert result.outcome == result.training.outcome == outcome
    assert result.training.rough is (outcome == "improved")
    assert "independent measurements" in result.training.why or "drifted" in result.training.why
    if result.training.rough:
        assert 1.03 < result.training.lower < 2 < result.training.upper


def test_equal_runs_are_seldom_called_changed_where_a_large_difference_would_be_found() -> None:
    pairs = [[periods(444, 0.98, seed + side, noise_ratio=0.25) for side in (0, 10_000)] for seed in range(40)]
    assert np.mean([compared(one, other).training.rough for one, other in pairs]) <= 0.05
    found = [compared(one, other / 2).outcome == "improved" for one, other in pairs]
    assert np.mean(found) >= 0.3


@pytest.mark.parametrize(("blocks", "said"), [(4.97, "4.9"), (4.8, "4.8")])
def test_independent_blocks_that_are_too_few_never_read_as_enough(blocks: float, said: str) -> None:
    few = Drawn(at=np.ones(2), steps=444, blocks=blocks)
    assert f"worth {said} independent measurements, 5 are needed" in too_few.interval_obstacle(few, few)


def test_runs_that_stay_closer_than_the_threshold_are_within_noise_however_their_steps_wander() -> None:
    wanderers = [periods(200, 0.98, seed, noise_ratio=0.002) for seed in (1, 10_001)]
    result = compared(*wanderers, threshold_ratio=0.03)
    assert result.outcome == row(result, "step_time").outcome == "within noise"


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
