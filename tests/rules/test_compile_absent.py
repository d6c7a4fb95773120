from __future__ import annotations

import pytest
from gpu_trace import recorded_steps
from late_steps import training
from trace_metrics import metrics_of

from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.launches.compile_absent import CompileAbsent
from lightning_gpuprof.rules.launches.launch_bound import LaunchBound

RULE = CompileAbsent()


def window(kernel_us: float = 3.0) -> WindowFacts:
    return recorded_steps(lambda trace: training(trace, kernel_us=kernel_us))


def test_it_is_a_hint_behind_the_rule_that_measures() -> None:
    metrics = metrics_of(window(), run={"compile.state": "none"})
    findings = diagnose(metrics, [RULE, LaunchBound()]).findings
    assert [f.rule for f in findings] == ["launch-bound", "compile-absent"]
    assert findings[1].severity == "info"
    assert findings[1].gain is None
    assert "300 launches per step" in findings[1].advice


def test_it_is_quiet_where_the_model_is_compiled() -> None:
    assert RULE.check(metrics_of(window(), run={"compile.state": "submodules"})) is None


def test_it_is_quiet_where_the_device_is_busy() -> None:
    assert RULE.check(metrics_of(window(100.0), run={"compile.state": "none"})) is None


@pytest.mark.parametrize(("period_ms", "fires"), [(1.02, False), (1.4, True)])
def test_the_threshold_is_that_of_launch_bound(period_ms: float, fires: bool) -> None:
    metrics = metrics_of(window(), period_ms=period_ms, phases_ms={}, run={"compile.state": "none"})
    assert (RULE.check(metrics) is not None) is fires


def test_without_the_state_of_the_compiler_it_is_not_evaluated() -> None:
    with pytest.raises(MissingSignal, match="whether the model is compiled"):
        RULE.check(metrics_of(window()))
