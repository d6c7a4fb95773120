"""Measured ceilings: the same program on the CPU, with small sizes, and on a GPU."""

import pytest
import torch

from lightning_gpuprof.capture.device_ceilings import measure_ceilings
from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.model.device_peaks import peaks_of


def test_rates_of_a_device_are_those_of_its_own_clock() -> None:
    before = torch.backends.cuda.matmul.allow_tf32
    found = measure_ceilings("cpu", side=256, copied_bytes=1 << 22, repeats=3)
    assert found.device == "cpu"
    assert set(found.flops_per_s) == {"fp32", "bf16", "fp16"}  # no TF32 on a CPU
    assert all(1e6 < rate < 1e15 for rate in found.flops_per_s.values())
    assert 1e6 < found.bytes_per_s < 1e13
    assert torch.backends.cuda.matmul.allow_tf32 == before


def test_a_device_that_is_not_here_is_named() -> None:
    with pytest.raises(ArgumentError, match=r"device must be a device that torch finds here, got 'cuda:77'"):
        measure_ceilings("cuda:77")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_what_a_gpu_reaches_is_below_its_data_sheet_and_not_far_below() -> None:
    found = measure_ceilings()
    peaks = peaks_of(found.device)
    if peaks is None:
        pytest.skip(f"no data sheet of {found.device}")
    for dtype in ("bf16", "fp16"):
        assert 0.4 < found.flops_per_s[dtype] / peaks.flops_per_s[dtype] < 1.05
    assert 0.5 < found.bytes_per_s / peaks.bytes_per_s < 1.05
