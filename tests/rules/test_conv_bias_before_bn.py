from __future__ import annotations

import pytest
from metrics_builder import build

from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.kernels.conv_bias_before_bn import ConvBiasBeforeBn

RULE = ConvBiasBeforeBn()


def test_biases_without_effect_are_counted() -> None:
    finding = RULE.check(build(run={"model.conv_bias_before_norm": 16, "model.convolutions": 20}))
    assert finding is not None
    assert finding.severity == "info"
    assert finding.gain is None
    assert finding.subject == "Net"
    assert finding.summary.startswith("16 convolutions of 20 right before a BatchNorm")


def test_it_is_quiet_without_them() -> None:
    assert RULE.check(build(run={"model.conv_bias_before_norm": 0, "model.convolutions": 20})) is None


def test_unknown_layers_are_not_judged() -> None:
    with pytest.raises(MissingSignal, match="layers"):
        RULE.check(build())
