from __future__ import annotations

import msgspec
import pytest
from memory_builder import BLIND, GIB, SIZELESS, allocator, held, on_gpu

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.memory.optimizer_state_dominates import OptimizerStateDominates

RULE = OptimizerStateDominates()
FULL = allocator(allocated_gib=120.0)


def test_it_tells_of_states_where_memory_is_short() -> None:
    finding = RULE.check(on_gpu(FULL, model=(held(optimizer_state_bytes=60 * GIB),)))
    assert finding is not None
    assert (finding.severity, finding.subject) == ("info", "AdamW")
    assert finding.summary == (
        "The state of AdamW holds 60 GiB of the peak of 120 GiB (50 %) on gpu0, which is full to 86 %."
    )


def test_several_ranks_can_share_it() -> None:
    model = (held(optimizer_state_bytes=60 * GIB),)
    finding = RULE.check(on_gpu(FULL, model=model, run={"trainer.world_size": 8}))
    assert finding is not None
    assert "shard over the 8 ranks" in finding.advice


def test_what_is_sharded_already_is_not_to_be_sharded() -> None:
    model = (held(optimizer_state_bytes=60 * GIB),)
    finding = RULE.check(on_gpu(FULL, model=model, run={"trainer.strategy": "FSDPStrategy", "trainer.world_size": 8}))
    assert finding is not None
    assert finding.advice.endswith("the strategy shards it already.")


def test_it_is_quiet_on_a_healthy_run() -> None:
    assert RULE.check(on_gpu()) is None


def test_with_room_the_share_does_not_matter() -> None:
    assert RULE.check(on_gpu(model=(held(optimizer_state_bytes=50 * GIB),))) is None


def test_activations_are_another_cause() -> None:
    assert RULE.check(on_gpu(allocator(allocated_gib=120.0, activations_gib=96.0))) is None


@pytest.mark.parametrize(("state_gib", "fires"), [(48, False), (49, True)])
def test_two_fifths_of_the_peak_decide(state_gib: int, fires: bool) -> None:
    finding = RULE.check(on_gpu(FULL, model=(held(optimizer_state_bytes=state_gib * GIB),)))
    assert (finding is not None) is fires


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        *BLIND,
        SIZELESS,
        (on_gpu(model=()), "was not counted"),
        (on_gpu(model=(held(), msgspec.structs.replace(held(), device="cuda:1"))), "on several GPUs"),
    ],
)
def test_what_is_missing_is_said(metrics: Metrics, why: str) -> None:
    with pytest.raises(MissingSignal, match=why):
        RULE.check(metrics)
