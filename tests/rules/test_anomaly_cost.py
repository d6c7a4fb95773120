"""Anomaly detection notes a stack for each node of the graph: what that takes in a step, and how bad it is."""

from __future__ import annotations

import json

import msgspec
import pytest
import torch
from trace_metrics import metrics_of, window_of
from traced_builder import window

from lightning_gpuprof.capture.conditions.anomaly_cost import stack_us
from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.steps.debug_apis_on import DebugApisOn

NODES = 40


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> WindowFacts:
    """Two steps whose graphs have 40 nodes."""
    events: list[dict[str, object]] = []
    for step in range(2):
        begin = 10_000.0 * step
        row = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 2, "dur": 50.0, "args": {}}
        for node in range(NODES):
            kind = "AddmmBackward0" if node % 2 else "torch::autograd::AccumulateGrad"
            name = f"autograd::engine::evaluate_function: {kind}"
            events.append({**row, "name": name, "ts": begin + 1000 + 100 * node})
            if node < 10:  # of most nodes the report has no row
                events.append({**row, "name": "aten::isnan", "ts": begin + 1010 + 100 * node, "dur": 5.0})
        mark = {**row, "cat": "user_annotation", "tid": 1, "name": f"ProfilerStep#{step}", "ts": begin, "dur": 9000.0}
        events.append(mark)
    path = tmp_path_factory.mktemp("trace") / "rank0.pt.trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return window_of(path)


def found(*windows: WindowFacts, stack: Value = 120.0, period_ms: float = 8.0, device: str = "cpu") -> Finding:
    run: dict[str, Value] = {"device.type": device, "trainer.detect_anomaly": True, "flags.anomaly_stack_us": stack}
    finding = DebugApisOn().check(metrics_of(*windows, period_ms=period_ms, phases_ms={"forward": 6.0}, run=run))
    assert finding is not None
    return finding


def test_its_size_is_known_and_so_is_its_severity(traced: WindowFacts) -> None:
    finding = found(traced)
    assert finding.severity == "critical"
    assert "Recording stacks for anomaly detection takes about 4.80 ms of each 8.00 ms step." in finding.summary
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(4.8)
    assert finding.gain.saved_lower_ms_per_step == pytest.approx(0.8 * 4.8)
    assert finding.explains == claims.FORWARD


@pytest.mark.parametrize(("period_ms", "severity"), [(19.0, "critical"), (20.0, "warning"), (39.0, "info")])
def test_its_share_of_the_step_decides(traced: WindowFacts, period_ms: float, severity: str) -> None:
    assert found(traced, period_ms=period_ms).severity == severity


def test_a_busy_device_hides_it(traced: WindowFacts) -> None:
    gpu = window(period_ms=8.0, causes={"host_work": 0.01})
    assert gpu.analysis is not None
    assert traced.analysis is not None
    operators = msgspec.structs.replace(gpu.analysis, operators=traced.analysis.operators)
    busy = found(msgspec.structs.replace(gpu, steps_us=(8000.0,) * 2, analysis=operators), device="cuda")
    assert (busy.severity, busy.gain) == ("info", None)
    assert "The device is not known to be idle so long" in busy.summary


def test_on_a_device_of_which_no_window_tells_it_is_information_without_a_lower_bound(traced: WindowFacts) -> None:
    unknown = found(traced, device="cuda")
    assert unknown.severity == "info"
    assert unknown.gain is not None
    assert unknown.gain.saved_lower_ms_per_step == 0


def test_it_takes_no_more_than_the_step(traced: WindowFacts) -> None:
    finding = found(traced, period_ms=3.0)
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(3.0)


def test_without_a_window_or_the_time_of_a_stack_it_is_information_only(traced: WindowFacts) -> None:
    for finding in (found(), found(traced, stack=None)):
        assert (finding.severity, finding.gain) == ("info", None)
        assert "was not measured" in finding.summary


def test_the_time_of_a_stack_is_measured_only_where_it_is_noted() -> None:
    assert stack_us() is None
    with torch.autograd.set_detect_anomaly(True):
        measured = stack_us()
    assert measured is not None
    assert measured > 0
