"""What calls of metrics take, by the modules of trace windows."""

from typing import Any

import pytest
from empty_structs import empty

from lightning_gpuprof.analyze.derived import metric_calls
from lightning_gpuprof.model.host_time import MetricCalls
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import Unmeasured
from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.model.trace.attribution import Attribution, ModuleTime
from lightning_gpuprof.model.window import WindowFacts


def window(calls_ms: dict[str, float], **facts: Any) -> WindowFacts:
    """Two steps with calls of modules, by their path: ``Net/metrics/f1``."""
    modules = tuple(empty(ModuleTime, path=tuple(path.split("/")), host_us=2e3 * ms) for path, ms in calls_ms.items())
    analysis = TraceAnalysis(attribution=empty(Attribution, modules=modules))
    return empty(WindowFacts, steps_us=(50e3, 50e3), analysis=analysis, **facts)


def calls(*windows: WindowFacts, twice: str | None = "f1, all.auroc") -> Any:
    return metric_calls(
        empty(Metrics, run={"model.class": "Net", "model.metrics_updated_twice": twice}, windows=windows)
    )


@pytest.mark.parametrize("model", ["", "Net/"])
def test_a_metric_is_found_whether_or_not_the_model_itself_is_called(model: str) -> None:
    found = calls(window({f"{model}f1": 4.0, f"{model}all": 7.0, f"{model}all/auroc": 6.0, f"{model}net/other": 9.0}))
    assert found.names == ("all.auroc", "f1")
    assert found.ratio == pytest.approx(0.2)


def test_a_metric_in_another_is_a_part_of_it() -> None:
    assert calls(window({"f1": 4.0, "f1/inner": 3.0}), twice="f1, f1.inner").ratio == pytest.approx(0.08)


def test_of_several_windows_the_least_share_counts_and_those_on_slow_steps_do_not() -> None:
    slow = window({"f1": 3.0}, reason="slow step 7")
    assert calls(window({"f1": 6.0}), window({"f1": 5.0}), slow).ratio == pytest.approx(0.1)


def test_metrics_that_are_not_called_take_nothing() -> None:
    assert calls(window({"net": 30.0})) == MetricCalls(names=(), ratio=0.0)


def test_a_model_without_such_metrics_and_a_run_without_modules_have_none() -> None:
    assert calls(window({"f1": 4.0}), twice=None) == Unmeasured(
        why="the model has no metric that updates twice", is_possible=False
    )
    assert calls(empty(WindowFacts, steps_us=(50e3,))).is_possible


def test_a_metric_that_another_module_calls_is_found() -> None:
    assert calls(window({"Net/head": 6.0, "Net/head/all.auroc": 5.0})).names == ("all.auroc",)
