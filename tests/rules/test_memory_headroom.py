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


def run(allocated_gib: float = 22.0, *, device: Any = IDLE_SMS, **parts: Any) -> Metrics:
    memory = allocator(allocated_gib=allocated_gib, activations_gib=10.0)
    return on_gpu(memory, gpus=(device,), **parts)


@pytest.mark.parametrize(("idle", "fires"), [(0.29, False), (0.31, True)])
def test_a_window_tells_whether_the_gpu_has_time(idle: float, fires: bool) -> None:
    finding = RULE.check(run(device=gpu(values={"memory_used_bytes": None}), idle_ratio=idle))
    assert (finding is not None) is fires
    assert finding is None or "idle for 31 % of the step" in finding.summary


@pytest.mark.parametrize(("allocated_gib", "fires"), [(69.9, True), (70.1, False)])
def test_half_of_the_memory_decides(allocated_gib: float, fires: bool) -> None:
    assert (RULE.check(run(allocated_gib)) is not None) is fires


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        *BLIND,
        SIZELESS,
        (run(device=BLIND_GPU), "whether the GPU is underused was not measured"),
    ],
)
def test_what_is_missing_is_said(metrics: Metrics, why: str) -> None:
    with pytest.raises(MissingSignal, match=why):
        RULE.check(metrics)
