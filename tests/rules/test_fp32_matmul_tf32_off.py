from __future__ import annotations

from pathlib import Path

import pytest
from device_builder import POINTWISE, SCUDNN, SGEMM, TENSOR_GEMM, V100, Kernels, without_windows

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.kernels.fp32_matmul_tf32_off import Fp32MatmulTf32Off
from lightning_gpuprof.rules.kernels.tc_unused import TcUnused

RULE = Fp32MatmulTf32Off()
DEFAULTS = {"flags.float32_matmul_precision": "highest", "flags.cudnn_tf32": True}


def in_fp32(folder: Path, **run: object) -> Metrics:
    kernels = Kernels().add(SGEMM, 20).add(SCUDNN, 10).add(POINTWISE, 18)
    return kernels.metrics(folder, run={**DEFAULTS, **run})  # type: ignore[dict-item]


def test_with_torch_s_defaults_the_matrix_products_are_it(tmp_path: Path) -> None:
    finding = RULE.check(in_fp32(tmp_path))
    assert finding is not None
    assert finding.subject == "Matrix products"
    assert 'torch.set_float32_matmul_precision("high")' in finding.advice
    assert "20.0 ms of a step of 50.0 ms" in finding.summary
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(20 * (1 - 19.5 / 156), rel=1e-3)


def test_convolutions_have_their_own_switch(tmp_path: Path) -> None:
    run = {"flags.float32_matmul_precision": "high", "flags.cudnn_tf32": False}
    finding = RULE.check(in_fp32(tmp_path, **run))
    assert finding is not None
    assert finding.subject == "Convolutions"
    assert "10.0 ms" in finding.summary
    assert "cudnn.allow_tf32 = True" in finding.advice


def test_both_switches_off_are_told_together(tmp_path: Path) -> None:
    finding = RULE.check(in_fp32(tmp_path, **{"flags.cudnn_tf32": False}))
    assert finding is not None
    assert "30.0 ms" in finding.summary


def test_the_environment_wins_over_the_settings(tmp_path: Path) -> None:
    run = {"flags.float32_matmul_precision": "high", "env.NVIDIA_TF32_OVERRIDE": "0"}
    finding = RULE.check(in_fp32(tmp_path, **run))
    assert finding is not None
    assert "unset it" in finding.advice


def test_it_is_quiet_with_the_switch_on(tmp_path: Path) -> None:
    assert RULE.check(in_fp32(tmp_path, **{"flags.float32_matmul_precision": "high"})) is None


def test_it_is_quiet_where_products_are_in_half_precision(tmp_path: Path) -> None:
    assert RULE.check(Kernels().add(TENSOR_GEMM, 30).add(POINTWISE, 18).metrics(tmp_path, run=DEFAULTS)) is None


def test_it_is_quiet_before_ampere(tmp_path: Path) -> None:
    kernels = Kernels(V100).add("volta_sgemm_128x64_nn", 48)
    assert RULE.check(kernels.metrics(tmp_path, run={**DEFAULTS, "device.capability": "7.0"})) is None


def test_it_is_quiet_where_tf32_is_not_faster(tmp_path: Path) -> None:
    a10g = {"id": 0, "name": "NVIDIA A10G", "computeMajor": 8, "computeMinor": 6, "warpSize": 32, "numSms": 80}
    assert RULE.check(Kernels(a10g).add(SGEMM, 48).metrics(tmp_path, run=DEFAULTS)) is None


@pytest.mark.parametrize(("ms", "fires"), [(2.49, False), (2.51, True)])
def test_the_boundary_is_a_twentieth_of_the_step(tmp_path: Path, ms: float, fires: bool) -> None:
    metrics = Kernels().add(SGEMM, ms).add(POINTWISE, 49 - ms).metrics(tmp_path, run=DEFAULTS)
    assert (RULE.check(metrics) is not None) is fires


def test_it_is_not_evaluated_without_its_signals(tmp_path: Path) -> None:
    with pytest.raises(MissingSignal, match="settings of TF32"):
        RULE.check(Kernels().add(SGEMM, 48).metrics(tmp_path))
    with pytest.raises(MissingSignal, match="capability"):
        RULE.check(in_fp32(tmp_path, **{"device.capability": None}))
    with pytest.raises(MissingSignal, match="no trace window"):
        RULE.check(without_windows(in_fp32(tmp_path)))


def test_it_carries_the_gain_where_both_rules_fire(tmp_path: Path) -> None:
    found = diagnose(in_fp32(tmp_path), (TcUnused(), RULE)).findings
    assert [one.rule for one in found] == ["fp32-matmul-tf32-off", "tc-unused"]
    general = TcUnused().check(in_fp32(tmp_path))
    assert general is not None
    assert general.gain is not None
    gains = [one.gain.saved_ms_per_step for one in found if one.gain is not None]
    assert sum(gains) == pytest.approx(general.gain.saved_ms_per_step)
