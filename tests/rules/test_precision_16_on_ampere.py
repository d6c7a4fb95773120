from __future__ import annotations

import pytest
from metrics_builder import build

from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.kernels.precision_16_on_ampere import Precision16OnAmpere

RULE = Precision16OnAmpere()


def on_gpu(precision: str | None, capability: Value = "9.0", **more: Value) -> Metrics:
    run = {"device.type": "cuda", "trainer.precision": precision, "device.capability": capability, **more}
    return build(run=run)


def test_float16_on_a_device_with_bfloat16_is_pointed_out() -> None:
    finding = RULE.check(on_gpu("16-mixed"))
    assert finding is not None
    assert finding.severity == "info"
    assert finding.gain is None
    assert 'precision="bf16-mixed"' in finding.advice


@pytest.mark.parametrize(("capability", "fires"), [("7.5", False), ("8.0", True), ("12.0", True)])
def test_the_compute_capability_decides(capability: str, fires: bool) -> None:
    assert (RULE.check(on_gpu("16-mixed", capability)) is not None) is fires


@pytest.mark.parametrize("precision", ["bf16-mixed", "32-true", "16-true", "bf16-true"])
def test_other_precisions_have_no_scaler(precision: str) -> None:
    assert RULE.check(on_gpu(precision)) is None


def test_a_cpu_is_not_meant() -> None:
    assert RULE.check(build(run={"trainer.precision": "16-mixed"})) is None


def test_what_is_not_known_is_not_judged() -> None:
    with pytest.raises(MissingSignal, match="precision"):
        RULE.check(on_gpu(None))
    with pytest.raises(MissingSignal, match="capability"):
        RULE.check(on_gpu("16-mixed", None))
