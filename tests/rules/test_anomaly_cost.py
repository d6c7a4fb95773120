"""Anomaly detection notes a stack for each node of the graph: what that takes in a step, and how bad it is."""

import msgspec
import pytest
import torch
from findings_builder import fired
from trace_metrics import metrics_of
from traced_builder import window

from lightning_gpuprof.capture.conditions.anomaly_cost import _elements, anomaly_cost
from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.steps.debug_apis_on import DebugApisOn


def found(
    *windows: WindowFacts,
    nodes: Value = 40,
    stack: Value = 120.0,
    most: Value = None,
    period_ms: float = 8.0,
    device: str = "cpu",
    **checks: Value,
) -> Finding:
    run: dict[str, Value] = {
        "device.type": device,
        "trainer.detect_anomaly": True,
        "flags.anomaly_nodes": nodes,
        "flags.anomaly_stack_us": stack,
        "flags.anomaly_stack_most_us": most,
        **{f"flags.anomaly_{name}": value for name, value in checks.items()},
    }
    phases = {"forward": 6.0, "backward": 1.0}
    return fired(DebugApisOn(), metrics_of(*windows, period_ms=period_ms, phases_ms=phases, run=run))


def test_its_size_is_known_and_so_is_its_severity() -> None:
    finding = found()
    assert finding.severity == "critical"
    assert "at least 4.80 ms of each 8.00 ms step" in finding.summary
    assert finding.gain.saved_ms_per_step == pytest.approx(4.8)
    assert finding.gain.saved_lower_ms_per_step == pytest.approx(0.8 * 4.8)
    assert finding.explains == claims.ANOMALY_DETECTION


def test_with_cold_caches_it_takes_more_at_most() -> None:
    finding = found(most=140.0)
    assert finding.severity == "critical"
    assert finding.gain.saved_ms_per_step == pytest.approx(5.6)
    assert finding.gain.saved_lower_ms_per_step == pytest.approx(0.8 * 4.8)


@pytest.mark.parametrize(("most_us", "gained_ms"), [(15.0, 4.8 + 0.75), (100.0, 4.8 + 1.0)])
def test_checks_for_nan_count_as_far_as_backward_takes_as_long(most_us: float, gained_ms: float) -> None:
    finding = found(checks=50, check_us=10.0, check_most_us=most_us)
    assert "at least 5.30 ms of each 8.00 ms step to record a stack per operation and check for NaN" in finding.summary
    assert finding.gain.saved_ms_per_step == pytest.approx(gained_ms)
    assert finding.gain.saved_lower_ms_per_step == pytest.approx(0.8 * (4.8 + 0.5))


@pytest.mark.parametrize(("period_ms", "severity"), [(19.0, "critical"), (20.0, "warning"), (39.0, "info")])
def test_its_share_of_the_step_decides(period_ms: float, severity: str) -> None:
    assert found(period_ms=period_ms).severity == severity


def test_a_busy_device_hides_it() -> None:
    gpu = window(period_ms=8.0, causes={"host_work": 0.01})
    assert gpu.analysis is not None
    busy = found(msgspec.structs.replace(gpu, steps_us=(8000.0,) * 2), device="cuda")
    assert (busy.severity, busy.gain) == ("info", None)
    assert "The device is not known to be idle that long" in busy.summary


def test_on_a_device_of_which_no_window_tells_it_is_information_without_a_lower_bound() -> None:
    unknown = found(device="cuda")
    assert unknown.severity == "info"
    assert unknown.gain.saved_lower_ms_per_step == 0


def test_it_takes_no_more_than_the_step() -> None:
    finding = found(period_ms=3.0)
    assert finding.gain.saved_ms_per_step == pytest.approx(3.0)


def test_without_the_nodes_or_the_time_of_a_stack_it_is_information_only() -> None:
    for finding in (found(nodes=None), found(stack=None)):
        assert (finding.severity, finding.gain) == ("info", None)
        assert "was not measured" in finding.summary


def test_the_nodes_of_a_graph_are_counted_and_a_stack_is_timed_where_stacks_are_recorded() -> None:
    weight = torch.ones(2, requires_grad=True)
    assert anomaly_cost((weight * 2).sum()) == {}
    with torch.autograd.set_detect_anomaly(True):
        cost = anomaly_cost((weight * 2).sum())
        assert anomaly_cost(torch.ones(1)) == {}
    assert cost["flags.anomaly_nodes"] == 3  # the sum, the product, and what adds to the gradient
    assert isinstance(cost["flags.anomaly_stack_us"], float)
    assert cost["flags.anomaly_stack_us"] > 0
    assert cost["flags.anomaly_checks"] == 2  # between them
    assert isinstance(cost["flags.anomaly_check_us"], float)
    assert cost["flags.anomaly_check_us"] > 0


def test_checks_that_are_switched_off_cost_nothing() -> None:
    weight = torch.ones(2, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        cost = anomaly_cost((weight * 2).sum())
    assert "flags.anomaly_nodes" in cost
    assert "flags.anomaly_checks" not in cost


def test_gradients_to_check_have_as_many_elements_as_torch_checks() -> None:
    weight = torch.ones(30, 10, requires_grad=True)
    product = weight * 2
    assert product.grad_fn is not None
    assert _elements(product.grad_fn, 0) == 300
    assert _elements(object(), 0) == 0
