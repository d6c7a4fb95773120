"""The summary of the steps: intervals, speed levels and what is said of them; other stages than fit."""

import numpy as np
import pytest
from built_journals import MS, build, charge, ints, journal
from msgspec.structs import replace

from lightning_gpuprof.analyze.comparison.resampling import Resampling
from lightning_gpuprof.analyze.comparison.too_few import interval_obstacle
from lightning_gpuprof.analyze.compilation import compiled_steps
from lightning_gpuprof.analyze.journal_columns import CpuColumns
from lightning_gpuprof.analyze.steady import select
from lightning_gpuprof.analyze.step_facts import caveats
from lightning_gpuprof.model.journal import Segment
from lightning_gpuprof.model.phases import STAGES, STEP_PARTS, Stage, parts_of
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.pipeline import report_of
from lightning_gpuprof.sinks.first_screen import first_screen


def noisy(n: int, seed: int = 0) -> np.ndarray:
    return 5 * np.random.default_rng(seed).lognormal(0, 0.05, n)


def test_median_mean_and_samples_per_s_have_intervals_around_them() -> None:
    steps = build(journal(500, forward_ms=noisy(500))).steps
    for interval, value in (
        (steps.period_median_interval_ms, steps.period_ms.median),
        (steps.period_mean_interval_ms, steps.period_ms.mean),
        (steps.samples_per_s_interval, steps.samples_per_s),
    ):
        assert interval[0] < value < interval[1]
        assert interval[1] / interval[0] < 1.02


def test_a_run_of_one_level_is_one_speed_level_without_a_caveat() -> None:
    m = build(journal(500, forward_ms=noisy(500)))
    (level,) = m.steps.speed_levels
    assert (level.from_batch, level.to_batch, level.count) == (m.steps.steady_from, 499, m.steps.steady_count)
    assert level.period_ms == m.steps.period_ms
    assert not [c for c in m.validity.caveats if "speed level" in c or "steadily" in c]


def test_a_run_that_changed_says_when_and_in_which_phase() -> None:
    of = journal(1000, forward_ms=noisy(1000))
    for index in range(800, 1000):
        charge(of, 1, index, 19 * MS)
    m = build(of)
    before, after = m.steps.speed_levels
    assert (before.to_batch, after.from_batch, after.to_batch) == (799, 800, 999)
    assert before.count + after.count == m.steps.steady_count
    assert after.phases_ms["data_wait"] == pytest.approx(23)
    assert before.phases_ms["forward"] == pytest.approx(5, rel=0.02)
    (caveat,) = [c for c in m.validity.caveats if "speed levels" in c]
    assert caveat == "two speed levels: 9.99 ms until batch 799, then 29 ms; waiting for data changed by +19 ms"
    assert m.validity.ok


def test_a_run_that_came_back_has_three_speed_levels() -> None:
    forward = noisy(1000)
    forward[400:600] += 10
    m = build(journal(1000, forward_ms=forward))
    assert [r.from_batch for r in m.steps.speed_levels][1:] == [400, 600]
    (caveat,) = [c for c in m.validity.caveats if "speed levels" in c]
    assert caveat.startswith("three speed levels: 9.9")
    assert "forward changed by" in caveat


def test_a_run_with_many_levels_gives_their_range() -> None:
    forward = noisy(1200) + 10.0 * (np.arange(1200) // 200)
    m = build(journal(1200, forward_ms=forward))
    assert len(m.steps.speed_levels) == 6
    (caveat,) = [c for c in m.validity.caveats if "speed levels" in c]
    assert caveat.startswith("6 speed levels from 10 to 60 ms, the first until batch 199")


@pytest.mark.parametrize(
    ("forward", "said"),
    [
        (np.linspace(1, 4, 1000), "the step time grew steadily: "),
        (np.linspace(4, 1, 1000), "the step time fell steadily: "),
        (np.where(np.arange(1000) < 400, 1.0, 3.0), "two speed levels: "),
        (np.repeat([1.0, 2.0, 3.0], [400, 300, 300]), "two speed levels: "),
    ],
)
def test_a_steady_growth_is_no_jump_where_a_change_point_cuts_it(forward: np.ndarray, said: str) -> None:
    """On a noisy machine a ramp reads as two levels, and the finding says that it grew gradually."""
    cut = build(journal(1000, forward_ms=noisy(1000) * np.repeat([1.0, 3.0], 500))).steps.speed_levels
    of = journal(1000, forward_ms=noisy(1000) * forward)
    facts = replace(build(of).steps, speed_levels=cut)
    (caveat,) = caveats(of, facts, select(of.steps, of.phases, compiled_steps(of)))
    assert caveat.startswith(said)


def test_a_drift_is_told_as_such() -> None:
    grown = build(journal(1000, forward_ms=noisy(1000) * np.linspace(1, 3, 1000)))
    assert len(grown.steps.speed_levels) == 1
    assert any("grew steadily: 11 ms" in c for c in grown.validity.caveats)
    fallen = build(journal(1000, forward_ms=noisy(1000) * np.linspace(3, 1, 1000)))
    assert any("fell steadily" in c for c in fallen.validity.caveats)


def test_a_run_that_compare_refuses_as_its_speed_drifted_is_less_reliable() -> None:
    of = journal(600, forward_ms=noisy(600) + np.linspace(6, 0, 600))
    m = build(of)
    slow, fast = m.steps.drift_ms
    assert slow > 1.4 * fast
    drawn = Resampling(of.steps.period_ns[20:] / 1e6, stream=0).means(of.steps.period_ns[20:] / 1e6)
    assert drawn.slow
    assert interval_obstacle(drawn, drawn)
    known = first_screen(report_of(m)).reliability
    assert known.kind == "conditional"
    assert known.words.startswith(f"less reliable: the speed changed, {slow:.3g} -> {fast:.3g} ms (")
    assert level_of(report_of(m)).startswith("The measurement is less reliable")
    small = build(journal(600, forward_ms=noisy(600) + np.linspace(0.3, 0, 600)))
    assert small.steps.drift_ms is None
    assert build(journal(600, forward_ms=noisy(600))).steps.drift_ms is None


def level_of(report: Report) -> str:
    return next(level.answer for level in report.method.levels if level.name == "conditions")


def test_noise_is_hardly_ever_called_a_drift() -> None:
    caveats = [build(journal(150, forward_ms=noisy(150, seed) ** 2)).validity.caveats for seed in range(50)]
    assert [c for c in caveats if c] == []


def test_cpu_time_stands_beside_the_wall_time_of_each_phase() -> None:
    of = journal(100)
    sampled = range(0, 100, 4)
    of.cpu = CpuColumns(
        batch=ints(sampled), charged={1: ints([0 for _ in sampled]), 2: ints([4 * MS for _ in sampled])}
    )
    rows = {row.phase: row for row in build(of).phases}
    assert (rows["data_wait"].median_ms, rows["data_wait"].cpu_ms) == (pytest.approx(4), 0)
    assert (rows["forward"].median_ms, rows["forward"].cpu_ms) == (pytest.approx(5), pytest.approx(4))
    assert {row.cpu_ms for row in build(journal(100)).phases} == {None}


def test_samples_of_steps_that_are_not_there_are_left_out() -> None:
    of = journal(100)
    batches = [3, 500, *range(20, 40), 10_000]  # warm-up, and lost with their blocks
    of.cpu = CpuColumns(batch=ints(batches), charged={2: ints([4 * MS] * 23)})
    assert {row.phase: row.cpu_ms for row in build(of).phases}["forward"] == pytest.approx(4)
    of.steps.flags[:] |= 1
    assert {row.cpu_ms for row in build(of).phases} == {None}


@pytest.mark.parametrize("stage", STAGES)
def test_a_journal_of_any_stage_becomes_a_report(stage: Stage) -> None:
    of = journal(200, stage=stage)
    of.segments = [Segment(kind="setup", start_ns=0, end_ns=100 * MS, charged={0: 100 * MS})]
    of.steps.stepped[:] = 0 if stage != "fit" else np.arange(200) > 0
    report = report_of(build(of))
    assert report.run["stage"] == stage
    assert set(report.wall.parts) == set(parts_of(stage))
    assert report.wall.parts[STEP_PARTS[stage]] == pytest.approx(2)
    assert sum(report.wall.parts.values()) == pytest.approx(report.wall.total_s)
    assert report.steps.optimizer_steps == (200 if stage == "fit" else 0)
    assert report.ledger[0].part == STEP_PARTS[stage]
    assert report.verdict.summary
