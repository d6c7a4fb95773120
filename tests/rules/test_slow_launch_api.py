from __future__ import annotations

import pytest
from gpu_trace import GpuTrace, recorded_steps
from trace_metrics import metrics_of

from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.launches.launch_bound import LaunchBound
from lightning_gpuprof.rules.launches.slow_launch_api import SlowLaunchApi

RULE = SlowLaunchApi()


def window(call_us: float, *, kernel_us: float = 5.0, host_us: float | None = None) -> WindowFacts:
    def step(trace: GpuTrace) -> None:
        for _ in range(100):
            trace.kernel(kernel_us, host_us=call_us + 6.0 if host_us is None else host_us, call_us=call_us)

    return recorded_steps(step)


def test_slow_calls_are_found() -> None:
    metrics = metrics_of(window(60.0))
    finding = RULE.check(metrics)
    assert finding is not None
    assert finding.severity == "critical"
    assert finding.subject == "cudaLaunchKernel"
    assert "takes 60.0 us at the median of 100 calls per step" in finding.summary
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(100 * 0.050, rel=0.01)
    found = diagnose(metrics, [LaunchBound(), RULE]).findings
    assert found[0].rule == "slow-launch-api"
    assert found[0].gain == finding.gain


def test_launches_that_wait_for_their_kernels_are_told() -> None:
    finding = RULE.check(metrics_of(window(45.0, kernel_us=40.0, host_us=90.0)))
    assert finding is not None
    assert finding.advice.startswith("Unset CUDA_LAUNCH_BLOCKING")


def test_it_is_quiet_where_only_the_operators_are_slow() -> None:
    assert RULE.check(metrics_of(window(8.0, host_us=60.0))) is None


def test_slow_calls_do_not_matter_while_the_device_is_busy() -> None:
    assert RULE.check(metrics_of(window(60.0, kernel_us=100.0))) is None


@pytest.mark.parametrize(("call_us", "fires"), [(19.0, False), (20.0, True)])
def test_twenty_microseconds_decide(call_us: float, fires: bool) -> None:
    assert (RULE.check(metrics_of(window(call_us))) is not None) is fires


def test_without_a_window_it_is_not_evaluated() -> None:
    with pytest.raises(MissingSignal, match="no trace window was recorded"):
        RULE.check(metrics_of())
