from __future__ import annotations

import pytest
from gpu_trace import recorded_steps
from late_steps import training
from trace_metrics import metrics_of

from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.launches.launch_bound import LaunchBound
from lightning_gpuprof.rules.launches.python_overhead import PythonOverhead

RULE = PythonOverhead()


def window(*, python_us: float, op_us: float = 12.0, kernel_us: float = 3.0, **more: float) -> WindowFacts:
    return recorded_steps(
        lambda trace: training(trace, kernel_us=kernel_us, op_us=op_us, python_us=python_us, **more)  # type: ignore[arg-type]
    )


def test_python_between_operators_is_named_with_its_line() -> None:
    finding = RULE.check(metrics_of(window(python_us=40.0), run={"compile.state": "none"}))
    assert finding is not None
    assert finding.severity == "critical"
    assert finding.subject == "net.py(20): forward"
    assert finding.advice.startswith("Compile the model")
    assert finding.gain is not None
    lower_ms = finding.gain.saved_lower_ms_per_step
    assert lower_ms is not None
    assert lower_ms <= 300 * 0.040 * 1.1


def test_the_gain_is_that_of_the_launches_which_the_group_counts_once() -> None:
    metrics = metrics_of(window(python_us=40.0), run={"compile.state": "none"})
    found = diagnose(metrics, [RULE, LaunchBound()])
    alone = LaunchBound().check(metrics)
    assert alone is not None
    assert alone.gain is not None
    assert [f.rule for f in found.findings] == ["python-overhead", "launch-bound"]
    assert found.combined is not None
    assert found.combined.saved_ms_per_step == pytest.approx(alone.gain.saved_ms_per_step)


def test_a_compiled_model_gets_other_advice() -> None:
    finding = RULE.check(metrics_of(window(python_us=40.0), run={"compile.state": "module"}))
    assert finding is not None
    assert "into the compiled part" in finding.advice


def test_slow_operators_are_not_python() -> None:
    assert RULE.check(metrics_of(window(python_us=3.0, op_us=40.0))) is None


def test_it_is_quiet_where_the_device_is_busy() -> None:
    assert RULE.check(metrics_of(window(python_us=40.0, kernel_us=100.0))) is None


def test_it_is_quiet_where_only_tracing_makes_launches_late() -> None:
    assert RULE.check(metrics_of(window(python_us=40.0), period_ms=1.0)) is None


def test_waiting_for_a_batch_is_not_python() -> None:
    assert RULE.check(metrics_of(window(python_us=10.0, kernel_us=60.0, fetch_us=50_000.0))) is None


@pytest.mark.parametrize(("python_us", "fires"), [(8.0, False), (13.0, True)])
def test_six_tenths_of_the_late_time_decide(python_us: float, fires: bool) -> None:
    assert (RULE.check(metrics_of(window(python_us=python_us))) is not None) is fires


def test_without_a_window_it_is_not_evaluated() -> None:
    with pytest.raises(MissingSignal, match="no trace window was recorded"):
        RULE.check(metrics_of())
