from __future__ import annotations

from pathlib import Path

import pytest
from device_builder import POINTWISE, TENSOR_GEMM, Kernels, roofline_row, without_windows

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.trace.roofline import RooflineRow
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.kernels.tc_misaligned import TcMisaligned

RULE = TcMisaligned()
FITS = roofline_row("aten::addmm", "3072, 8192x768, 768x3072", 10.0, ceiling_ratio=0.6)


def vocabulary(ms: float = 12.0, *, size: int = 50257, ceiling_ratio: float = 0.2, dtype: str = "bf16") -> RooflineRow:
    return roofline_row("aten::mm", f"8192x768, 768x{size}", ms, ceiling_ratio=ceiling_ratio, dtype=dtype)


def run_of(folder: Path, *rows: RooflineRow) -> Metrics:
    return Kernels().add(TENSOR_GEMM, 30).add(POINTWISE, 18).metrics(folder, rows=rows)


def test_it_names_the_size_and_what_to_pad_it_to(tmp_path: Path) -> None:
    finding = RULE.check(run_of(tmp_path, vocabulary(), FITS))
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.advice.startswith("Pad 50257 to 50304, a multiple of 64")
    assert "reach 20 % of the roofline, products that fit 60 %" in finding.summary
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(12 * (1 - 0.2 / 0.6))


def test_products_that_share_the_size_count_too(tmp_path: Path) -> None:
    of_input = roofline_row("aten::mm", "8192x50257, 50257x768", 8.0, ceiling_ratio=0.3)
    finding = RULE.check(run_of(tmp_path, vocabulary(), of_input, FITS))
    assert finding is not None
    assert "20.0 ms of a step" in finding.summary


def test_it_is_quiet_where_all_sizes_fit(tmp_path: Path) -> None:
    assert RULE.check(run_of(tmp_path, vocabulary(size=50304), FITS)) is None


def test_a_number_of_tokens_may_be_anything(tmp_path: Path) -> None:
    tokens = roofline_row("aten::addmm", "768, 5185x768, 768x768", 20.0, ceiling_ratio=0.2)
    assert RULE.check(run_of(tmp_path, tokens, FITS)) is None


def test_a_library_that_copes_is_left_alone(tmp_path: Path) -> None:
    assert RULE.check(run_of(tmp_path, vocabulary(ceiling_ratio=0.5), FITS)) is None


def test_fp32_has_no_such_rows(tmp_path: Path) -> None:
    assert RULE.check(run_of(tmp_path, vocabulary(dtype="fp32"), FITS)) is None


def test_tf32_wants_multiples_of_four(tmp_path: Path) -> None:
    fits = roofline_row("aten::mm", "8192x768, 768x3072", 10.0, ceiling_ratio=0.6, dtype="tf32")
    assert RULE.check(run_of(tmp_path, vocabulary(size=50260, dtype="tf32"), fits)) is None
    assert RULE.check(run_of(tmp_path, vocabulary(dtype="tf32"), fits)) is not None


@pytest.mark.parametrize(("ms", "fires"), [(4.99, False), (5.01, True)])
def test_the_boundary_is_a_tenth_of_the_step(tmp_path: Path, ms: float, fires: bool) -> None:
    assert (RULE.check(run_of(tmp_path, vocabulary(ms), FITS)) is not None) is fires


def test_it_is_not_evaluated_without_products_to_compare_with(tmp_path: Path) -> None:
    with pytest.raises(MissingSignal, match="compare"):
        RULE.check(run_of(tmp_path, vocabulary()))
    with pytest.raises(MissingSignal, match="record_shapes"):
        RULE.check(run_of(tmp_path))
    with pytest.raises(MissingSignal, match="no trace window"):
        RULE.check(without_windows(run_of(tmp_path, vocabulary(), FITS)))
