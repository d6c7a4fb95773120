import math

import pytest
from findings_builder import fired
from late_steps import training
from metrics_builder import build, outliers, replace
from trace_metrics import metrics_of, recorded_steps
from truths.gpu_trace import GpuTrace

from lightning_gpuprof.model.loading import SINGLE_GUARD_MS
from lightning_gpuprof.model.metrics import LoaderFacts, Metrics
from lightning_gpuprof.model.share import Share
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.input.input_bound import InputBound

RULE = InputBound()
OTHER = LoaderFacts(
    kind="Stream", num_workers=None, batch_size=None, pin_memory=None, persistent_workers=None, prefetch_factor=None
)


def test_it_is_quiet_on_rare_long_fetches() -> None:
    stalls = outliers(count=10, stall_ms=900, phases="data_wait", steps=380, period_ms=50)
    assert RULE.check(build(stalls=stalls)) is None


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
    assert share.lower_ratio > RULE.least_uncertain_ratio
    assert RULE.check(metrics) is None


def test_a_fetch_on_an_idle_device_is_found_in_a_window() -> None:
    metrics = metrics_of(recorded_steps(lambda trace: training(trace, kernels=60, fetch_us=12_000.0)))
    finding = fired(RULE, metrics)
    assert (finding.severity, finding.confidence) == ("critical", 0.95)
    assert finding.gain.saved_ms_per_step <= 12.0


def test_a_window_of_one_step_does_not_tell_what_its_fetch_costs() -> None:
    def one_step(fetch_us: float) -> Metrics:
        def step(trace: GpuTrace) -> None:
            training(trace, kernels=60, kernel_us=8.0, fetch_us=fetch_us)

        return metrics_of(recorded_steps(step, steps=1))

    with pytest.raises(MissingSignal, match="trace several steps"):
        RULE.check(one_step(2500.0))
    finding = fired(RULE, one_step(30_000.0))
    assert (finding.severity, finding.confidence) == ("warning", 0.6)
