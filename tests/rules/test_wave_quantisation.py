from __future__ import annotations

from pathlib import Path

import pytest
from device_builder import POINTWISE, TENSOR_GEMM, Kernels, without_windows

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.kernels.wave_quantisation import WaveQuantisation

RULE = WaveQuantisation()
WAVE = 108 * 8
"""Blocks of 256 threads and 32 registers each that an A100 holds at a time."""


def run_of(folder: Path, waves: float, *, ms: float = 30.0) -> Metrics:
    kernels = Kernels().add(TENSOR_GEMM, ms, blocks=round(waves * WAVE)).add(POINTWISE, 49 - ms)
    return kernels.metrics(folder)


def test_it_names_the_kernel_its_waves_and_batches_to_try(tmp_path: Path) -> None:
    finding = RULE.check(run_of(tmp_path, 1.2))
    assert finding is not None
    assert finding.severity == "info"  # an estimate from geometry, not measured
    assert "in 1.2 waves of blocks; the last leaves 40 % of their room empty" in finding.summary
    assert finding.advice.startswith("batch_size is 32: try 26 or 53")
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(12.0, rel=0.01)
    assert finding.gain.saved_lower_ms_per_step == 0


@pytest.mark.parametrize("waves", [0.9, 1.0, 2.0, 9.1])
def test_whole_many_or_less_than_one_wave_are_quiet(tmp_path: Path, waves: float) -> None:
    assert RULE.check(run_of(tmp_path, waves)) is None


@pytest.mark.parametrize(("waves", "fires"), [(1.49, True), (1.51, False)])
def test_the_boundary_is_a_quarter_of_the_room(tmp_path: Path, waves: float, fires: bool) -> None:
    assert (RULE.check(run_of(tmp_path, waves)) is not None) is fires


def test_pointwise_kernels_do_not_count(tmp_path: Path) -> None:
    assert RULE.check(Kernels().add(POINTWISE, 48, blocks=round(1.2 * WAVE)).metrics(tmp_path)) is None


def test_it_is_quiet_where_the_host_sets_the_pace(tmp_path: Path) -> None:
    assert RULE.check(Kernels().add(TENSOR_GEMM, 30, blocks=round(1.2 * WAVE)).metrics(tmp_path)) is None


def test_it_is_not_evaluated_without_waves_or_windows(tmp_path: Path) -> None:
    with pytest.raises(MissingSignal, match="blocks"):
        RULE.check(Kernels({"id": 0}).add(TENSOR_GEMM, 48).metrics(tmp_path))
    with pytest.raises(MissingSignal, match="no trace window"):
        RULE.check(without_windows(run_of(tmp_path, 1.2)))
