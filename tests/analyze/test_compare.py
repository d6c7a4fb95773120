"""What a comparison says about pairs of runs whose difference is known."""

import math

import msgspec
import pytest
from built_reports import finding, run
from msgspec.structs import replace

from lightning_gpuprof.analyze.compare import compare
from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.finding import NotEvaluated
from lightning_gpuprof.model.loading import STREAM_SAMPLER
from lightning_gpuprof.rules import claims
from lightning_gpuprof.sinks.comparison_answer import answer


def test_a_much_shorter_period_is_an_improvement_on_both_axes() -> None:
    result = compare(run(20.0), run(12.0))
    assert result.outcome == result.training.outcome == result.wall.outcome == "improved"
    assert result.training.speedup == pytest.approx(20 / 12)
    assert result.training.measure == "samples/s"


def test_swapping_the_runs_turns_the_outcome_around() -> None:
    forth, back = compare(run(20.0), run(12.0)), compare(run(12.0), run(20.0))
    assert (forth.outcome, back.outcome) == ("improved", "regressed")
    assert back.training.speedup == pytest.approx(1 / forth.training.speedup)


def test_a_run_held_against_itself_is_within_noise_and_changes_nothing() -> None:
    report = run(findings=(finding("input-bound", 1.6),))
    result = compare(report, report)
    assert result.outcome == "within noise"
    assert all(change.difference in (0, None) for change in (*result.changes, *result.phases, *result.parts))
    assert [f.state for f in result.findings] == ["kept"]
    assert result.conditions == ()


@pytest.mark.parametrize("change", [0.98, 1.02])
def test_differences_below_three_percent_are_noise_however_narrow_the_interval(change: float) -> None:
    result = compare(run(20.0, std_ratio=0.001), run(20.0 * change, std_ratio=0.001))
    assert result.training.outcome == "within noise"
    assert result.training.noise_ratio == pytest.approx(0.03)


def test_wide_scatter_over_few_steps_widens_the_noise_band() -> None:
    narrow = compare(run(20.0, std_ratio=0.05), run(17.5, std_ratio=0.05))
    wide = compare(run(20.0, std_ratio=0.6, steady=20), run(17.5, std_ratio=0.6, steady=20))
    assert narrow.training.outcome == "improved"
    assert wide.training.outcome == "within noise"
    assert wide.training.lower < 1 < wide.training.upper


@pytest.mark.parametrize("steady", [0, 9])
def test_too_few_steady_steps_cannot_be_compared(steady: int) -> None:
    result = compare(run(), run(steady=steady))
    assert result.outcome == result.training.outcome == "not comparable"
    assert f"{steady} steady" in result.training.why
    assert result.training.speedup is None


def test_different_batch_sizes_are_compared_by_samples_per_second() -> None:
    result = compare(run(20.0), run(30.0, conditions={"loader.batch_size": 128}, count=210), allow=("batch",))
    assert result.training.outcome == "improved"
    assert result.training.speedup == pytest.approx(128 / 30 / (64 / 20))
    assert any("batch size changed from 64 to 128" in note for note in result.notes)


def test_different_batch_sizes_without_samples_per_second_cannot_be_compared() -> None:
    result = compare(
        run(samples_known=False), run(samples_known=False, conditions={"loader.batch_size": 128}), allow=("batch",)
    )
    assert result.outcome == "not comparable"
    assert "batch sizes differ (64 and 128)" in result.training.why


def test_without_samples_per_second_equal_batches_are_compared_by_period() -> None:
    result = compare(run(20.0, samples_known=False), run(10.0, samples_known=False))
    assert result.training.measure == "median step time"
    assert result.training.speedup == pytest.approx(2.0)


def test_an_invalid_measurement_is_not_compared_and_says_why() -> None:
    result = compare(run(valid=False), run(10.0))
    assert result.outcome == "not comparable"
    assert "earlier run is not valid: a foreign process used the GPU" in result.training.why


def test_wall_time_regression_alone_is_a_regression() -> None:
    result = compare(run(20.0, wall_s=20.0), run(20.0, wall_s=30.0))
    assert result.training.outcome == "within noise"
    assert result.wall.outcome == result.outcome == "regressed"
    assert result.wall.speedup == pytest.approx(20 / 30)


def test_wall_time_improvement_alone_is_an_improvement() -> None:
    result = compare(run(20.0, wall_s=30.0), run(20.0, wall_s=20.0))
    assert (result.training.outcome, result.wall.outcome, result.outcome) == ("within noise", "improved", "improved")


@pytest.mark.parametrize(
    ("claim", "ended_s", "outcome"),
    [
        (claims.VALIDATION, 18.0, "improved"),
        (claims.CHECKPOINT, 18.0, "improved"),
        (claims.SANITY_CHECK, 18.0, "regressed"),
        (claims.VALIDATION, 2.0, "regressed"),
    ],
)
def test_a_fix_between_the_steps_outweighs_slightly_slower_steps(claim: Claim, ended_s: float, outcome: str) -> None:
    """What comes once does not, nor what is little of what the run got shorter by."""
    found = msgspec.structs.replace(finding("stall", 3.0), explains=claim)
    before, after = run(20.0, wall_s=30.0, findings=(found,)), run(21.5, wall_s=10.0)
    assert claim.part is not None
    wall = msgspec.structs.replace(before.wall, parts={**before.wall.parts, claim.part: ended_s})
    before = msgspec.structs.replace(before, wall=wall)
    result = compare(before, after)
    assert (result.training.outcome, result.wall.outcome, result.outcome) == ("regressed", "improved", outcome)
    assert compare(before, after, metrics=("wall", "throughput")) == result, "the default by its name"
    verdict = answer(result).verdict
    assert "slower" in verdict
    assert verdict.startswith("Whole fit 30.0 s -> 10.0 s: 3x faster") is (outcome == "improved")


def test_wall_times_of_different_work_are_not_held_against_each_other() -> None:
    result = compare(run(count=420), run(count=840))
    assert result.wall.outcome == "not comparable"
    assert "420 and 840 steps" in result.wall.why
    assert result.training.outcome == "within noise"


@pytest.mark.parametrize(
    ("steps", "workers", "sampler", "repeats"),
    [
        ((420, 840), (0, 2), STREAM_SAMPLER, True),
        ((840, 420), (4, 2), STREAM_SAMPLER, True),
        ((420, 424), (0, 2), STREAM_SAMPLER, False),
        ((420, 840), (0, 2), "RandomSampler", False),
        ((420, 840), (2, 2), STREAM_SAMPLER, False),
        ((420, 840), (0, 4), STREAM_SAMPLER, False),
    ],
)
def test_a_run_whose_workers_each_read_the_whole_dataset_is_no_improvement(
    steps: tuple[int, int], workers: tuple[int, int], sampler: str, repeats: bool
) -> None:
    """Twice the samples a second by training on each of them twice."""
    before, after = (
        run(20.0, count=count, conditions={"loader.num_workers": number, "loader.sampler": sampler})
        for count, number in zip(steps, workers, strict=True)
    )
    longer = replace(after, run={**after.run, "trainer.max_steps": 840})
    assert "as often" not in compare(before, longer).training.why
    result = compare(before, after)
    assert ("2 times as often" in result.training.why) is repeats
    assert ("shard the dataset" in result.way_out) is repeats
    assert (result.outcome == "not comparable") is repeats


def test_wall_time_of_an_interrupted_run_is_not_compared() -> None:
    result = compare(run(), run(conditions={"status": "interrupted: KeyboardInterrupt"}))
    assert result.wall.outcome == "not comparable"
    assert "KeyboardInterrupt" in result.wall.why


def test_a_fraction_of_a_second_is_noise_in_a_run_of_a_second() -> None:
    result = compare(run(wall_s=1.0, count=10), run(wall_s=1.15, count=10))
    assert result.wall.outcome == "within noise"


def test_what_the_profiler_itself_takes_at_start_and_end_is_no_regression() -> None:
    before, after = run(wall_s=1.0, count=10, own_s=0.1), run(wall_s=1.6, count=10, own_s=0.7)
    result = compare(before, after)
    assert result.wall.outcome == "within noise"
    assert result.wall.speedup == pytest.approx(1.0)
    assert "without the profiler's own 0.1 s and 0.7 s" in result.wall.why
    wall = next(change for change in result.changes if change.name == "wall time")
    assert (wall.before, wall.after) == (1.0, 1.6)


def test_the_profilers_own_time_is_left_out_on_both_sides_or_on_none() -> None:
    result = compare(run(wall_s=1.0, count=10), run(wall_s=1.6, count=10, own_s=0.7))
    assert result.wall.speedup == pytest.approx(1 / 1.6)
    assert "profiler" not in result.wall.why


def test_findings_are_gone_new_or_kept() -> None:
    result = compare(
        run(findings=(finding("input-bound", 1.7), finding("callback-slow", 1.1, "A"))),
        run(findings=(finding("callback-slow", 1.2, "A"), finding("callback-slow", 1.3, "B"))),
    )
    assert {(f.rule, f.subject): f.state for f in result.findings} == {
        ("input-bound", ""): "gone",
        ("callback-slow", "A"): "kept",
        ("callback-slow", "B"): "new",
    }


def test_a_finding_is_not_gone_if_its_rule_could_not_judge() -> None:
    silent = (NotEvaluated(rule="input-bound", why="no steady steps"),)
    vanished = compare(run(findings=(finding("input-bound", 1.7),)), run(not_evaluated=silent))
    appeared = compare(run(not_evaluated=silent), run(findings=(finding("input-bound", 1.7),)))
    assert [f.state for f in vanished.findings] == ["not judged"]
    assert [f.state for f in appeared.findings] == ["not judged"]


def test_prediction_is_the_largest_bound_and_stands_beside_each_finding() -> None:
    before = run(20.0, findings=(finding("input-bound", 1.7), finding("callback-slow", 1.1), finding("step-outliers")))
    result = compare(before, run(13.0))
    assert result.predicted_speedup_max == 1.7
    assert {f.rule: f.speedup_max for f in result.findings} == {
        "input-bound": 1.7,
        "callback-slow": 1.1,
        "step-outliers": None,
    }
    assert result.training.speedup < result.predicted_speedup_max


def test_gaining_more_than_was_predicted_is_noted() -> None:
    result = compare(run(20.0, findings=(finding("input-bound", 1.2),)), run(10.0))
    assert any("more was gained than the 1.2x" in note for note in result.notes)


def test_no_prediction_is_none() -> None:
    assert compare(run(), run()).predicted_speedup_max is None


def test_differences_are_after_minus_before_and_missing_is_not_zero() -> None:
    result = compare(run(20.0, wait_ms=8.0), run(13.0, wait_ms=1.0, samples_known=False))
    phases = {change.name: change for change in result.phases}
    assert phases["data_wait"].difference == pytest.approx(-7.0)
    rate = next(change for change in result.changes if change.name == "samples/s")
    assert rate.after is None
    assert rate.difference is None


def test_changed_conditions_are_listed_without_those_that_name_the_run() -> None:
    result = compare(
        run(conditions={"loader.num_workers": 0, "run_id": "a"}),
        run(conditions={"loader.num_workers": 2, "run_id": "b"}),
    )
    assert [(c.name, c.before, c.after) for c in result.conditions] == [("loader.num_workers", 0, 2)]


def test_a_comparison_survives_json() -> None:
    result = compare(run(findings=(finding("input-bound", 1.7),)), run(12.0))
    assert msgspec.json.decode(msgspec.json.encode(result), type=type(result)) == result


def test_no_number_of_a_comparison_is_infinite_or_nan() -> None:
    result = compare(run(20.0, std_ratio=0.0), run(12.0, std_ratio=0.0, steady=10))
    for judgement in (result.training, result.wall):
        for value in (judgement.speedup, judgement.lower, judgement.upper, judgement.noise_ratio):
            assert math.isfinite(value)
