from __future__ import annotations

from pathlib import Path

import pytest
from device_builder import POINTWISE, TENSOR_GEMM, Kernels, without_windows

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.kernels.low_occupancy import LowOccupancy

RULE = LowOccupancy()


def run_of(folder: Path, blocks: int = 27, *, ms: float = 30.0) -> Metrics:
    return Kernels().add(TENSOR_GEMM, ms, blocks=blocks).add(POINTWISE, 49 - ms).metrics(folder)


def test_it_names_the_kernel_and_a_batch_to_try(tmp_path: Path) -> None:
    finding = RULE.check(run_of(tmp_path))  # 27 blocks on 108 multiprocessors
    assert finding is not None
    assert finding.severity == "info"  # an estimate from geometry, not measured
    assert "take 30.0 ms of a step of 50.0 ms and give 25 % of the multiprocessors a block" in finding.summary
    assert finding.advice.startswith("batch_size is 32: try 128, if memory allows")
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(22.5)
    assert finding.gain.saved_lower_ms_per_step == 0


def test_one_block_for_each_multiprocessor_is_quiet(tmp_path: Path) -> None:
    assert RULE.check(run_of(tmp_path, 108)) is None


def test_communication_needs_few_blocks(tmp_path: Path) -> None:
    nccl = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    assert RULE.check(Kernels().add(nccl, 30, blocks=24).add(POINTWISE, 19).metrics(tmp_path)) is None


def test_a_device_that_waits_for_the_host_is_idle_for_another_reason(tmp_path: Path) -> None:
    assert RULE.check(Kernels().add(TENSOR_GEMM, 30, blocks=27).metrics(tmp_path)) is None


@pytest.mark.parametrize(("ms", "fires"), [(6.6, False), (6.8, True)])
def test_the_boundary_is_a_tenth_of_the_step(tmp_path: Path, ms: float, fires: bool) -> None:
    assert (RULE.check(run_of(tmp_path, ms=ms)) is not None) is fires


def test_it_is_not_evaluated_without_geometry_or_windows(tmp_path: Path) -> None:
    with pytest.raises(MissingSignal, match="blocks"):
        RULE.check(Kernels({"id": 0}).add(TENSOR_GEMM, 48).metrics(tmp_path))
    with pytest.raises(MissingSignal, match="no trace window"):
        RULE.check(without_windows(run_of(tmp_path)))
