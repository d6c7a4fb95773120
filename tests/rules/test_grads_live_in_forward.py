from __future__ import annotations

from typing import Any

import pytest
from memory_builder import GIB, allocator, held, on_gpu

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.memory.grads_live_in_forward import GradsLiveInForward

RULE = GradsLiveInForward()


def run(run_facts: dict[str, Any] | None = None, gradients: int | None = 16 * GIB, **changes: Any) -> Metrics:
    told = {"allocated_gib": 110.0, "peak_phase": "forward", **changes}
    return on_gpu(allocator(**told), model=(held(gradients_bytes=gradients),), run=run_facts)


@pytest.mark.parametrize(
    "look_alike",
    [
        {"gradients_live_in_forward": False},
        {"run_facts": {"model.automatic_optimization": False}},
        {"run_facts": {"trainer.gradient_as_bucket_view": True}},
        {"allocated_gib": 97.0},
    ],
    ids=str,
)
def test_it_is_quiet_where_clearing_earlier_would_not_help(look_alike: dict[str, Any]) -> None:
    assert RULE.check(run(**look_alike)) is None


@pytest.mark.parametrize(("gradients_gib", "fires"), [(10, False), (12, True)])
def test_a_tenth_of_the_peak_decides(gradients_gib: int, fires: bool) -> None:
    assert (RULE.check(run(gradients=gradients_gib * GIB)) is not None) is fires


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        (run(gradients_live_in_forward=None), "whether forward holds"),
        (run(peak_phase=None), "phase of the peak"),
    ],
)
def test_what_is_missing_is_said(metrics: Metrics, why: str) -> None:
    with pytest.raises(MissingSignal, match=why):
        RULE.check(metrics)
