from __future__ import annotations

from pathlib import Path

import pytest
from device_builder import POINTWISE, TENSOR_GEMM, Kernels, operator, roofline_row, without_windows

from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.trace.roofline import RooflineRow
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.kernels.attention_unfused import AttentionUnfused
from lightning_gpuprof.rules.kernels.memory_bound_kernels import MemoryBoundKernels

RULE = MemoryBoundKernels()


def addition(bandwidth_ratio: float = 0.8) -> RooflineRow:
    """10 ms a step at this share of 1555 GB/s."""
    moved = 1555e9 * bandwidth_ratio * 0.010
    return roofline_row("aten::add", "64x4096x1024", 10.0, kind="elementwise", bytes_per_call=moved, bound="memory")


def run_of(folder: Path, ms: float = 30.0, *, rows: list[RooflineRow] | None = None, **run: Value) -> Metrics:
    kernels = Kernels().add(POINTWISE, ms).add(TENSOR_GEMM, 49 - ms)
    return kernels.metrics(folder, rows=[addition()] if rows is None else rows, run=run)


def test_it_names_the_operators_and_is_information(tmp_path: Path) -> None:
    finding = RULE.check(run_of(tmp_path, **{"compile.state": "none"}))
    assert finding is not None
    assert finding.severity == "info"
    assert finding.subject == "aten::add of 64x4096x1024"
    assert "30.0 ms of a step of 50.0 ms (60 %) at 80 % of the memory's bandwidth" in finding.summary
    assert "torch.compile of the layers of Net" in finding.advice
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(15.0)
    assert finding.gain.saved_lower_ms_per_step == 0


def test_a_compiled_model_is_left_alone(tmp_path: Path) -> None:
    assert RULE.check(run_of(tmp_path, **{"compile.state": "module"})) is None


def test_pointwise_kernels_that_are_slow_for_another_reason_are_not_bound_by_memory(tmp_path: Path) -> None:
    assert RULE.check(run_of(tmp_path, rows=[addition(0.59)])) is None
    assert RULE.check(run_of(tmp_path, rows=[addition(0.61)])) is not None


@pytest.mark.parametrize(("ms", "fires"), [(19.9, False), (20.1, True)])
def test_the_boundary_is_two_fifths_of_the_step(tmp_path: Path, ms: float, fires: bool) -> None:
    assert (RULE.check(run_of(tmp_path, ms)) is not None) is fires


def test_it_is_quiet_where_the_host_sets_the_pace(tmp_path: Path) -> None:
    assert RULE.check(Kernels().add(POINTWISE, 30).metrics(tmp_path, rows=[addition()])) is None


def test_it_is_not_evaluated_without_bytes_or_windows(tmp_path: Path) -> None:
    with pytest.raises(MissingSignal, match="bandwidth"):
        RULE.check(run_of(tmp_path, rows=[]))
    with pytest.raises(MissingSignal, match="no trace window"):
        RULE.check(without_windows(run_of(tmp_path)))


def test_unfused_attention_is_the_better_explanation(tmp_path: Path) -> None:
    scores = "8x12x1024x1024"
    operators = [
        operator("aten::_softmax", scores, 12.0),
        operator("aten::bmm", "96x1024x64, 96x64x1024", 3.0),
    ]
    kernels = Kernels().add(POINTWISE, 30).add(TENSOR_GEMM, 19)
    metrics = kernels.metrics(tmp_path, rows=[addition()], operators=operators)
    found = diagnose(metrics, (RULE, AttentionUnfused())).findings
    assert [one.rule for one in found] == ["attention-unfused", "memory-bound-kernels"]
    general = RULE.check(metrics)
    assert general is not None
    assert general.gain is not None
    gains = [one.gain.saved_ms_per_step for one in found if one.gain is not None]
    assert sum(gains) == pytest.approx(general.gain.saved_ms_per_step)
