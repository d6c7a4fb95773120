from __future__ import annotations

import pytest
from gpu_trace import recorded_steps
from late_steps import training
from trace_metrics import metrics_of

from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.launches.launch_bound import LaunchBound
from lightning_gpuprof.rules.launches.small_kernels import SmallKernels

RULE = SmallKernels()


def window(*, kernels: int = 1200, kernel_us: float = 3.0, python_us: float = 0.0) -> WindowFacts:
    return recorded_steps(
        lambda trace: training(trace, kernels=kernels, kernel_us=kernel_us, python_us=python_us), steps=3
    )


def test_it_names_the_kernels_and_the_idle_time_before_them() -> None:
    finding = RULE.check(metrics_of(window()))
    assert finding is not None
    assert finding.severity == "critical"
    assert finding.subject == "elementwise_kernel"
    assert "1,200 of 1,200 kernels per step are shorter than 10 us" in finding.summary
    assert "most before elementwise_kernel (1,200 per step)" in finding.summary
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(
        1200 * 0.007, rel=0.01
    )  # from the begin of the operator to the kernel


def test_it_carries_the_gain_before_the_general_rule() -> None:
    found = {f.rule: f for f in diagnose(metrics_of(window()), [LaunchBound(), RULE]).findings}
    assert list(found) == ["small-kernels", "launch-bound"]
    general, special = LaunchBound().check(metrics_of(window())), RULE.check(metrics_of(window()))
    assert general is not None
    assert special is not None
    assert found["small-kernels"].gain == special.gain
    assert general.gain is not None
    gains = [finding.gain.saved_ms_per_step for finding in found.values() if finding.gain is not None]
    assert sum(gains) == pytest.approx(general.gain.saved_ms_per_step)


def test_it_is_quiet_on_large_kernels() -> None:
    assert RULE.check(metrics_of(window(kernel_us=20.0))) is None


def test_small_kernels_that_the_host_keeps_up_with_are_healthy() -> None:
    """Untraced, the device is busy for nine tenths of the step."""
    assert RULE.check(metrics_of(window(), period_ms=4.0)) is None


@pytest.mark.parametrize(("kernels", "fires"), [(960, False), (1020, True)])
def test_a_thousand_kernels_decide(kernels: int, fires: bool) -> None:
    assert (RULE.check(metrics_of(window(kernels=kernels))) is not None) is fires


def test_without_a_window_it_is_not_evaluated() -> None:
    with pytest.raises(MissingSignal, match="no trace window was recorded"):
        RULE.check(metrics_of())
