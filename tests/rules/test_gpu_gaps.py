from __future__ import annotations

import pytest
from gpu_trace import GpuTrace, recorded_steps
from late_steps import training
from trace_metrics import metrics_of

from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.launches.gpu_gaps import GpuGaps

RULE = GpuGaps()


def window(other_us: float, *, steps: int = 5, every: int = 1, fetch_us: float = 50.0) -> WindowFacts:
    """Steps of 9 ms on the device; work of the host that does not launch, in every step or every few."""
    count = iter(range(100))

    def step(trace: GpuTrace) -> None:
        now = other_us if next(count) % every == 0 else 0.0
        training(trace, kernels=90, other_us=now, fetch_us=fetch_us)

    return recorded_steps(step, steps=steps)


def test_it_names_the_line_that_holds_the_host() -> None:
    finding = RULE.check(metrics_of(window(16_000.0)))
    assert finding is not None
    assert finding.subject == "loss.py(31): match"
    assert finding.severity == "critical"
    assert finding.explains == claims.HOST_ELSEWHERE
    assert "loss.py(31): match in forward, 5 gaps" in finding.summary
    assert finding.advice.startswith("Look at what the host does at loss.py(31): match")
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(16.0 + 1.4 - 9.0, rel=0.1)  # the queue covers the rest


def test_it_is_quiet_where_the_queue_covers_it() -> None:
    assert RULE.check(metrics_of(window(6000.0))) is None


def test_a_gap_of_one_step_is_no_property_of_the_step() -> None:
    assert RULE.check(metrics_of(window(16_000.0, every=10))) is None


def test_waiting_for_a_batch_has_a_rule_of_its_own() -> None:
    assert RULE.check(metrics_of(window(0.0, fetch_us=30_000.0))) is None


def test_idle_time_that_only_tracing_made_does_not_count() -> None:
    assert RULE.check(metrics_of(window(16_000.0), period_ms=9.2)) is None


def test_memory_from_the_driver_gets_advice_of_its_own() -> None:
    def step(trace: GpuTrace) -> None:
        training(trace, kernels=90)
        with trace.range("aten::empty", "cpu_op"), trace.range("cudaMalloc", "cuda_runtime"):
            trace.python(14_000.0)

    finding = RULE.check(metrics_of(recorded_steps(step)))
    assert finding is not None
    assert "expandable_segments:True" in finding.advice
    assert finding.explains == claims.ALLOCATOR


@pytest.mark.parametrize(("other_us", "fires"), [(8_200.0, False), (10_500.0, True)])
def test_a_millisecond_in_every_step_decides(other_us: float, fires: bool) -> None:
    assert (RULE.check(metrics_of(window(other_us))) is not None) is fires


def test_one_step_does_not_tell_whether_a_gap_comes_back() -> None:
    with pytest.raises(MissingSignal, match="trace at least 2"):
        RULE.check(metrics_of(window(16_000.0, steps=1)))


def test_without_a_window_it_is_not_evaluated() -> None:
    with pytest.raises(MissingSignal, match="no trace window was recorded"):
        RULE.check(metrics_of())
