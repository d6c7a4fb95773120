from __future__ import annotations

import pytest
from memory_builder import BLIND, SIZELESS, allocator, on_gpu

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.memory.activations_dominate import ActivationsDominate

RULE = ActivationsDominate()


def test_a_batch_that_accumulates_already_is_split_further() -> None:
    metrics = on_gpu(allocator(allocated_gib=120.0, activations_gib=96.0), run={"trainer.accumulate_grad_batches": 4})
    finding = RULE.check(metrics)
    assert finding is not None
    assert "accumulate_grad_batches=8" in finding.advice


@pytest.mark.parametrize(("held_gib", "fires"), [(60.0, False), (60.2, True)])
def test_half_of_the_peak_decides(held_gib: float, fires: bool) -> None:
    assert (RULE.check(on_gpu(allocator(allocated_gib=120.0, activations_gib=held_gib))) is not None) is fires


@pytest.mark.parametrize(("metrics", "why"), [*BLIND, SIZELESS])
def test_what_is_missing_is_said(metrics: Metrics, why: str) -> None:
    with pytest.raises(MissingSignal, match=why):
        RULE.check(metrics)
