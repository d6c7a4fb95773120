from __future__ import annotations

import math

import pytest
from gpu_trace import GpuTrace, recorded_steps
from late_steps import training
from metrics_builder import build, outliers, replace
from trace_metrics import metrics_of

from lightning_gpuprof.model.loading import SINGLE_GUARD_MS
from lightning_gpuprof.model.metrics import LoaderFacts, Metrics, Share
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.input.input_bound import InputBound

RULE = InputBound()
OTHER = LoaderFacts(
    kind="Stream", num_workers=None, batch_size=None, pin_memory=None, persistent_workers=None, prefetch_factor=None
)


def test_it_fires_on_steps_that_wait_for_their_batch() -> None:
    metrics = build(times_ms={"data_wait": 50.0}, num_workers=0)
    finding = RULE.check(metrics)
    assert finding is not None
    assert finding.severity == "critical"
    assert finding.explains == claims.WAIT_FOR_BATCHES
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


def test_a_device_that_no_window_has_seen_is_no_reason_for_more_than_a_warning() -> None:
    finding = RULE.check(build(times_ms={"data_wait": 50.0}, run={"device.type": "cuda"}))
    assert finding is not None
    assert finding.severity == "warning"


def reads_and_thinks(trace: GpuTrace) -> None:
    """The fetch lies beside 20 ms of queued work; the device is idle later, after a value was read."""
    training(trace, fetch_us=6000.0, python_us=0.0, kernels=200)
    trace.item()
    trace.python(5000.0)
    for _ in range(200):
        trace.kernel(100.0)


def test_idle_time_elsewhere_in_the_step_is_not_the_fetchs() -> None:
    metrics = metrics_of(recorded_steps(reads_and_thinks))
    share = metrics.share("data_wait")
    assert share is not None
    assert share.lower_ratio > RULE.least_uncertain_ratio
    assert RULE.check(metrics) is None


def test_a_fetch_on_an_idle_device_is_found_in_a_window() -> None:
    metrics = metrics_of(recorded_steps(lambda trace: training(trace, kernels=60, fetch_us=12_000.0)))
    finding = RULE.check(metrics)
    assert finding is not None
    assert finding.severity == "critical"
    assert finding.confidence == 0.95
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step <= 12.0


def test_a_window_of_one_step_does_not_tell_what_its_fetch_costs() -> None:
    def one_step(fetch_us: float) -> Metrics:
        def step(trace: GpuTrace) -> None:
            training(trace, kernels=60, kernel_us=8.0, fetch_us=fetch_us)

        return metrics_of(recorded_steps(step, steps=1))

    with pytest.raises(MissingSignal, match="was not seen: trace several steps"):
        RULE.check(one_step(2500.0))
    finding = RULE.check(one_step(30_000.0))
    assert finding is not None
    assert (finding.severity, finding.confidence) == ("warning", 0.6)
