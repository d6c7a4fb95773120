from __future__ import annotations

from pathlib import Path

import pytest
from device_builder import (
    POINTWISE,
    SCUDNN,
    SGEMM,
    TENSOR_GEMM,
    V100,
    Kernels,
    roofline_row,
    without_windows,
)
from metrics_builder import build, replace
from msgspec.structs import replace as changed

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.trace.roofline import Ceiling
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.kernels.tc_unused import TcUnused

RULE = TcUnused()


def in_fp32(folder: Path, **changed: object) -> Metrics:
    kernels = Kernels().add(SGEMM, 20).add(SCUDNN, 10).add(POINTWISE, 18)
    return kernels.metrics(folder, **changed)  # type: ignore[arg-type]


def test_it_names_the_kernels_and_the_precision_to_set(tmp_path: Path) -> None:
    finding = RULE.check(in_fp32(tmp_path))
    assert finding is not None
    assert finding.severity == "critical"
    assert finding.subject == SGEMM
    assert finding.advice.startswith('precision is 32-true: set Trainer(precision="bf16-mixed")')
    assert finding.gain is not None
    # peaks of the A100: tf32 156, fp32 19.5
    assert finding.gain.saved_ms_per_step == pytest.approx(30 * (1 - 19.5 / 156), rel=1e-3)
    assert finding.gain.saved_lower_ms_per_step == pytest.approx(30 * (1 - 2 * 19.5 / 156), rel=1e-3)


def test_on_volta_it_says_fp16(tmp_path: Path) -> None:
    kernels = Kernels(V100).add("volta_sgemm_128x64_nn", 30).add(POINTWISE, 18)
    finding = RULE.check(kernels.metrics(tmp_path, run={"device.capability": "7.0"}))
    assert finding is not None
    assert 'Trainer(precision="16-mixed")' in finding.advice


def test_in_mixed_precision_it_asks_what_leaves_it(tmp_path: Path) -> None:
    finding = RULE.check(in_fp32(tmp_path, run={"trainer.precision": "bf16-mixed"}))
    assert finding is not None
    assert "precision is already bf16-mixed" in finding.advice


def test_it_is_quiet_where_products_are_on_tensor_cores(tmp_path: Path) -> None:
    assert RULE.check(Kernels().add(TENSOR_GEMM, 30).add(POINTWISE, 18).metrics(tmp_path)) is None


def test_products_of_a_matrix_and_a_vector_are_no_work_for_tensor_cores(tmp_path: Path) -> None:
    kernels = Kernels().add("void gemv2T_kernel_val<int, float, float, float, float>(int)", 30).add(POINTWISE, 18)
    assert RULE.check(kernels.metrics(tmp_path)) is None


def test_kernels_of_triton_do_not_count(tmp_path: Path) -> None:
    assert RULE.check(Kernels().add("triton_tem_fused_mm_0", 30).add(POINTWISE, 18).metrics(tmp_path)) is None


def test_a_device_without_tensor_cores_is_passed_over(tmp_path: Path) -> None:
    pascal = {**V100, "name": "Tesla P100-SXM2-16GB", "computeMajor": 6}
    assert RULE.check(Kernels(pascal).add("maxwell_sgemm_128x64_nn", 48).metrics(tmp_path)) is None


def test_it_is_quiet_where_the_host_sets_the_pace(tmp_path: Path) -> None:
    assert RULE.check(Kernels().add(SGEMM, 20).metrics(tmp_path)) is None


def test_products_that_memory_bounds_gain_only_what_the_roofline_leaves(tmp_path: Path) -> None:
    # 30 ms of work that moves 45 GB takes 29 ms at 1555 GB/s, whatever multiplies
    row = roofline_row("aten::mm", "8x8, 8x8", 30.0, dtype="fp32", bytes_per_call=45e9)
    metrics = in_fp32(tmp_path, rows=[row])
    window = metrics.windows[0]
    assert window.analysis is not None
    assert window.analysis.roofline is not None
    ceilings = (Ceiling(dtype="fp32", flops_per_s=19.5e12, measured=False),)
    roofline = changed(window.analysis.roofline, ceilings=ceilings)
    window = changed(window, analysis=changed(window.analysis, roofline=roofline))
    assert RULE.check(replace(metrics, windows=(window,))) is None


@pytest.mark.parametrize(("ms", "fires"), [(2.49, False), (2.51, True)])
def test_the_boundary_is_a_twentieth_of_the_step(tmp_path: Path, ms: float, fires: bool) -> None:
    metrics = Kernels().add(SGEMM, ms).add(POINTWISE, 49 - ms).metrics(tmp_path)
    assert (RULE.check(metrics) is not None) is fires


def test_few_steps_do_not_make_it_critical(tmp_path: Path) -> None:
    finding = RULE.check(in_fp32(tmp_path, steady=15))
    assert finding is not None
    assert finding.severity == "warning"


def test_a_model_on_the_cpu_has_no_kernels_at_fault() -> None:
    assert RULE.check(build()) is None


def test_it_is_not_evaluated_without_windows_or_steps(tmp_path: Path) -> None:
    with pytest.raises(MissingSignal, match="no trace window"):
        RULE.check(without_windows(in_fp32(tmp_path)))
    with pytest.raises(MissingSignal, match="5 steady steps"):
        RULE.check(in_fp32(tmp_path, steady=5))


def test_it_is_not_evaluated_where_the_device_is_not_known(tmp_path: Path) -> None:
    with pytest.raises(MissingSignal, match="tensor cores"):
        RULE.check(Kernels({"id": 0}).add(SGEMM, 48).metrics(tmp_path))


def test_a_slow_step_s_window_is_no_ordinary_one(tmp_path: Path) -> None:
    metrics = in_fp32(tmp_path)
    slow = changed(metrics.windows[0], reason="slow step: 3 times the median")
    with pytest.raises(MissingSignal, match="no trace window"):
        RULE.check(replace(metrics, windows=(slow,)))


@pytest.mark.parametrize(("workers", "empty_ratio", "fires"), [(4, 0.9, False), (4, 0.02, True), (0, 0.9, True)])
def test_it_is_quiet_where_workers_set_the_pace(tmp_path: Path, workers: int, empty_ratio: float, fires: bool) -> None:
    """25 ms of a step of 80 ms; the device has no work for 50 ms, in which the loop waits for a batch."""
    metrics = Kernels(step_ms=80.0).add(SGEMM, 25).add(POINTWISE, 5).metrics(tmp_path)
    fed = build(
        times_ms={"data_wait": 50.0, "forward": 10.0, "backward": 13.0},
        run=dict(metrics.run),
        num_workers=workers,
        fetch_waited_ratio=empty_ratio,
    )
    assert (RULE.check(replace(fed, windows=metrics.windows)) is not None) is fires
