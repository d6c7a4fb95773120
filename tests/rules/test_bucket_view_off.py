from __future__ import annotations

import pytest
from metrics_builder import build

from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.ranks.bucket_view_off import BucketViewOff

RULE = BucketViewOff()
GIB = 2**30


def ddp(**changed: Value) -> Metrics:
    settings: dict[str, Value] = {
        "device.type": "cuda",
        "device.memory_bytes": 40 * GIB,
        "trainer.world_size": 4,
        "trainer.strategy": "DDPStrategy",
        "trainer.gradient_as_bucket_view": False,
        "model.parameter_bytes": 5 * GIB,
        "model.parameters": 1000,
        "model.trainable_parameters": 1000,
        **changed,
    }
    return build(run=settings)


def test_it_is_a_hint_with_the_memory_that_it_frees() -> None:
    finding = RULE.check(ddp())
    assert finding is not None
    assert finding.severity == "info"
    assert finding.gain is None
    assert "5,120 MiB of gradients twice, 12 % of the device's memory" in finding.summary


@pytest.mark.parametrize(
    "changed",
    [
        {"trainer.gradient_as_bucket_view": True},
        {"trainer.world_size": 1},
        {"trainer.strategy": "FSDPStrategy"},
        {"device.type": "cpu"},
        {"model.trainable_parameters": 10},
    ],
)
def test_it_is_quiet_otherwise(changed: dict[str, Value]) -> None:
    assert RULE.check(ddp(**changed)) is None


@pytest.mark.parametrize(("trained", "fires"), [(399, False), (401, True)])
def test_the_boundary_is_a_twentieth_of_the_memory(trained: int, fires: bool) -> None:
    assert (RULE.check(ddp(**{"model.trainable_parameters": trained})) is not None) is fires


def test_it_is_not_evaluated_without_sizes() -> None:
    with pytest.raises(MissingSignal, match="memory"):
        RULE.check(ddp(**{"device.memory_bytes": None}))
    with pytest.raises(MissingSignal, match="strategy"):
        RULE.check(ddp(**{"trainer.strategy": None}))
