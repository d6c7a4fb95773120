from __future__ import annotations

import pytest
from metrics_builder import build

from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.ranks.find_unused_params import FindUnusedParams

RULE = FindUnusedParams()


def ddp(**changed: Value) -> Metrics:
    settings: dict[str, Value] = {
        "trainer.world_size": 2,
        "trainer.strategy": "DDPStrategy",
        "trainer.find_unused_parameters": True,
        "model.parameter_tensors": 12,
        **changed,
    }
    return build(run=settings)


def test_it_is_a_hint_without_a_gain() -> None:
    finding = RULE.check(ddp())
    assert finding is not None
    assert finding.severity == "info"
    assert finding.gain is None
    assert finding.advice.startswith("find_unused_parameters is True: Net has 12 parameter tensors; set Trainer(")


@pytest.mark.parametrize(
    "changed",
    [{"trainer.find_unused_parameters": False}, {"trainer.world_size": 1}, {"trainer.static_graph": True}],
)
def test_it_is_quiet_otherwise(changed: dict[str, Value]) -> None:
    assert RULE.check(ddp(**changed)) is None


def test_other_strategies_do_not_have_the_setting() -> None:
    assert RULE.check(ddp(**{"trainer.strategy": "FSDPStrategy", "trainer.find_unused_parameters": None})) is None


def test_it_is_not_evaluated_without_the_strategy() -> None:
    with pytest.raises(MissingSignal, match="strategy"):
        RULE.check(build(run={"trainer.world_size": 2}))
