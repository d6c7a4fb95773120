from __future__ import annotations

from typing import Any

import pytest
from gpu_builder import gpu
from memory_builder import BLIND, SIZELESS, allocator, on_gpu

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.memory.memory_headroom import MemoryHeadroom

RULE = MemoryHeadroom()
IDLE_SMS = gpu(values={"memory_used_bytes": None, "sm_active_ratio": 0.2})
BLIND_GPU = gpu(values={"memory_used_bytes": None, "sm_active_ratio": None})


def run(allocated_gib: float = 22.0, *, device: Any = IDLE_SMS, activations_gib: float = 10.0, **parts: Any) -> Metrics:
    memory = allocator(allocated_gib=allocated_gib, activations_gib=activations_gib)
    return on_gpu(memory, gpus=(device,), **parts)


def test_it_names_a_larger_batch_where_the_gpu_has_room_and_time() -> None:
    finding = RULE.check(run())
    assert finding is not None
    assert (finding.severity, finding.gain) == ("info", None)
    assert finding.summary == (
        "gpu0 needs 22 GiB of 140 GiB (16 %) at most, and 20 % of its multiprocessors have work."
    )
    assert finding.advice.startswith("Try DataLoader(batch_size=64) instead of 32")


@pytest.mark.parametrize(("idle", "fires"), [(0.29, False), (0.31, True)])
def test_a_window_tells_whether_the_gpu_has_time(idle: float, fires: bool) -> None:
    finding = RULE.check(run(device=gpu(values={"memory_used_bytes": None}), idle_ratio=idle))
    assert (finding is not None) is fires
    assert finding is None or "has no work in 31 % of the step" in finding.summary


def test_a_larger_batch_must_fit() -> None:
    finding = RULE.check(run(69.0, activations_gib=68.0))
    assert finding is not None
    assert finding.advice.startswith("Try DataLoader(batch_size=55) instead of 32")


def test_it_is_quiet_on_a_gpu_that_is_used() -> None:
    assert RULE.check(on_gpu(allocator(allocated_gib=22.0))) is None


def test_it_is_quiet_where_the_run_waits_for_batches() -> None:
    assert RULE.check(run(times_ms={"data_wait": 60.0})) is None


@pytest.mark.parametrize(("allocated_gib", "fires"), [(69.9, True), (70.1, False)])
def test_half_of_the_memory_decides(allocated_gib: float, fires: bool) -> None:
    assert (RULE.check(run(allocated_gib)) is not None) is fires


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        *BLIND,
        SIZELESS,
        (run(device=BLIND_GPU), "whether the GPU is underused was not measured"),
        (run(no_loader=True), "batch size is not known"),
    ],
)
def test_what_is_missing_is_said(metrics: Metrics, why: str) -> None:
    with pytest.raises(MissingSignal, match=why):
        RULE.check(metrics)
