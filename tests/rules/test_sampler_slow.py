import math
from typing import Any

import pytest
from feeding_builder import starved
from msgspec.structs import replace

from lightning_gpuprof.analyze.derived import with_derived
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.input.input_bound import InputBound
from lightning_gpuprof.rules.input.sampler_slow import SamplerSlow
from lightning_gpuprof.rules.input.single_process_loading import SingleProcessLoading

RULE = SamplerSlow()


def ordered(items_ms: float, **changes: Any) -> Metrics:
    """Steps of 10 ms of work; without workers they wait for the sampler and for the making of a batch."""
    return starved(**{"order_ms": 9.0, "items_ms": items_ms, "collate_ms": 0.0, "workers": 0, **changes})


def test_what_workers_can_take_over_is_without_the_sampler() -> None:
    rules = [RULE, SingleProcessLoading(), InputBound()]
    found = {f.rule: f for f in diagnose(ordered(9.0), rules).findings}
    gains = {rule: f.gain.saved_ms_per_step for rule, f in found.items() if f.gain is not None}
    assert gains["sampler-slow"] == pytest.approx(9.0)
    assert 5.0 < gains["single-process-loading"] <= 9.0
    assert sum(gains.values()) <= 18.0
    assert {f.rule for f in diagnose(ordered(0.1), rules).findings} == {"sampler-slow"}


def test_workers_that_are_behind_leave_no_more_than_their_pace() -> None:
    found = diagnose(ordered(36.0, workers=2), [RULE]).findings
    assert [f.rule for f in found] == ["sampler-slow"]
    gain = found[0].gain
    assert gain is None or gain.saved_ms_per_step <= 1.5


@pytest.mark.parametrize(("idle", "making_ms"), [(0.2, 0.0), (0.55, 6.4)])
def test_idle_time_of_a_device_is_gained_once(idle: float, making_ms: float) -> None:
    """9 ms each for the indices and the batch, in a step of 28 ms of which the device idles for a part."""
    metrics = ordered(9.0, device_idle=idle, run={"device.type": "cuda"})
    sampler, making = RULE.check(metrics), InputBound().check(metrics)
    assert sampler.gain.saved_ms_per_step == pytest.approx(min(9.0, idle * 28.0))
    assert (making.gain.saved_ms_per_step if making is not None and making.gain else 0.0) == pytest.approx(making_ms)


@pytest.mark.parametrize(("workers", "of_each", "left_ms"), [(0, 10, 9.0), (1, 10, 0.0), (0, 5, 0.0)])
def test_what_another_loader_takes_in_the_main_process_stays(workers: int, of_each: int, left_ms: float) -> None:
    """45 ms of wait, 36 of them for the slowest loader; the other one's 9 ms are there, in its worker, or in the other
    half of the steps."""
    metrics = starved(items_ms=36.0, collate_ms=0.0, workers=0, compute_ms={"data_wait": 45.0})
    slowest = metrics.input.loaders[0]
    other = replace(slowest, loader=1, workers=workers, make_ms=9.0, deliver_ms=9.0)
    measured = starved(samples_ms=(1.0, None), worker_ms=9.0).input.workers[0]
    made = replace(measured, loader=1, process="process", batches=metrics.steps.count * of_each // 10)
    found = replace(metrics.input, loaders=(slowest, other), workers=(made,))
    both = with_derived(replace(metrics, input=found))
    assert both.fetch.making.median_ms == pytest.approx(45.0 - left_ms)
    assert both.loading.waited_ms == pytest.approx(45.0)


@pytest.mark.parametrize("order_ms", [math.nan, -1.0])
def test_an_impossible_time_is_not_evaluated(order_ms: float) -> None:
    metrics = ordered(9.0, order_ms=order_ms, compute_ms={"data_wait": 9.0})
    with pytest.raises(MissingSignal):
        RULE.check(metrics)
