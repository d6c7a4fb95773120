"""All rules about the host's side of trace windows: on recorded traces, on a healthy step, and with parts missing."""

import msgspec
import pytest
from late_steps import training
from metrics_builder import replace
from recorded_traces import NAMES
from rules_in import rules_in
from trace_metrics import metrics_of, recorded_steps, recorded_window
from truths.gpu_trace import GpuTrace

from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.rules.engine import Diagnosis, diagnose

OF_THE_RUN = ("batch-of-objects", "h2d-slow-link", "transfer-hook-slow")
"""Rules on transfers that need more than a trace of host and device."""
RULES = list(rules_in("launches", "transfers", besides=OF_THE_RUN).values())


def judged(metrics_windows: object) -> Diagnosis:
    return diagnose(metrics_windows, RULES)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_a_device_that_is_busy_in_untraced_steps_has_nothing_to_wait_for(name: str) -> None:
    """Recorded traces as if tracing alone had made the host slow."""
    window = recorded_window(name)
    if not window.devices:
        pytest.skip("no device")
    busy_ms = max(device.busy_us for device in window.devices) / 1e3 / len(window.steps_us)
    diagnosis = judged(metrics_of(window, period_ms=1.02 * busy_ms, phases_ms={}))
    rules = {finding.rule for finding in diagnosis.findings if finding.severity != "info"}
    assert rules <= {"h2d-pageable", "h2d-exposed", "d2h-traffic", "copy-heavy"}  # the device itself is at these


def healthy(trace: GpuTrace) -> None:
    """A step with all that healthy steps have: a pinned batch, a loss that is read, a progress bar, an optimizer."""
    with trace.phase("[Strategy]SingleDeviceStrategy.batch_to_device"):
        trace.copy(400.0, 8_000_000, kind="HtoD (Pinned -> Device)")
        trace.copy(3.0, 512, kind="HtoD (Pinned -> Device)")
    training(trace)
    with trace.phase("[Callback]TQDMProgressBar.on_train_batch_end"):
        trace.item()
        trace.python(150.0)
    trace.python(300.0)


def test_a_healthy_step_has_no_finding() -> None:
    diagnosis = judged(metrics_of(recorded_steps(healthy), run={"compile.state": "none"}))
    assert not diagnosis.findings
    assert [n.rule for n in diagnosis.not_evaluated] == ["copy-heavy"]  # no shapes


@pytest.mark.parametrize("part", [f for f in TraceAnalysis.__struct_fields__ if f not in ("gpus", "problems")])
def test_a_part_that_could_not_be_computed_fails_no_rule(part: str) -> None:
    window = recorded_steps(lambda trace: training(trace, kernel_us=3.0))
    analysis = msgspec.structs.replace(window.analysis, **{part: None})
    diagnosis = judged(metrics_of(msgspec.structs.replace(window, analysis=analysis)))
    assert not [n for n in diagnosis.not_evaluated if "failed" in n.why]


def test_a_run_of_few_steps_is_not_judged() -> None:
    metrics = metrics_of(recorded_steps(lambda trace: training(trace, kernel_us=3.0)))
    few = replace(metrics, steps=msgspec.structs.replace(metrics.steps, steady_count=5))
    diagnosis = judged(few)
    assert not diagnosis.findings
    assert len(diagnosis.not_evaluated) == len(RULES)


def test_the_order_of_windows_does_not_matter() -> None:
    slow = recorded_steps(lambda trace: training(trace, kernel_us=3.0))
    busy = recorded_steps(training)
    one, other = (
        judged(metrics_of(slow, busy, slow, period_ms=5.0)),
        judged(metrics_of(busy, slow, slow, period_ms=5.0)),
    )
    assert [f.rule for f in one.findings] == [f.rule for f in other.findings]


def test_gains_fit_into_the_idle_time() -> None:
    """Launches that come late, a value that is read and work of the host in one step: each has its own part."""

    def step(trace: GpuTrace) -> None:
        training(trace, kernel_us=3.0, other_us=3000.0, kernels=150)
        trace.item()
        trace.python(800.0)

    metrics = metrics_of(recorded_steps(step), run={"compile.state": "none"})
    findings = judged(metrics).findings
    assert len(findings) >= 2
    period_ms = metrics.period_ms
    assert period_ms is not None
    assert sum(f.gain.saved_ms_per_step for f in findings if f.gain is not None) <= period_ms - 0.45
