from __future__ import annotations

import math

import msgspec
import pytest
from feeding_builder import starved
from metrics_builder import build, replace

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.input.input_bound import InputBound
from lightning_gpuprof.rules.input.sampler_slow import SamplerSlow
from lightning_gpuprof.rules.input.single_process_loading import SingleProcessLoading

RULE = SamplerSlow()
NAME = "ByLength (data.py:31)"


def ordered(order_ms: float, *, items_ms: float = 1.0, workers: int = 0, device_idle: float | None = None) -> Metrics:
    """Steps of 10 ms of work; without workers they wait for the sampler and for the making of a batch."""
    found = starved(items_ms=items_ms, collate_ms=0.0, workers=workers, device_idle=device_idle)
    assert found.input is not None
    wait_ms = order_ms + items_ms if workers == 0 else order_ms
    found = replace(
        found,
        **{name: value for name, value in vars(build_like(found, wait_ms)).items() if name in ("shares", "steps")},
    )
    loaders = tuple(msgspec.structs.replace(x, order_ms=order_ms, order_of=NAME) for x in found.input.loaders)
    return replace(found, input=msgspec.structs.replace(found.input, loaders=loaders))


def build_like(found: Metrics, wait_ms: float) -> Metrics:
    work = {phase: one.median_ms for phase, one in found.shares.items()}
    return build(times_ms={**work, "data_wait": wait_ms})


def test_the_sampler_is_named_with_its_part_of_the_wait() -> None:
    finding = RULE.check(ordered(9.0))
    assert finding is not None
    assert (finding.severity, finding.subject) == ("critical", NAME)
    assert f"{NAME} takes 9.00 ms of each 20.0 ms step to choose the samples of a batch: 90 %" in finding.summary
    assert "More workers would not help" in finding.advice
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(9.0)


def test_what_workers_can_take_over_is_without_the_sampler() -> None:
    rules = [RULE, SingleProcessLoading(), InputBound()]
    found = {f.rule: f for f in diagnose(ordered(9.0, items_ms=9.0), rules).findings}
    gains = {rule: f.gain.saved_ms_per_step for rule, f in found.items() if f.gain is not None}
    assert gains["sampler-slow"] == pytest.approx(9.0)
    assert 5.0 < gains["single-process-loading"] <= 9.0
    assert sum(gains.values()) <= 18.0
    assert {f.rule for f in diagnose(ordered(9.0, items_ms=0.1), rules).findings} == {"sampler-slow"}


def test_workers_that_are_behind_leave_no_more_than_their_pace() -> None:
    found = diagnose(ordered(9.0, items_ms=36.0, workers=2), [RULE]).findings
    assert [f.rule for f in found] == ["sampler-slow"]
    gain = found[0].gain
    assert gain is None or gain.saved_ms_per_step <= 1.5


def test_it_is_quiet_where_the_sampler_is_quick() -> None:
    assert RULE.check(ordered(0.05, items_ms=9.0)) is None
    assert RULE.check(ordered(0.5, items_ms=9.0)) is None


def test_beside_a_busy_device_it_is_free() -> None:
    metrics = ordered(9.0, device_idle=0.0)
    assert RULE.check(replace(metrics, run={**metrics.run, "device.type": "cuda"})) is None


@pytest.mark.parametrize(("idle", "making_ms"), [(0.2, 0.0), (0.55, 6.4)])
def test_idle_time_of_a_device_is_gained_once(idle: float, making_ms: float) -> None:
    """9 ms each for the indices and the batch, in a step of 28 ms of which the device idles for a part."""
    metrics = ordered(9.0, items_ms=9.0, device_idle=idle)
    metrics = replace(metrics, run={**metrics.run, "device.type": "cuda"})
    sampler, making = RULE.check(metrics), InputBound().check(metrics)
    assert sampler is not None
    assert sampler.gain is not None
    assert sampler.gain.saved_ms_per_step == pytest.approx(min(9.0, idle * 28.0))
    assert (making.gain.saved_ms_per_step if making is not None and making.gain else 0.0) == pytest.approx(making_ms)


@pytest.mark.parametrize("order_ms", [None, math.nan, -1.0])
def test_without_its_time_it_is_not_evaluated(order_ms: float | None) -> None:
    metrics = ordered(9.0)
    assert metrics.input is not None
    loaders = tuple(msgspec.structs.replace(x, order_ms=order_ms) for x in metrics.input.loaders)
    with pytest.raises(MissingSignal):
        RULE.check(replace(metrics, input=msgspec.structs.replace(metrics.input, loaders=loaders)))
    with pytest.raises(MissingSignal):
        RULE.check(replace(metrics, input=None))
