from __future__ import annotations

import pytest
from metrics_builder import build

from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.ranks.wrong_backend import WrongBackend

RULE = WrongBackend()


def of_ranks(**changed: Value) -> Metrics:
    settings: dict[str, Value] = {
        "device.type": "cuda",
        "trainer.world_size": 4,
        "trainer.strategy": "DDPStrategy",
        "trainer.backend": "gloo",
        **changed,
    }
    return build(run=settings)


def test_gloo_between_gpus_is_a_hint() -> None:
    finding = RULE.check(of_ranks())
    assert finding is not None
    assert finding.severity == "info"
    assert finding.gain is None
    assert 'DDPStrategy(process_group_backend="nccl")' in finding.advice


@pytest.mark.parametrize(
    "changed",
    [
        {"trainer.backend": "nccl"},
        {"trainer.backend": "cpu:gloo,cuda:nccl"},
        {"device.type": "cpu"},
        {"machine.system": "Windows AMD64"},
        {"trainer.world_size": 1, "trainer.backend": None},
    ],
)
def test_it_is_quiet_otherwise(changed: dict[str, Value]) -> None:
    assert RULE.check(of_ranks(**changed)) is None


def test_it_is_not_evaluated_without_the_backend() -> None:
    with pytest.raises(MissingSignal, match="backend"):
        RULE.check(of_ranks(**{"trainer.backend": None}))
