from __future__ import annotations

import math
from dataclasses import replace

import pytest
from metrics_builder import build, outliers

from lightning_gpuprof.model.metrics import LoaderFacts, Share
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.input_bound import InputBound
from lightning_gpuprof.rules.loading import SINGLE_GUARD_MS

RULE = InputBound()
OTHER = LoaderFacts(
    kind="Stream", num_workers=None, batch_size=None, pin_memory=None, persistent_workers=None, prefetch_factor=None
)


def test_it_fires_on_steps_that_wait_for_their_batch() -> None:
    metrics = build(times_ms={"data_wait": 50.0}, num_workers=0)
    finding = RULE.check(metrics)
    assert finding is not None
    assert finding.severity == "critical"
    assert finding.explains == "data_wait"
    assert finding.subject == "Digits"
    assert finding.evidence[0].value == pytest.approx(50 / metrics.period_ms)
    assert "50.0 ms of 99.2 ms" in finding.summary


def test_it_is_quiet_on_a_healthy_run() -> None:
    assert RULE.check(build()) is None


def test_it_is_quiet_on_rare_long_fetches() -> None:
    stalls = outliers(count=10, stall_ms=900, phases="data_wait", steps=380, period_ms=50)
    assert RULE.check(build(stalls=stalls)) is None


def test_it_is_quiet_where_a_callback_holds_the_step() -> None:
    assert RULE.check(build(times_ms={"callbacks": 60.0})) is None


def test_too_few_steady_steps_are_not_judged() -> None:
    with pytest.raises(MissingSignal, match="9 steady steps were measured, 10 are needed"):
        RULE.check(build(times_ms={"data_wait": 50.0}, steady=9))


def test_without_the_share_it_does_not_judge() -> None:
    with pytest.raises(MissingSignal, match="data_wait"):
        RULE.check(replace(build(), shares={}))


def test_a_share_that_is_no_number_is_not_judged() -> None:
    broken = Share(median_ratio=math.nan, lower_ratio=math.nan, median_ms=math.nan, total_ratio=math.nan)
    with pytest.raises(MissingSignal, match="data_wait"):
        RULE.check(replace(build(), shares={"data_wait": broken}))


@pytest.mark.parametrize(("above_price_ratio", "fires"), [(0.0499, False), (0.0501, True)])
def test_the_lower_bound_above_the_price_of_a_fetch_decides(above_price_ratio: float, fires: bool) -> None:
    metrics = build(times_ms={"data_wait": 10.0}, num_workers=0)
    assert metrics.period_ms is not None
    share = replace(metrics.shares["data_wait"], lower_ratio=above_price_ratio + SINGLE_GUARD_MS / metrics.period_ms)
    metrics = replace(metrics, shares={**metrics.shares, "data_wait": share})
    assert (RULE.check(metrics) is not None) is fires


@pytest.mark.parametrize(("wait_ms", "fires"), [(0.88, False), (0.92, True)])
def test_a_wait_that_may_be_the_price_of_any_fetch_must_be_a_tenth(wait_ms: float, fires: bool) -> None:
    rest: dict[Phase, float] = {"forward": 3.0, "backward": 2.0, "optimizer": 1.0, "zero_grad": 0.0, "h2d": 0.0}
    rest |= {"callbacks": 0.0, "logging": 0.0, "loop": 2.0}  # 8 ms
    finding = RULE.check(build(times_ms={**rest, "data_wait": wait_ms}, num_workers=0, lower=1.0))
    assert (finding is not None) is fires
    if finding is not None:
        assert finding.severity == "info"
        assert "BatchSampler" in finding.advice


@pytest.mark.parametrize(("steady", "severity"), [(10, "warning"), (19, "warning"), (20, "critical")])
def test_few_steps_are_no_ground_for_critical(steady: int, severity: str) -> None:
    finding = RULE.check(build(times_ms={"data_wait": 50.0}, num_workers=0, steady=steady))
    assert finding is not None
    assert finding.severity == severity


def test_what_a_fetch_from_a_worker_costs_by_itself_is_information_only() -> None:
    finding = RULE.check(build(times_ms={"data_wait": 2.5, "forward": 4.0, "backward": 5.0}, num_workers=2))
    assert finding is not None
    assert finding.severity == "info"
    assert finding.confidence == 0.5
    assert "fewer and larger tensors" in finding.advice


def test_indexing_tensors_in_memory_is_no_warning() -> None:
    metrics = build(times_ms={"data_wait": 0.9, "forward": 0.8, "backward": 0.8, "optimizer": 0.3}, num_workers=0)
    finding = RULE.check(metrics)
    assert finding is None or finding.severity == "info"


def test_a_loader_that_is_unknown_is_judged_by_its_wait_alone() -> None:
    finding = RULE.check(build(times_ms={"data_wait": 50.0}, loader=OTHER))
    assert finding is not None
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(50.0)
    assert "num_workers" not in finding.advice


def test_more_workers_are_not_proposed_where_all_cpus_are_at_work() -> None:
    metrics = build(times_ms={"data_wait": 50.0}, num_workers=2, usable_cpus=2, process_cpus=0.5, worker_cpus=1.5)
    finding = RULE.check(metrics)
    assert finding is not None
    assert "More workers than 2 do not help by themselves (2 CPUs are usable, 0.0 free)" in finding.advice
    assert "num_workers=" not in finding.advice
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(50.0)


def test_a_wait_while_the_device_works_is_free() -> None:
    metrics = build(times_ms={"data_wait": 50.0}, run={"device.type": "cuda"}, idle_ratio=0.01)
    assert RULE.check(metrics) is None


def test_the_gain_is_held_below_the_devices_idle_time() -> None:
    metrics = build(times_ms={"data_wait": 50.0}, run={"device.type": "cuda"}, idle_ratio=0.2, num_workers=0)
    finding = RULE.check(metrics)
    assert finding is not None
    assert finding.gain is not None
    assert metrics.period_ms is not None
    assert finding.gain.saved_ms_per_step <= 0.2 * metrics.period_ms + 1e-9


def test_a_device_that_no_window_has_seen_lowers_the_confidence() -> None:
    seen = RULE.check(build(times_ms={"data_wait": 50.0}, run={"device.type": "cuda"}, idle_ratio=0.6))
    unseen = RULE.check(build(times_ms={"data_wait": 50.0}, run={"device.type": "cuda"}))
    assert seen is not None
    assert unseen is not None
    assert unseen.confidence < seen.confidence
