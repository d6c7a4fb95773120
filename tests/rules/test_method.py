import msgspec
import pytest
from device_builder import on_gpu
from metrics_builder import build, replace
from traced_builder import gpu, window

from lightning_gpuprof.model.finding import Verdict
from lightning_gpuprof.model.line_times import FunctionTimes, TimedLine
from lightning_gpuprof.model.method import LEVEL_QUESTIONS, Check, Level, Method
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.report import Validity
from lightning_gpuprof.model.window import OperatorRow
from lightning_gpuprof.pipeline import report_of
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.method import method
from lightning_gpuprof.rules.targets import outlook
from lightning_gpuprof.sinks.first_screen import first_screen


def firm(metrics: Metrics, half_ratio: float = 0.01) -> Metrics:
    """A run whose median period is known so well."""
    median = metrics.period_ms or 0.0
    ends = ((1 - half_ratio) * median, (1 + half_ratio) * median)
    labels = {**metrics.steps.labels, "warm-up": 8}
    return replace(metrics, steps=msgspec.structs.replace(metrics.steps, period_median_interval_ms=ends, labels=labels))


def of(metrics: Metrics) -> Method:
    diagnosis = diagnose(metrics)
    return method(metrics, diagnosis, outlook=outlook(metrics, diagnosis))


def level(found: Method, name: str) -> Level:
    return next(one for one in found.levels if one.name == name)


def box(found: Method, words: str) -> Check:
    return next(check for check in found.checklist if words in check.text)


def traced(metrics: Metrics) -> Metrics:
    seen = msgspec.structs.replace(
        window(causes={"launch": 0.3}),
        file="rank0.1.pt.trace.json.gz",
        events=5000,
        top_kernels=(OperatorRow(name="gemm", count=10, total_us=4e4),),
    )
    return replace(metrics, windows=(seen,))


def test_the_levels_come_in_the_order_of_the_method() -> None:
    assert tuple(one.name for one in of(build()).levels) == tuple(LEVEL_QUESTIONS)


def test_operations_are_worth_a_look_where_clocks_are_held_down() -> None:
    hot = gpu(clock_mhz=1200.0, reasons={"sw_thermal": 0.9})
    found = of(firm(on_gpu(window(), devices=(hot,))))
    assert level(found, "bottleneck").answer.startswith("Hardware-limited")
    assert level(found, "operation").unfolded


def test_a_run_that_lines_slow_is_less_reliable() -> None:
    timed = FunctionTimes(name="step", file="train.py", lines=(TimedLine(line=3, total_s=1.0),))
    assert level(of(build()), "conditions").answer == "The measurement is valid."
    assert level(of(replace(build(), line_times=(timed,))), "conditions").answer == "The measurement is less reliable."


@pytest.mark.parametrize(("half_ratio", "worth"), [(0.09, "valid"), (0.11, "less reliable")])
def test_a_noisy_run_is_as_reliable_as_the_first_screen_says(half_ratio: float, worth: str) -> None:
    noisy = firm(build(), half_ratio)
    assert level(of(noisy), "conditions").answer == f"The measurement is {worth}."
    assert first_screen(report_of(noisy)).reliability.kind == ("ok" if worth == "valid" else "conditional")


def test_a_healthy_run_holds_down_to_the_component() -> None:
    found = of(firm(build()))
    for name in ("conditions", "baseline", "bottleneck", "component"):
        assert level(found, name).holds, level(found, name)
    assert level(found, "operation").why.startswith("there is no trace window")


def test_operations_are_opened_for_work_of_the_model_only() -> None:
    waiting = of(firm(build(times_ms={"data_wait": 60.0}, num_workers=0, worker_cpus=None)))
    folded = level(waiting, "operation")
    assert not folded.unfolded
    assert not folded.lines
    assert "input-bound" in folded.why
    assert "would make the step at most" in folded.why
    outside = of(firm(build(validation=(4, 40.0), checkpoint=(0, 0.0))))
    assert (
        level(outside, "operation").why == "most of the time is outside the steps"
    )  # its steps are not what takes long
    launches = of(firm(traced(on_gpu())))
    opened = level(launches, "operation")
    assert opened.unfolded
    assert opened.holds
    assert "gemm" in opened.answer


def test_nothing_is_opened_on_an_invalid_measurement() -> None:
    found = of(replace(firm(build()), validity=Validity(ok=False, caveats=("a part was not recorded",))))
    assert not level(found, "conditions").holds
    for name in ("component", "operation"):
        assert not level(found, name).unfolded
        assert "a part was not recorded" in level(found, name).why


def test_nothing_is_opened_without_a_verdict() -> None:
    found = of(build(steps=0, epochs=1))
    assert not level(found, "bottleneck").holds
    assert not level(found, "component").unfolded
    assert not level(found, "verification").holds


@pytest.mark.parametrize(("half_ratio", "holds"), [(0.049, True), (0.051, False)])
def test_a_baseline_must_be_known_to_five_percent(half_ratio: float, holds: bool) -> None:
    found = of(firm(build(), half_ratio))
    assert level(found, "baseline").holds is holds
    assert box(found, "a change stands out from noise").state == ("yes" if holds else "no")


def test_the_component_is_where_the_bound_is_and_not_the_longest_phase() -> None:
    slow = build(times_ms={"callbacks": 9.0, "backward": 10.0}, callbacks_ms={("Slow", "on_train_batch_end"): 8.5})
    assert diagnose(slow).verdict.kind == "loop-bound"
    assert level(of(firm(slow)), "component").answer.startswith("Most time around the model: callbacks, ")
    assert level(of(firm(build())), "component").answer.startswith("Most time: backward")


def test_a_bound_without_a_phase_of_its_own_names_the_longest_phase() -> None:
    metrics = firm(build(times_ms={"sync": 0.0}))
    waits = replace(diagnose(metrics), verdict=Verdict(kind="sync-bound", summary="The device waits for its host."))
    assert level(method(metrics, waits), "component").answer.startswith("Most time: backward")


@pytest.mark.parametrize("steps", [400, 30])
@pytest.mark.parametrize("half_ratio", [0.01, 0.3, None])
def test_a_run_can_serve_as_the_baseline_if_that_level_holds(half_ratio: float | None, steps: int) -> None:
    metrics = build(steps=steps) if half_ratio is None else firm(build(steps=steps), half_ratio)
    found = of(metrics)
    baseline, verification = level(found, "baseline"), level(found, "verification")
    assert baseline.holds is (half_ratio == 0.01)
    assert verification.holds is baseline.holds
    said = {
        0.01: "This run can serve as the baseline.",
        0.3: "This run can serve as the baseline of changes above 60 %.",
        None: "Only a longer run can serve as the baseline.",
    }
    assert verification.answer == said[half_ratio]
    assert bool(verification.why) is not baseline.holds


def test_a_run_that_is_held_against_another_need_not_be_a_baseline() -> None:
    found = of(firm(build(run={"gpuprof.baseline": True}), 0.3))
    assert not level(found, "baseline").holds
    assert level(found, "verification").holds
    assert level(found, "verification").answer == "The run is compared with its baseline when it ends."


def test_a_target_is_part_of_the_baseline() -> None:
    found = of(firm(build(run={"gpuprof.target": "1.3x"})))
    assert any("target of 1.3x" in line for line in level(found, "baseline").lines)


def test_actions_hold_the_bound_of_all_together() -> None:
    found = of(
        firm(
            build(
                times_ms={"callbacks": 40.0, "logging": 25.0},
                callbacks_ms={("Slow", "on_train_batch_end"): 39.0},
            )
        )
    )
    assert any(line.startswith("all changes together: the run") for line in level(found, "actions").lines)


def test_every_box_has_its_evidence() -> None:
    for metrics in (build(), firm(build()), firm(traced(on_gpu())), build(steps=0, epochs=1)):
        checklist = of(metrics).checklist
        assert len(checklist) == 21
        assert all(check.evidence for check in checklist)
        assert len({check.text for check in checklist}) == 21


def test_boxes_of_a_gpu_are_not_asked_for_on_a_cpu() -> None:
    found = of(firm(build()))
    assert box(found, "events, not with a host clock").state == "not applicable"
    assert box(found, "utilization").state == "not applicable"
    assert box(found, "warm-up").state == "yes"
    assert box(found, "table and trace").state == "no"
    on_device = of(firm(traced(on_gpu())))
    assert box(on_device, "utilization").state == "no"
    assert box(on_device, "table and trace").state == "yes"


def test_a_planted_cause_ticks_why_and_target() -> None:
    slow = build(times_ms={"callbacks": 40.0}, callbacks_ms={("Slow", "on_train_batch_end"): 39.0})
    found = of(firm(slow))
    assert "Slow" in box(found, "place or pattern").evidence
    assert box(found, "acted on").state == "yes"
    assert box(of(firm(build())), "acted on").state == "no"
