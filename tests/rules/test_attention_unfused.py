from __future__ import annotations

from pathlib import Path

import pytest
from device_builder import POINTWISE, TENSOR_GEMM, Kernels, operator, without_windows

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.trace.operators import OperatorShapes
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.kernels.attention_unfused import AttentionUnfused

RULE = AttentionUnfused()
SCORES = "8x12x1024x1024"


def pieces(softmax_ms: float = 12.0, scale_ms: float = 4.0) -> list[OperatorShapes]:
    return [
        operator("aten::_softmax", SCORES, softmax_ms),
        operator("aten::mul", f"{SCORES}, ()", scale_ms),
        operator("aten::bmm", "96x1024x64, 96x64x1024", 3.0),
        operator("aten::bmm", "96x1024x1024, 96x1024x64", 3.0),
        operator("aten::addmm", "768, 8192x768, 768x768", 10.0),
    ]


def run_of(folder: Path, operators: list[OperatorShapes] | None, **run: object) -> Metrics:
    kernels = Kernels().add(TENSOR_GEMM, 20).add(POINTWISE, 28)
    return kernels.metrics(folder, operators=operators, run=run)  # type: ignore[arg-type]


def test_it_names_the_scores_and_gains_what_is_no_product(tmp_path: Path) -> None:
    finding = RULE.check(run_of(tmp_path, pieces()))
    assert finding is not None
    assert finding.severity == "critical"
    assert finding.subject == f"attention with scores of {SCORES}"
    assert "22.0 ms of a step of 50.0 ms (44 %)" in finding.summary
    assert "F.scaled_dot_product_attention" in finding.advice
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(16.0)


def test_switched_off_backends_are_told(tmp_path: Path) -> None:
    finding = RULE.check(run_of(tmp_path, pieces(), **{"flags.sdpa_backends": "math"}))
    assert finding is not None
    assert finding.advice.startswith("Switch the fused backends on again (only math is allowed now)")


def test_the_backward_s_pieces_count_too(tmp_path: Path) -> None:
    backward = [
        operator("aten::_softmax_backward_data", f"{SCORES}, {SCORES}", 8.0, phase="backward"),
        operator("aten::bmm", "96x64x1024, 96x1024x1024", 3.0, phase="backward"),
    ]
    finding = RULE.check(run_of(tmp_path, [*pieces(), *backward]))
    assert finding is not None
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(24.0)


def test_fused_attention_is_quiet(tmp_path: Path) -> None:
    fused = [operator("aten::_scaled_dot_product_flash_attention", "8x12x1024x64, 8x12x1024x64, 8x12x1024x64", 20.0)]
    assert RULE.check(run_of(tmp_path, fused)) is None


def test_a_softmax_over_classes_is_no_attention(tmp_path: Path) -> None:
    rows = [
        operator("aten::_softmax", "8x1024x50257", 20.0),
        operator("aten::bmm", "96x1024x64, 96x64x1024", 5.0),
    ]
    assert RULE.check(run_of(tmp_path, rows)) is None


def test_short_sequences_are_left_alone(tmp_path: Path) -> None:
    rows = [operator("aten::_softmax", "64x12x64x64", 12.0), operator("aten::bmm", "768x64x64, 768x64x64", 9.0)]
    assert RULE.check(run_of(tmp_path, rows)) is None


def test_it_is_quiet_where_the_host_sets_the_pace(tmp_path: Path) -> None:
    metrics = Kernels().add(TENSOR_GEMM, 10).add(POINTWISE, 20).metrics(tmp_path, operators=pieces())
    assert RULE.check(metrics) is None


@pytest.mark.parametrize(("softmax_ms", "fires"), [(1.99, False), (2.01, True)])
def test_the_boundary_is_a_tenth_of_the_step(tmp_path: Path, softmax_ms: float, fires: bool) -> None:
    rows = [operator("aten::_softmax", SCORES, softmax_ms), operator("aten::bmm", "96x1024x64, 96x64x1024", 3.0)]
    assert (RULE.check(run_of(tmp_path, rows)) is not None) is fires


def test_it_is_not_evaluated_without_shapes_or_windows(tmp_path: Path) -> None:
    with pytest.raises(MissingSignal, match="record_shapes"):
        RULE.check(run_of(tmp_path, None))
    with pytest.raises(MissingSignal, match="no trace window"):
        RULE.check(without_windows(run_of(tmp_path, pieces())))
