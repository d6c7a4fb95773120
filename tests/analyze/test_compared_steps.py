"""A comparison of two runs whose steps are known one by one: what is judged, what is noise, what is named."""

from collections.abc import Callable

import msgspec
import numpy as np
import pytest
import sample_report
from built_reports import finding, report_of, row

from lightning_gpuprof.analyze.compare import compare
from lightning_gpuprof.analyze.comparison.uncertainty import StepTimes
from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.comparison import Comparison
from lightning_gpuprof.model.conditions import FIXED_GROUPS
from lightning_gpuprof.model.finding import CombinedGain, Finding
from lightning_gpuprof.model.host import HostUse, Level, MachineUse, ProcessUse
from lightning_gpuprof.model.memory import Memory
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.rules import claims

STEPS = 400
MEDIANS_MS: dict[Phase, float] = {"data_wait": 8.0, "forward": 7.0, "backward": 4.0, "optimizer": 1.0}


def steps(seed: int, *, count: int = STEPS, **extra_ms: float) -> StepTimes:
    """Steady steps of 20 ms; every phase scatters by a twentieth, and takes so much more."""
    rng = np.random.default_rng(seed)
    phases = {
        phase: (median + extra_ms.get(phase, 0.0)) * rng.lognormal(0, 0.05, count)
        for phase, median in MEDIANS_MS.items()
    }
    return StepTimes(period_ms=np.sum(list(phases.values()), axis=0), phases_ms=phases)


def compared(before: StepTimes, after: StepTimes, **options: object) -> Comparison:
    return compare(report_of(before), report_of(after), times=(before, after), **options)  # type: ignore[arg-type]


def test_a_slower_phase_is_a_regression_and_is_named() -> None:
    result = compared(steps(1), steps(2, forward=3.0))
    assert result.outcome == "regressed"
    assert ": forward +" in result.cause
    assert result.cause in result.summary
    assert {one.measure for one in result.judged if one.outcome == "regressed"} >= {"step_time", "phase.forward"}
    assert row(result, "phase.data_wait").outcome == "within noise"
    forward = row(result, "phase.forward")
    assert forward.lower < 3.0 < forward.upper
    assert result.sources == ("journal", "journal")


def test_a_faster_phase_is_an_improvement() -> None:
    result = compared(steps(1), steps(2, data_wait=-6.0))
    assert result.outcome == "improved"
    assert ": waiting for data -" in result.cause
    assert row(result, "phase.data_wait").outcome == "improved"


def test_runs_of_the_same_program_are_within_noise_in_every_measure() -> None:
    for seed in range(20):
        result = compared(steps(seed), steps(seed + 100))
        assert {one.outcome for one in result.judged} == {"within noise"}, seed
        assert result.cause == ""


def test_the_comparison_is_the_same_each_time() -> None:
    before, after = steps(1), steps(2, forward=0.8)
    assert compared(before, after) == compared(before, after)


def test_mean_phases_sum_to_the_change_of_the_mean_period() -> None:
    before, after = steps(1), steps(2, forward=3.0, data_wait=-2.0)
    result = compared(before, after)
    moved = sum(one.difference or 0.0 for one in result.mean_phases)
    assert moved == pytest.approx(after.period_ms.mean() - before.period_ms.mean())
    assert abs(result.mean_phases[0].difference or 0.0) >= abs(result.mean_phases[-1].difference or 0.0)


@pytest.mark.parametrize(("threshold", "outcome"), [(0.03, "regressed"), (0.2, "within noise")])
def test_the_threshold_is_the_smallest_change_that_counts(threshold: float, outcome: str) -> None:
    result = compared(steps(1), steps(2, forward=2.0), threshold_ratio=threshold, metrics=("throughput",))
    assert (result.outcome, result.threshold_ratio) == (outcome, threshold)
    assert row(result, "phase.forward").outcome == outcome


def test_a_phase_counts_by_its_share_of_the_period_not_of_itself() -> None:
    result = compared(steps(1), steps(2, optimizer=0.4))
    assert row(result, "phase.optimizer").outcome == "within noise"
    assert row(result, "phase.optimizer").lower is not None


@pytest.mark.parametrize(
    ("metrics", "outcome"),
    [
        (("phase.forward",), "regressed"),
        (("phase.data_wait",), "improved"),
        (("phase.data_wait", "phase.forward"), "regressed"),
        (("phase.optimizer",), "within noise"),
        (("memory.process_rss", "phase.data_wait"), "not comparable"),
    ],
)
def test_the_outcome_rests_on_the_metrics_that_are_asked_for(metrics: tuple[str, ...], outcome: str) -> None:
    before, after = steps(1), steps(2, forward=3.0, data_wait=-3.0)
    with_memory = msgspec.structs.replace(report_of(before), memory=Memory(process_rss_peak_bytes=1e9))
    result = compare(with_memory, report_of(after), times=(before, after), metrics=metrics)
    assert (result.outcome, result.metrics) == (outcome, metrics)


def test_an_unknown_metric_names_the_known_ones() -> None:
    with pytest.raises(
        ArgumentError, match=r"--metric must be one of throughput, wall, .*phase\.forward.*, got 'speed'"
    ):
        compared(steps(1), steps(2), metrics=("speed",))


def test_reports_alone_are_judged_by_their_intervals_and_say_so() -> None:
    before, after = report_of(steps(1)), report_of(steps(2, forward=3.0))
    spread = compare(before, after)
    assert spread.sources == ("spread", "spread")
    with_interval = msgspec.structs.replace(
        before,
        steps=msgspec.structs.replace(
            before.steps, period_mean_interval_ms=(8.0, 40.0), period_median_interval_ms=(8.0, 40.0)
        ),
    )
    wide = compare(with_interval, after)
    assert wide.sources == ("interval", "spread")
    assert spread.training.outcome == "regressed"
    assert wide.training.outcome in ("within noise", "not comparable")
    assert row(spread, "phase.forward").outcome == "not comparable"
    assert "name the folders" in row(spread, "phase.forward").why
    assert ": forward" in spread.cause  # named by the medians all the same


def busy(report: Report, *, waited: float, others: float) -> Report:
    level = Level(mean=waited, max=waited)
    return msgspec.structs.replace(
        report,
        host=HostUse(
            process=ProcessUse(run_delay_ratio=level),
            machine=MachineUse(cpu_others_cpus=Level(mean=others, max=others)),
        ),
    )


@pytest.mark.parametrize(
    ("earlier", "later", "outcome"), [(1.5, 1.5, "within noise"), (0.0, 0.0, "regressed"), (0.4, 0.0, "regressed")]
)
def test_waiting_for_cpus_that_others_took_is_noise_and_waiting_for_our_own_is_not(
    earlier: float, later: float, outcome: str
) -> None:
    before, after = steps(1), steps(2, forward=2.0)
    result = compare(
        busy(report_of(before), waited=0.1, others=earlier),
        busy(report_of(after), waited=0.2, others=later),
        times=(before, after),
    )
    assert result.training.outcome == result.wall.outcome == outcome
    assert row(result, "phase.forward").outcome == outcome
    assert ("other programs used the CPUs" in result.training.why) == (earlier > 0)


def test_waiting_that_fell_does_not_explain_a_slower_run() -> None:
    before, after = steps(1), steps(2, forward=2.0)
    result = compare(
        busy(report_of(before), waited=0.2, others=1.5),
        busy(report_of(after), waited=0.1, others=1.5),
        times=(before, after),
    )
    assert result.training.outcome == result.wall.outcome == "regressed"


def test_other_programs_in_one_of_the_runs_are_told() -> None:
    before, after = steps(1), steps(2)
    result = compare(busy(report_of(before), waited=0.0, others=0.1), busy(report_of(after), waited=0.0, others=1.4))
    assert any("other programs used 0.1 CPUs during the earlier run and 1.4" in note for note in result.notes)


def explaining(rule: str, claim: Claim, saved_ms: float) -> Finding:
    base = finding(rule, 1.5)
    gain = msgspec.structs.replace(base.gain, saved_ms_per_step=saved_ms)
    return msgspec.structs.replace(base, gain=gain, explains=claim)


def test_a_gone_finding_has_what_its_phase_lost_beside_its_bound() -> None:
    before, after = steps(1), steps(2, data_wait=-5.0)
    findings = (
        explaining("input-bound", claims.WAIT_FOR_BATCHES, 6.0),
        explaining("step-outliers", claims.OUTLIERS, 1.0),
    )
    result = compare(report_of(before, findings=findings), report_of(after), times=(before, after))
    loading, outliers = result.findings
    assert loading.saved_ms_per_step == 6.0
    assert loading.achieved_ms_per_step == pytest.approx(5.0, abs=0.3)
    assert (loading.achieved_in, loading.above_bound) == ("data_wait", False)
    assert (outliers.achieved_ms_per_step, outliers.achieved_in) == (None, "")


def test_what_lies_beside_the_steps_is_spread_over_them() -> None:
    before = msgspec.structs.replace(
        report_of(steps(1), findings=(explaining("validation-stall", claims.VALIDATION, 5.0),)),
    )
    before = msgspec.structs.replace(before, wall=msgspec.structs.replace(before.wall, parts={"validation": 4.0}))
    after = msgspec.structs.replace(before, findings=())
    after = msgspec.structs.replace(after, wall=msgspec.structs.replace(before.wall, parts={"validation": 1.0}))
    (gone,) = compare(before, after).findings
    assert gone.achieved_ms_per_step == pytest.approx(3.0 * 1e3 / STEPS)
    assert gone.achieved_in == "validation"


def test_more_than_the_bound_is_flagged_for_the_finding_and_for_all_together() -> None:
    before, after = steps(1), steps(2, data_wait=-6.0)
    combined = CombinedGain(
        period_ms=20.0,
        saved_ms_per_step=2.0,
        step_speedup_max=1.11,
        run_ms_per_step=21.0,
        saved_run_ms_per_step=2.0,
        run_speedup_max=1.10,
    )
    promised = report_of(before, findings=(explaining("input-bound", claims.WAIT_FOR_BATCHES, 2.0),), combined=combined)
    result = compare(promised, report_of(after), times=(before, after))
    assert result.findings[0].above_bound
    assert result.above_bound
    assert (result.predicted_step_speedup_max, result.predicted_run_speedup_max) == (1.11, 1.10)
    assert any("more was gained than all findings" in note for note in result.notes)
    held = compare(promised, report_of(steps(2, data_wait=-1.0)), times=(before, steps(2, data_wait=-1.0)))
    assert not held.above_bound
    assert not held.findings[0].above_bound


@pytest.mark.parametrize("batch", [64, 128])
@pytest.mark.parametrize("claim", [claims.WAIT_FOR_BATCHES, claims.VALIDATION], ids=str)
def test_no_bound_is_called_passed_between_runs_that_are_not_comparable(claim: Claim, batch: int) -> None:
    times = steps(1), steps(2, data_wait=-6.0)
    before, after = report_of(times[0], findings=(explaining("input-bound", claim, 2.0),)), report_of(times[1])
    for report, size, lost_s in ((before, 64, 4.0), (after, batch, 1.0)):
        report.run["loader.batch_size"] = size
        report.wall.parts["validation"] = lost_s
    (gone,) = compare(before, after, times=times).findings
    assert gone.achieved_ms_per_step > 2.0 * 1.1
    assert gone.above_bound is (batch == 64)


@pytest.mark.parametrize(
    ("after_bytes", "outcome"), [(1.02e9, "within noise"), (1.3e9, "regressed"), (0.7e9, "improved")]
)
def test_a_higher_peak_of_memory_is_a_regression(after_bytes: float, outcome: str) -> None:
    before, after = report_of(steps(1)), report_of(steps(2))
    result = compare(
        msgspec.structs.replace(before, memory=Memory(process_rss_peak_bytes=1e9)),
        msgspec.structs.replace(after, memory=Memory(process_rss_peak_bytes=after_bytes)),
    )
    assert row(result, "memory.process_rss").outcome == outcome


def test_nothing_is_judged_between_runs_that_are_not_comparable() -> None:
    before, after = steps(1), steps(2, forward=3.0)
    other = report_of(after)
    other.run["device.name"] = "another"
    own = report_of(before)
    own.run["device.name"] = "one"
    result = compare(own, other, times=(before, after))
    assert {one.outcome for one in result.judged} == {"not comparable"}
    assert {"throughput", "wall", "step_time", "phase.forward"} <= {one.measure for one in result.judged}
    assert all("the hardware differs" in one.why for one in result.judged)
    assert "--allow hardware" in result.way_out
    assert result.windows is None


def test_steps_of_other_batches_are_not_held_against_each_other() -> None:
    before, after = steps(1), steps(2)
    other = report_of(after)
    other.run["loader.batch_size"] = 128
    result = compare(report_of(before), other, times=(before, after), allow=("batch",))
    assert result.training.outcome == "within noise"
    assert row(result, "step_time").outcome == "not comparable"
    assert "batch sizes differ" in row(result, "phase.forward").why


REPORTS = (sample_report.full_report, sample_report.minimal_report, sample_report.hostile_report)


@pytest.mark.parametrize("make_before", REPORTS)
@pytest.mark.parametrize("make_after", REPORTS)
def test_any_two_reports_give_a_comparison_that_survives_json(
    make_before: Callable[[], Report], make_after: Callable[[], Report]
) -> None:
    for allow in ((), FIXED_GROUPS):
        result = compare(make_before(), make_after(), allow=allow)
        content = msgspec.json.encode(result)
        assert msgspec.json.decode(content, type=Comparison) == result
        for one in (*result.judged, *result.devices, *result.host, *result.parts):
            numbers = (one.before, one.after, one.difference, one.lower, one.upper)
            assert all(number is None or np.isfinite(number) for number in numbers)
        assert all(one.why for one in result.judged if one.outcome == "not comparable")


def ranged(report: Report, **phases_ms: tuple[float, float, float]) -> Report:
    """The report with 5th percentile, median and 95th of some phases."""
    rows = tuple(
        msgspec.structs.replace(row, p05_ms=measured[0], median_ms=measured[1], p95_ms=measured[2])
        if (measured := phases_ms.get(row.phase))
        else row
        for row in report.phases
    )
    return msgspec.structs.replace(report, phases=rows)


@pytest.mark.parametrize(
    ("after_ms", "outcome"),
    [((126.0, 140.0, 155.0), "regressed"), ((6.6, 7.7, 8.9), "not comparable"), ((6.9, 7.0, 7.1), "within noise")],
)
def test_a_phase_of_reports_alone_is_judged_where_its_spread_leaves_no_doubt(
    after_ms: tuple[float, float, float], outcome: str
) -> None:
    before = ranged(report_of(steps(1)), forward=(6.9, 7.0, 7.1))
    found = row(compare(before, ranged(report_of(steps(2)), forward=after_ms)), "phase.forward")
    assert found.outcome == outcome
    assert outcome == "within noise" or "name the folders" in found.why


def test_an_enormous_change_of_a_phase_that_drifts_is_marked() -> None:
    ramp = np.linspace(0.5, 1.5, STEPS)
    before, after = (
        StepTimes(period_ms=9.0 + scale * ramp, phases_ms={"data_wait": np.full(STEPS, 9.0), "forward": scale * ramp})
        for scale in (7.0, 140.0)
    )
    result = compared(before, after)
    assert result.outcome == row(result, "phase.forward").outcome == "regressed"
    assert "every tenth of the earlier run" in row(result, "phase.forward").why
