from __future__ import annotations

import pytest
from gpu_trace import GpuTrace, recorded_steps
from metrics_builder import replace
from trace_metrics import metrics_of

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.transfers.copy_heavy import CopyHeavy

RULE = CopyHeavy()
BF16, FLOAT = "c10::BFloat16", "float"


def window(copy_us: float, *, types: tuple[str, str] | None = (BF16, BF16), upload_us: float = 0.0) -> WindowFacts:
    """Ten copies per step beside 100 kernels of 100 µs."""
    shape = [32, 197, 768]

    def step(trace: GpuTrace) -> None:
        if upload_us:
            trace.copy(upload_us, 1 << 26, kind="HtoD (Pinned -> Device)", op="aten::copy_")
        for index in range(100):
            trace.kernel(100.0, inputs=None if types is None else ([shape, shape], [FLOAT, FLOAT]))
            if index % 10 == 0:
                inputs = None if types is None else ([shape, shape], list(types))
                trace.kernel(copy_us, op="aten::copy_", name="direct_copy_kernel", inputs=inputs)

    return recorded_steps(step)


def metrics_with(found: WindowFacts, busy_ms: float, precision: str = "bf16-mixed") -> Metrics:
    return metrics_of(found, period_ms=busy_ms, run={"trainer.precision": precision})


def test_copies_of_one_type_are_named_by_their_shape() -> None:
    finding = RULE.check(metrics_with(window(300.0), 13.1))
    assert finding is not None
    assert finding.subject == "aten::copy_ 32x197x768 (bfloat16)"
    assert finding.severity == "critical"
    assert finding.gain is not None
    assert finding.explains == claims.MEMORY_KERNELS
    assert finding.gain.saved_ms_per_step == pytest.approx(3.0, rel=0.02)
    assert finding.confidence < 0.5


def test_conversions_of_mixed_precision_do_not_count() -> None:
    assert RULE.check(metrics_with(window(300.0, types=(BF16, FLOAT)), 13.1)) is None


def test_copies_from_the_host_do_not_count() -> None:
    assert RULE.check(metrics_with(window(50.0, upload_us=5000.0), 15.6)) is None


@pytest.mark.parametrize(("copy_us", "fires"), [(100.0, False), (125.0, True)])
def test_a_tenth_of_the_step_decides(copy_us: float, fires: bool) -> None:
    metrics = metrics_with(window(copy_us), 10.1 + copy_us / 100)
    assert (RULE.check(metrics) is not None) is fires


def test_without_shapes_only_a_run_of_one_precision_is_judged() -> None:
    without = window(300.0, types=None)
    with pytest.raises(MissingSignal, match="recorded without shapes"):
        RULE.check(metrics_with(without, 13.1))
    assert RULE.check(metrics_with(without, 13.1, "32-true")) is not None


def test_without_a_window_it_is_not_evaluated() -> None:
    with pytest.raises(MissingSignal, match="no trace window was recorded"):
        RULE.check(metrics_of())


def test_no_shape_is_named_where_it_may_be_the_batch() -> None:
    """A batch of one type is copied to the device as ``aten::copy_`` of its own shape."""

    def step(trace: GpuTrace) -> None:
        batch = [256, 3, 224, 224]
        trace.copy(5000.0, 154_000_000, kind="HtoD (Pinned -> Device)", op="aten::copy_", inputs=([batch], [FLOAT]))
        for index in range(100):
            trace.kernel(100.0, inputs=([[8]], [FLOAT]))
            if index % 10 == 0:
                trace.kernel(300.0, op="aten::copy_", name="direct_copy_kernel", inputs=([[32, 768]], [FLOAT]))

    finding = RULE.check(metrics_with(recorded_steps(step), 18.1))
    assert finding is not None
    assert finding.subject == "aten::copy_"
    assert "256x3" not in finding.summary + finding.advice
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(3.0, rel=0.05)


@pytest.mark.parametrize(("empty_ratio", "fires"), [(0.9, False), (0.02, True)])
def test_it_is_quiet_where_workers_set_the_pace(empty_ratio: float, fires: bool) -> None:
    def step(trace: GpuTrace) -> None:
        with trace.phase("[_TrainingEpochLoop].train_dataloader_next"):
            trace.python(20_000.0)
        for _ in range(100):
            trace.kernel(100.0, op="aten::copy_", inputs=([[32, 768]], [FLOAT]))

    metrics = metrics_with(recorded_steps(step), 20.8)
    assert (RULE.check(replace(metrics, fetch_waited_ratio=empty_ratio)) is not None) is fires
