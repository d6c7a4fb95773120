from __future__ import annotations

from pathlib import Path

import pytest
from device_builder import POINTWISE, STEPS, TENSOR_GEMM, Kernels, without_windows
from metrics_builder import replace
from msgspec.structs import replace as changed

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.trace.roofline import Rate, Roofline
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.kernels.mfu_low import MfuLow

RULE = MfuLow()


def run_of(folder: Path, mfu: float = 0.12, *, products_ms: float = 33.6, coverage: float = 1.0) -> Metrics:
    """Steps of 65 ms in the window, of 50 ms without tracing; the MFU is that of untraced steps."""
    kernels = Kernels(step_ms=65.0).add(TENSOR_GEMM, products_ms).add(POINTWISE, 48 - products_ms)
    metrics = kernels.metrics(folder)
    seconds = STEPS * 0.065
    rate = Rate(seconds=seconds, flops=1e12, flops_per_s=1e12 / seconds, mfu_ratio=mfu * 50 / 65, measured_ratio=None)
    roofline = Roofline(
        device="A100", steps=rate, matrix_us=products_ms * 1e3 * STEPS, coverage_ratio=coverage, faster_flops_ratio=0.0
    )
    window = metrics.windows[0]
    assert window.analysis is not None
    window = changed(window, analysis=changed(window.analysis, roofline=roofline))
    return replace(metrics, windows=(window,))


def test_it_splits_the_utilization_into_its_parts(tmp_path: Path) -> None:
    finding = RULE.check(run_of(tmp_path))
    assert finding is not None
    assert finding.severity == "info"
    assert finding.gain is None
    assert "MFU is 12 % in a step of 50.0 ms: the device works 96 % of the step, multiplies in 70 %" in finding.summary
    assert "products are slow" in finding.advice


@pytest.mark.parametrize(("mfu", "fires"), [(0.299, True), (0.301, False)])
def test_the_boundary_is_at_thirty_percent(tmp_path: Path, mfu: float, fires: bool) -> None:
    assert (RULE.check(run_of(tmp_path, mfu)) is not None) is fires


def test_a_model_without_many_products_has_no_mfu_to_speak_of(tmp_path: Path) -> None:
    assert RULE.check(run_of(tmp_path, products_ms=20.0)) is None


def test_it_is_not_evaluated_without_flops_or_windows(tmp_path: Path) -> None:
    with pytest.raises(MissingSignal, match="FLOPs"):
        RULE.check(run_of(tmp_path, coverage=0.5))
    with pytest.raises(MissingSignal, match="no trace window"):
        RULE.check(without_windows(run_of(tmp_path)))
