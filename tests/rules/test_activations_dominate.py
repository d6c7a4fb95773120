from __future__ import annotations

import pytest
from memory_builder import BLIND, SIZELESS, allocator, on_gpu

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.memory.activations_dominate import ActivationsDominate

RULE = ActivationsDominate()


def test_it_tells_of_activations_where_memory_is_short() -> None:
    finding = RULE.check(on_gpu(allocator(allocated_gib=120.0, activations_gib=96.0)))
    assert finding is not None
    assert (finding.severity, finding.gain) == ("info", None)
    assert finding.summary == "Activations hold 96 GiB of the peak of 120 GiB (80 %) on gpu0, which is full to 86 %."
    assert "DataLoader(batch_size=16) with Trainer(accumulate_grad_batches=2)" in finding.advice


def test_a_batch_that_accumulates_already_is_split_further() -> None:
    metrics = on_gpu(allocator(allocated_gib=120.0, activations_gib=96.0), run={"trainer.accumulate_grad_batches": 4})
    finding = RULE.check(metrics)
    assert finding is not None
    assert "Trainer(accumulate_grad_batches=8)" in finding.advice


def test_it_is_quiet_on_a_healthy_run() -> None:
    assert RULE.check(on_gpu()) is None


def test_with_room_the_share_does_not_matter() -> None:
    assert RULE.check(on_gpu(allocator(allocated_gib=100.0, activations_gib=90.0))) is None


def test_a_full_gpu_with_a_large_model_is_another_cause() -> None:
    assert RULE.check(on_gpu(allocator(allocated_gib=136.0, activations_gib=10.0))) is None


@pytest.mark.parametrize(("held_gib", "fires"), [(60.0, False), (60.2, True)])
def test_half_of_the_peak_decides(held_gib: float, fires: bool) -> None:
    assert (RULE.check(on_gpu(allocator(allocated_gib=120.0, activations_gib=held_gib))) is not None) is fires


@pytest.mark.parametrize(
    ("metrics", "why"), [*BLIND, SIZELESS, (on_gpu(allocator(activations_gib=None)), "what forward keeps")]
)
def test_what_is_missing_is_said(metrics: Metrics, why: str) -> None:
    with pytest.raises(MissingSignal, match=why):
        RULE.check(metrics)
