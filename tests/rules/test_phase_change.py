import math

import msgspec
import pytest
from findings_builder import fired
from metrics_builder import build, outliers, replace
from traced_builder import window
from uneven_builder import of_speed_levels, stretch

from lightning_gpuprof.model.evenness import Evenness, Stretch
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.steps.phase_change import PhaseChange
from lightning_gpuprof.rules.steps.step_outliers import StepOutliers

RULE = PhaseChange()


def test_a_dataset_that_turns_slow_half_way_is_found_with_its_phase_and_batch() -> None:
    finding = fired(RULE, of_speed_levels(stretch(count=200), stretch({"data_wait": 50.0}, start=200, count=200)))
    assert finding.severity == "critical"
    assert (finding.subject, finding.explains) == ("waiting for data", claims.WAIT_FOR_BATCHES)
    assert "From batch 200 on, steps take 100 ms instead of 50.0 ms" in finding.summary
    assert "100 % of the difference is in waiting for data" in finding.summary
    assert finding.advice.startswith("Find what changed at batch 200 in Digits")
    assert "windows=[(99, 101), (299, 301)]" in finding.advice
    assert finding.gain.saved_ms_per_step == pytest.approx(25)
    assert finding.gain.saved_lower_ms_per_step == pytest.approx((99 - 50.5) / 2)


def test_a_slow_part_in_the_middle_is_told_with_its_end() -> None:
    parts = stretch(), stretch({"loop": 50.0}, start=100), stretch(start=200)
    finding = fired(RULE, of_speed_levels(*parts))
    assert "From batch 100 until 200" in finding.summary
    assert "1 other part of the run differs" in finding.summary


def test_whether_the_thread_computes_or_waits_is_told() -> None:
    before = stretch(cpu_ms={"forward": 20.0})
    waits = RULE.check(of_speed_levels(before, stretch({"forward": 30.0}, start=100, cpu_ms={"forward": 20.0})))
    computes = RULE.check(of_speed_levels(before, stretch({"forward": 30.0}, start=100, cpu_ms={"forward": 50.0})))
    assert "waits longer there" in waits.summary
    assert "computes 30.0 ms longer" in computes.summary


def on_gpu(*parts: Stretch, launches: int, idle: float = 0.0) -> Metrics:
    """A window of 100 ms a step with so many launches in each, and so much of the step without work."""
    seen = window(period_ms=100.0, causes={"callbacks": idle} if idle else None)
    seen = msgspec.structs.replace(seen, launches_matched=5 * launches, launches_unmatched=0)
    return replace(of_speed_levels(*parts, run={"device.type": "cuda"}), windows=(seen,))


@pytest.mark.parametrize("start", [0, 10_000])
@pytest.mark.parametrize(
    ("launches", "idle", "fires"),
    [(100, 0.0, False), (500, 0.0, True), (100, 0.3, True)],
)
def test_a_host_that_runs_ahead_until_the_queue_is_full_has_no_slow_part(
    start: int, launches: int, idle: float, fires: bool
) -> None:
    """20 steps of 50 ms, then such of 100 ms: ahead by half of the launches of 20 steps, if the device has no rest."""
    parts = stretch(start=start, count=20), stretch({"backward": 50.0}, start=start + 20, count=80)
    metrics = on_gpu(*parts, launches=launches, idle=idle)
    assert (RULE.check(metrics) is not None) == fires
    unseen = fired(RULE, replace(metrics, windows=()))
    assert unseen.severity == "info"
    assert "no trace window shows it" in unseen.summary


def test_a_slow_part_before_a_fast_one_is_no_host_that_is_ahead() -> None:
    metrics = on_gpu(stretch({"backward": 50.0}, count=80), stretch(start=80, count=20), launches=100)
    for each in (metrics, replace(metrics, windows=())):
        assert fired(RULE, each).severity != "info"


def test_a_shift_that_costs_little_in_all_is_left_alone() -> None:
    assert RULE.check(of_speed_levels(stretch(count=100), stretch({"loop": 11.0}, start=100, count=45))) is None
    assert RULE.check(of_speed_levels(stretch(count=100), stretch({"loop": 11.0}, start=100, count=46))) is not None


def test_waiting_for_a_cpu_is_no_change_of_the_program() -> None:
    assert RULE.check(of_speed_levels(stretch(), stretch({"forward": 80.0}, start=100, run_delay_ratio=0.2))) is None


def crowded(*undelayed: Stretch) -> Metrics:
    """A run of one speed, half of whose steps is waiting for a CPU, without which it has these levels."""
    metrics = of_speed_levels(stretch(count=200, period_ms=100.0, run_delay_ratio=0.5))
    return replace(metrics, evenness=msgspec.structs.replace(metrics.evenness, undelayed_levels=undelayed))


def test_other_programs_do_not_hide_a_change_of_the_program() -> None:
    before = stretch(run_delay_ratio=0.5, cpu_ms={"forward": 20.0})
    after = stretch({"forward": 20.0}, start=100, run_delay_ratio=0.5, cpu_ms={"forward": 40.0})
    finding = fired(RULE, crowded(before, after))
    said = "From batch 100 on, steps take 70.0 ms instead of 50.0 ms (batches 0 to 99), not counting waits for a CPU."
    assert finding.summary.startswith(said)
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(10)
    slept = stretch({"forward": 20.0, "backward": 10.0}, start=100, run_delay_ratio=0.5, cpu_ms={"forward": 20.0})
    assert "waits longer there" in fired(RULE, crowded(before, slept)).summary
    fetched = stretch({"data_wait": 20.0}, start=100, run_delay_ratio=0.5, cpu_ms={"forward": 20.0, "data_wait": 0.0})
    assert RULE.check(crowded(msgspec.structs.replace(before, cpu_ms=fetched.cpu_ms), fetched)) is None
    more_waits = msgspec.structs.replace(after, run_delay_ratio=0.6)
    assert RULE.check(crowded(before, more_waits)) is None


def test_waiting_for_a_cpu_in_other_phases_does_not_hide_a_sleep() -> None:
    cpu = {"forward": 20.0, "backward": 20.0, "optimizer": 5.0}
    longer: dict[Phase, float] = {"forward": 40.0, "backward": 7.0, "optimizer": 7.0}
    before = stretch(cpu_ms=cpu)
    whole_ms = before.period_ms + sum(longer.values())
    slept = stretch(longer, start=100, cpu_ms=cpu, run_delay_ratio=14 / whole_ms)
    finding = fired(RULE, of_speed_levels(before, slept))
    assert "waits longer there" in finding.summary
    delayed = stretch(longer, start=100, cpu_ms=cpu, run_delay_ratio=54 / whole_ms)
    assert RULE.check(of_speed_levels(before, delayed)) is None


@pytest.mark.parametrize(("spread_ms", "fires"), [(0.0, False), (14.0, True)])
def test_waiting_for_a_cpu_that_is_in_no_phase_s_median_does_not_hide_a_sleep(spread_ms: float, fires: bool) -> None:
    """A step that waits 20 ms longer for a CPU, now in one phase, now in another, or all of it in forward."""
    cpu = {"forward": 20.0, "backward": 20.0, "optimizer": 5.0}
    before = stretch(cpu_ms=cpu)
    whole_ms = before.period_ms + 40.0 + spread_ms
    slept = stretch({"forward": 40.0}, start=100, cpu_ms=cpu, run_delay_ratio=20.0 / whole_ms, period_ms=whole_ms)
    assert (RULE.check(of_speed_levels(before, slept)) is not None) is fires


def test_on_a_crowded_machine_a_phase_that_computes_longer_is_still_the_program() -> None:
    before = stretch(cpu_ms={"forward": 20.0, "backward": 20.0}, run_delay_ratio=0.3)
    after = stretch({"forward": 60.0}, start=100, cpu_ms={"forward": 60.0, "backward": 20.0}, run_delay_ratio=0.4)
    finding = fired(RULE, of_speed_levels(before, after))
    assert finding.severity == "critical"
    assert finding.gain.saved_lower_ms_per_step == pytest.approx(40.0 / 2)  # CPU time, not 58 less 29 of waiting


def test_phases_that_all_change_alike_are_the_machine_or_the_work() -> None:
    alike = {"forward": 16.0, "backward": 18.0, "optimizer": 3.0, "loop": 1.5}
    assert RULE.check(of_speed_levels(stretch(), stretch(alike, start=100))) is None  # type: ignore[arg-type]


def test_layers_that_are_unfrozen_at_an_epoch_are_no_fault() -> None:
    finding = fired(RULE, of_speed_levels(stretch(), stretch({"backward": 20.0}, start=100, into_epoch=1)))
    assert finding.severity == "info"
    assert "by design" in finding.summary


@pytest.mark.parametrize(
    ("into_epoch", "later_into", "batches", "severity"),
    [(None, 2, 100, "info"), (None, 60, 100, "critical"), (0, 2, 100, "critical"), (None, 2, 50, "critical")],
)
def test_a_first_epoch_that_fills_a_cache_is_past(
    into_epoch: int | None, later_into: int, batches: int, severity: str
) -> None:
    cold = stretch({"data_wait": 100.0}, count=100, into_epoch=into_epoch)
    warm = stretch(start=100, count=300, into_epoch=later_into)
    finding = fired(RULE, of_speed_levels(cold, warm, run={"trainer.num_training_batches": batches}))
    assert finding.severity == severity
    assert ("in a cache" in finding.summary) is (severity == "info")
    if severity == "info":
        assert finding.gain.saved_lower_ms_per_step == 0


def test_without_a_look_at_the_machine_there_is_no_warning() -> None:
    unknown = {"taken_cpus": None, "cpu_busy_ratio": None, "run_delay_ratio": None}
    finding = fired(RULE, of_speed_levels(stretch(**unknown), stretch({"data_wait": 50.0}, start=100, **unknown)))
    assert finding.severity == "info"
    assert "was not measured" in finding.summary


@pytest.mark.parametrize(("delay_ratio", "severity"), [(0.01, "critical"), (0.2, "info")])
def test_a_fast_part_too_short_to_be_sampled_leaves_a_slow_part_that_did_not_wait_for_a_cpu(
    delay_ratio: float, severity: str
) -> None:
    unknown = {"taken_cpus": None, "cpu_busy_ratio": None}
    slow = stretch({"forward": 50.0}, run_delay_ratio=delay_ratio, **unknown)
    fast = stretch(start=100, run_delay_ratio=None, **unknown)
    assert fired(RULE, of_speed_levels(slow, fast)).severity == severity


def test_a_run_that_changes_all_the_time_is_unsteady() -> None:
    parts = [stretch({"data_wait": 40.0 * (i % 2)}, start=100 * i) for i in range(5)]
    assert fired(RULE, of_speed_levels(*parts)).severity == "info"


def test_what_is_not_known_is_not_judged() -> None:
    with pytest.raises(MissingSignal, match="not valid numbers"):
        RULE.check(of_speed_levels(stretch(), stretch({"loop": math.nan})))
    with pytest.raises(MissingSignal, match="steady steps"):
        RULE.check(replace(build(steady=5), evenness=Evenness(speed_levels=(stretch(),))))


def test_a_short_slow_part_is_told_once_though_its_steps_are_outlying_ones() -> None:
    stalls = outliers(count=40, stall_ms=50.0, phases="data_wait", steps=380, period_ms=50.0)
    slow = stretch({"data_wait": 50.0}, start=340, count=40)
    found = diagnose(of_speed_levels(stretch(count=340), slow, stalls=stalls), [StepOutliers(), RULE]).findings
    assert [(f.rule, f.gain is not None) for f in found] == [("phase-change", True)]
