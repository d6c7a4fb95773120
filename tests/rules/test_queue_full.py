from __future__ import annotations

import pytest
from gpu_trace import recorded_steps
from late_steps import training
from trace_metrics import metrics_of

from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.launches.queue_full import QueueFull

RULE = QueueFull()


def window(kernels: int = 500, kernel_us: float = 100.0) -> WindowFacts:
    return recorded_steps(lambda trace: training(trace, kernels=kernels, kernel_us=kernel_us, fetch_us=10.0))


def test_a_host_that_is_far_ahead_is_told_without_a_gain() -> None:
    finding = RULE.check(metrics_of(window(), period_ms=50.2))
    assert finding is not None
    assert finding.severity == "info"
    assert finding.gain is None
    assert "the device sets the pace" in finding.summary
    assert finding.advice.startswith("Nothing to gain on the host")


def test_it_is_quiet_where_the_queue_has_room() -> None:
    assert RULE.check(metrics_of(window(kernels=100), period_ms=10.1)) is None


def test_a_launch_bound_run_is_no_such_thing() -> None:
    assert RULE.check(metrics_of(window(kernel_us=3.0))) is None


@pytest.mark.parametrize(("period_ms", "fires"), [(55.0, True), (56.0, False)])
def test_a_tenth_of_idle_time_decides(period_ms: float, fires: bool) -> None:
    assert (RULE.check(metrics_of(window(), period_ms=period_ms)) is not None) is fires


def test_without_a_window_it_is_not_evaluated() -> None:
    with pytest.raises(MissingSignal, match="no trace window was recorded"):
        RULE.check(metrics_of())
