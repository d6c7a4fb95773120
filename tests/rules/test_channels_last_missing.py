from __future__ import annotations

from pathlib import Path

import pytest
from device_builder import POINTWISE, Kernels, without_windows

from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.kernels.channels_last_missing import ChannelsLastMissing

RULE = ChannelsLastMissing()
TO_NHWC = "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(int)"
TO_NCHW = "void cudnn::ops::nhwcToNchwKernel<float, float, float, true, false, (cudnnKernelDataType_t)0>(int)"
CONVOLUTION = "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4"
POOLING = "void at::native::(anonymous namespace)::max_pool_backward_nchw<float, float>(float const*)"


def run_of(folder: Path, changes_ms: float = 6.0, **run: Value) -> Metrics:
    kernels = Kernels().add(CONVOLUTION, 20).add(POINTWISE, 28 - changes_ms)
    if changes_ms:
        kernels.add(TO_NHWC, changes_ms / 2).add(TO_NCHW, changes_ms / 2)
    return kernels.metrics(folder, run=run)


def test_it_tells_the_conversions_beside_the_convolutions(tmp_path: Path) -> None:
    run: dict[str, Value] = {"model.convolutions": 53, "model.channels_last_convolutions": 0}
    finding = RULE.check(run_of(tmp_path, **run))
    assert finding is not None
    assert finding.severity == "warning"
    assert "6.00 ms of a step of 50.0 ms (12 %), 30 % of the 20.0 ms" in finding.summary
    assert finding.advice.startswith("0 of 53 convolutions are in channels_last: call self.model.to(")
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(6.0)


def test_a_model_in_channels_last_has_inputs_that_are_not(tmp_path: Path) -> None:
    run: dict[str, Value] = {"model.convolutions": 53, "model.channels_last_convolutions": 53}
    finding = RULE.check(run_of(tmp_path, **run))
    assert finding is not None
    assert finding.advice.startswith("All 53 convolutions are in channels_last, but their inputs are not")


def test_kernels_that_compute_in_a_layout_are_no_conversions(tmp_path: Path) -> None:
    assert RULE.check(Kernels().add(CONVOLUTION, 24).add(POOLING, 24).metrics(tmp_path)) is None


def test_it_is_quiet_without_conversions_or_convolutions(tmp_path: Path) -> None:
    assert RULE.check(run_of(tmp_path, 0.0)) is None
    assert RULE.check(Kernels().add(POINTWISE, 48).metrics(tmp_path)) is None


def test_it_is_quiet_where_the_host_sets_the_pace(tmp_path: Path) -> None:
    assert RULE.check(Kernels().add(CONVOLUTION, 20).add(TO_NHWC, 6).metrics(tmp_path)) is None


@pytest.mark.parametrize(("changes_ms", "fires"), [(1.98, False), (2.02, True)])
def test_the_boundary_is_a_tenth_of_the_convolutions(tmp_path: Path, changes_ms: float, fires: bool) -> None:
    assert (RULE.check(run_of(tmp_path, changes_ms)) is not None) is fires


def test_it_is_not_evaluated_without_windows(tmp_path: Path) -> None:
    with pytest.raises(MissingSignal, match="no trace window"):
        RULE.check(without_windows(run_of(tmp_path)))
