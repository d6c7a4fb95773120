from typing import Any

import msgspec
import pytest
from metrics_builder import build, distribution, outliers, replace, scaled

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.analyze.training_cost import training_cost
from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.model.config import check_price, parse_target
from lightning_gpuprof.model.device import DeviceEnergy
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.method import Outlook
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.report import Device, Validity
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.targets import outlook


def slow_callback(target: Value, **conditions: Value) -> Metrics:
    """39 ms of a step of 90 ms are one callback; 32 samples a step."""
    return build(
        times_ms={"callbacks": 40.4},
        callbacks_ms={("Slow", "on_train_batch_end"): 39.0},
        validation=(0, 0.0),
        checkpoint=(0, 0.0),
        run={"gpuprof.target": target, **conditions},
    )


def seen(metrics: Metrics) -> Outlook:
    found = outlook(metrics, diagnose(metrics))
    assert found is not None
    return found


def test_without_a_target_there_is_no_outlook() -> None:
    assert outlook(build(), diagnose(build())) is None


def test_a_factor_within_the_findings_is_within_reach() -> None:
    found = seen(slow_callback("1.3x"))
    assert (found.reachable, found.certain, found.reached) == (True, True, False)
    assert found.rules == ("callback-slow",)
    assert found.needed_ms_per_step == pytest.approx(slow_callback("1.3x").run_ms_per_step * (1 - 1 / 1.3))
    assert "within reach by callback-slow" in found.summary


def test_a_factor_beyond_the_findings_is_out_of_reach() -> None:
    found = seen(slow_callback("4x"))
    assert found.reachable is False
    assert found.rules == ("callback-slow",)
    assert "out of reach" in found.summary
    nothing = seen(build(run={"gpuprof.target": "1.5x"}))
    assert nothing.reachable is False
    assert "no finding has a gain" in nothing.summary


def test_samples_per_second_are_those_of_steady_steps() -> None:
    now = slow_callback(None).steps.samples_per_s
    assert now is not None
    assert seen(slow_callback(str(1.4 * now))).reachable is True
    assert seen(slow_callback(3.0 * now)).reachable is False
    reached = seen(slow_callback(0.9 * now))
    assert (reached.reached, reached.reachable) == (True, True)


def test_what_lies_beside_the_steps_makes_no_step_faster() -> None:
    metrics = build(validation=(4, 30.0), run={"gpuprof.target": "1.3x"})
    assert seen(metrics).reachable is True
    now = metrics.steps.samples_per_s or 0.0
    assert seen(replace(metrics, run={**metrics.run, "gpuprof.target": 1.3 * now})).reachable is False


def test_outlying_steps_are_part_of_the_mean_step() -> None:
    stalls = outliers(count=12, stall_ms=900, phases="backward", steps=380, period_ms=50.0)
    metrics = build(stalls=stalls, validation=(0, 0.0), checkpoint=(0, 0.0))
    mean_ms = stalls.total_ms / stalls.checked
    period = msgspec.structs.replace(distribution(50.0), mean=mean_ms)
    steps = msgspec.structs.replace(metrics.steps, period_ms=period, samples_per_s=32e3 / mean_ms)
    for factor, reachable in ((1.3, True), (2.0, False)):
        target = {"gpuprof.target": factor * 32e3 / mean_ms}
        found = seen(replace(metrics, steps=steps, run={**metrics.run, **target}))
        assert found.reachable is reachable, found.summary
        assert found.rules == ("step-outliers",)


def test_a_measurement_that_is_not_valid_promises_nothing() -> None:
    metrics = slow_callback("1.3x")
    assert seen(metrics).reachable
    assert diagnose(metrics).combined is not None
    invalid = replace(metrics, validity=Validity(ok=False))
    assert seen(invalid).reachable is None
    assert "the measurement is not valid" in seen(invalid).summary
    assert diagnose(invalid).combined is None


def test_a_target_that_cannot_be_held_against_anything_says_why() -> None:
    unknown = slow_callback(500.0)
    unknown = replace(unknown, steps=msgspec.structs.replace(unknown.steps, samples_per_s=None))
    assert seen(unknown).reachable is None
    assert "batch size is not known" in seen(unknown).summary
    empty = build(steps=0, epochs=1, run={"gpuprof.target": "2x"})
    assert seen(empty).reachable is None
    assert "10 are needed" in seen(empty).summary


@pytest.mark.parametrize("factor", [0.5, 20.0])
def test_a_factor_is_as_far_in_a_run_in_which_all_takes_longer(factor: float) -> None:
    for target in ("1.3x", "4x"):
        metrics = slow_callback(target)
        assert seen(scaled(metrics, factor)).reachable == seen(metrics).reachable


@pytest.mark.parametrize("given", ["1.3x", " 2X ", "500", 500, 12.5, "500 samples/s"])
def test_targets_are_read(given: object) -> None:
    assert parse_target(given) is not None


@pytest.mark.parametrize("given", ["fast", "1x", "0.5x", 0, -1.0, "nan", "infx", True, ""])
def test_wrong_targets_are_named_with_the_way_out(given: object) -> None:
    with pytest.raises(ArgumentError, match=r"target must be a factor above 1.*Write target="):
        parse_target(given)


@pytest.mark.parametrize("price", [0, -1.0, "2", float("nan"), True])
def test_wrong_prices_are_named(price: object) -> None:
    with pytest.raises(ArgumentError, match="price_per_gpu_hour must be a number above 0"):
        check_price(price)


@pytest.mark.parametrize("given", [{"goal": "speed"}, {"samples": 0}, {"samples": "64"}, {"samples": True}])
def test_wrong_goals_and_samples_are_named(given: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=f"{next(iter(given))} must be"):
        GpuProfiler(**given)


def test_cost_of_two_gpus() -> None:
    metrics = build(
        run={"device.type": "cuda", "trainer.world_size": 2, "gpuprof.price_per_gpu_hour": 2.5},
        blocked_known=False,
    )
    energy = DeviceEnergy(total_j=4e4, per_step_j=32.0, mean_w=640.0, covered_ratio=0.98)
    metrics = replace(metrics, devices=(Device(name="H200", uuid="", samples=40, values={}, energy=energy),))
    found = training_cost(metrics)
    assert found.gpu_hours == pytest.approx(metrics.wall.total_s / 3600 * 2)
    per_million = metrics.run_ms_per_step / 3.6e6 / 32 * 1e6 * 2
    assert found.gpu_hours_per_million_samples == pytest.approx(per_million)
    assert found.price_per_million_samples == pytest.approx(2.5 * per_million)
    epoch = replace(metrics, run={**metrics.run, "trainer.num_training_batches": 50})
    assert training_cost(epoch).gpu_hours_per_epoch == pytest.approx(metrics.run_ms_per_step / 3.6e6 * 50 * 2)
    assert found.gpu_hours_per_epoch is None
    assert found.joules_per_sample == pytest.approx(32.0 / 16)  # 16 of the 32 samples are this rank's


def test_what_is_not_known_costs_nothing_that_is_told() -> None:
    assert training_cost(build()) is None
    found = training_cost(build(steps=0, epochs=1, run={"device.type": "cuda"}, blocked_known=False))
    assert found.gpu_hours_per_million_samples is None
    assert found.price_per_million_samples is None
    assert found.joules_per_sample is None
