from __future__ import annotations

import msgspec
import pytest
from memory_builder import BLIND, GIB, SIZELESS, allocator, held, on_gpu

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.memory.optimizer_state_dominates import OptimizerStateDominates

RULE = OptimizerStateDominates()
FULL = allocator(allocated_gib=120.0)


def test_several_ranks_can_share_it() -> None:
    model = (held(optimizer_state_bytes=60 * GIB),)
    finding = RULE.check(on_gpu(FULL, model=model, run={"trainer.world_size": 8}))
    assert finding is not None
    assert "shard over the 8 ranks" in finding.advice


@pytest.mark.parametrize(("state_gib", "fires"), [(48, False), (49, True)])
def test_two_fifths_of_the_peak_decide(state_gib: int, fires: bool) -> None:
    finding = RULE.check(on_gpu(FULL, model=(held(optimizer_state_bytes=state_gib * GIB),)))
    assert (finding is not None) is fires


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        *BLIND,
        SIZELESS,
        (on_gpu(model=(held(), msgspec.structs.replace(held(), device="cuda:1"))), "on several GPUs"),
    ],
)
def test_what_is_missing_is_said(metrics: Metrics, why: str) -> None:
    with pytest.raises(MissingSignal, match=why):
        RULE.check(metrics)
