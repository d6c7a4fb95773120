"""Speed levels and fifths of the steady steps, with what the machine and the main thread did meanwhile."""

from collections.abc import Callable

import numpy as np
import pytest
from built_journals import MS, build, charge, ints, journal

from lightning_gpuprof.analyze.journal_columns import CpuColumns
from lightning_gpuprof.analyze.unevenness import growth
from lightning_gpuprof.model.evenness import Growth
from lightning_gpuprof.model.journal import Sample
from lightning_gpuprof.rules.steps.step_drift import StepDrift


def noisy(n: int) -> np.ndarray:
    return 5 * np.random.default_rng(0).lognormal(0, 0.05, n)


def test_each_speed_level_has_its_phases_and_what_others_took_in_it() -> None:
    of = journal(1000, forward_ms=noisy(1000), epochs=5)
    for index in range(600, 1000):
        charge(of, 1, index, 19 * MS)
    for i in range(30):
        taken = 0.2 if i < 13 else 1.5
        values = {"cpu_others_cpus": taken, "cpu_steal_cpus": 0.1, "cpu_busy_ratio": taken / 2}
        of.samples.append(Sample(source="host", subject="host", t_ns=100 * MS + i * 500 * MS, values=values))
    before, after = build(of).evenness.speed_levels
    assert (before.to_batch, after.from_batch, after.into_epoch, before.into_epoch) == (599, 601, 1, None)
    assert after.phases_ms["data_wait"] == pytest.approx(23)
    assert before.taken_cpus < 0.7
    assert after.taken_cpus == pytest.approx(1.6)
    assert after.cpu_busy_ratio == pytest.approx(0.75)


def test_what_others_took_while_the_run_warmed_up_is_known() -> None:
    of = journal(300, warmup=40)  # 30 ms each
    for i in range(30):
        values = {"cpu_others_cpus": 1.5 if i < 12 else 0.1}
        of.samples.append(Sample(source="host", subject="host", t_ns=(i + 2) * 100 * MS, values=values))
    found = build(of).evenness
    assert found.warmup_steps == 40
    assert found.warmup_taken_cpus == pytest.approx(1.5)
    assert build(journal(300, warmup=40)).evenness.warmup_taken_cpus is None


def test_cpu_time_and_waiting_for_a_cpu_are_those_of_the_stretch() -> None:
    of = journal(200)
    batch = ints(range(0, 200, 2))
    of.cpu = CpuColumns(
        batch=batch,
        charged={2: ints(np.where(batch < 100, 2 * MS, 4 * MS))},
        run_delay_ns=ints(np.where(batch < 100, 0, MS)),
    )
    drift = build(of).evenness.drift
    first, last = drift.fifths[0], drift.fifths[-1]
    assert (first.cpu_ms["forward"], last.cpu_ms["forward"]) == (2, 4)
    assert (first.run_delay_ratio, last.run_delay_ratio) == (0, 0.1)


def test_other_programs_do_not_hide_that_the_run_itself_becomes_slower() -> None:
    """Waits for a CPU of 0 to 100 ms scatter by more than the step grows, from 20 to 26 ms."""
    waited_ms = np.random.default_rng(0).uniform(0, 100, 600)
    own_ms = np.where(np.arange(600) < 300, 15.0, 21.0)
    of = journal(600, forward_ms=own_ms + waited_ms)
    batch = ints(range(0, 600, 2))
    of.cpu = CpuColumns(batch=batch, charged={2: ints(own_ms[batch] * MS)}, run_delay_ns=ints(waited_ms[batch] * MS))
    found = build(of)
    assert len(found.evenness.speed_levels) == 1
    before, after = found.evenness.undelayed_levels
    assert after.from_batch in range(298, 304)
    assert before.to_batch == after.from_batch - 1
    assert after.period_ms - before.period_ms == pytest.approx(6, abs=0.5)
    assert after.phases_ms["forward"] == pytest.approx(21, abs=1.5)


def test_a_thread_that_has_its_cpu_needs_no_levels_without_waits() -> None:
    of = journal(200)
    batch = ints(range(0, 200, 2))
    of.cpu = CpuColumns(batch=batch, charged={2: ints([2 * MS] * 100)}, run_delay_ns=ints([0] * 100))
    assert build(of).evenness.undelayed_levels == ()


def test_a_period_that_grows_has_its_slope() -> None:
    drift = build(journal(1000, forward_ms=noisy(1000) + 0.02 * np.arange(1000))).evenness.drift
    assert drift.slope_ms_per_step == pytest.approx(0.02, rel=0.05)
    assert drift.p_value < 1e-6
    assert drift.fifths[-1].period_ms - drift.fifths[0].period_ms == pytest.approx(16, rel=0.05)


def test_a_period_that_stays_has_none() -> None:
    drift = build(journal(1000, forward_ms=noisy(1000))).evenness.drift
    assert drift.p_value > 0.01


def unfrozen(rng: np.random.Generator) -> np.ndarray:
    """Lightning's BaseFinetuning in three epochs of 50 steps: two jumps by 49 %."""
    return np.repeat([150.0, 224.0, 334.0], 50) * rng.lognormal(0, 0.06, 150)


def small_jumps(rng: np.random.Generator) -> np.ndarray:
    """Four epochs, each by 12 % slower: too little for parts of their own."""
    return np.repeat(10 * 1.12 ** np.arange(4), 60) * rng.lognormal(0, 0.02, 240)


def growing(rng: np.random.Generator) -> np.ndarray:
    """A list that is summed up: 0.05 ms more with every step."""
    return (4.0 + 0.015 * np.arange(780)) * rng.lognormal(0, 0.06, 780)


def growing_with_a_jump(rng: np.random.Generator) -> np.ndarray:
    return growing(rng) + np.where(np.arange(780) < 400, 0.0, 4.0)


@pytest.mark.parametrize(
    ("shape", "drifting"), [(unfrozen, False), (small_jumps, False), (growing, True), (growing_with_a_jump, True)]
)
def test_what_grows_gradually_drifts_and_what_grows_in_jumps_does_not(
    shape: Callable[[np.random.Generator], np.ndarray], drifting: bool
) -> None:
    for seed in range(10):
        forward_ms = shape(np.random.default_rng(seed))
        found = growth(build(journal(len(forward_ms), forward_ms=forward_ms)).evenness.drift)
        assert (isinstance(found, Growth) and StepDrift().is_gradual(found)) is drifting, seed


def test_short_runs_have_no_drift() -> None:
    assert build(journal(60)).evenness.drift is None
    assert build(journal(3)).evenness.speed_levels == ()
