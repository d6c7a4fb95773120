from __future__ import annotations

import pytest
from gpu_builder import gpu
from memory_builder import BLIND, GIB, SIZELESS, allocator, on_gpu

from lightning_gpuprof.model.memory import DeviceMemory
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.memory.fragmentation import Fragmentation

RULE = Fragmentation()


def pieces(ratio: float, *, reserved_gib: float = 130.0) -> DeviceMemory:
    return allocator(
        allocated_gib=95.0,
        reserved_gib=reserved_gib,
        fragmentation_ratio=ratio,
        inactive_split_at_peak_bytes=ratio * reserved_gib * GIB,
    )


def test_what_others_hold_makes_memory_short() -> None:
    used = gpu(values={"memory_used_bytes": 120.0 * GIB})
    assert RULE.check(on_gpu(pieces(0.25, reserved_gib=100.0), gpus=(used,))) is not None


@pytest.mark.parametrize(("ratio", "fires"), [(0.20, False), (0.21, True)])
def test_a_fifth_of_the_reserved_memory_decides(ratio: float, fires: bool) -> None:
    assert (RULE.check(on_gpu(pieces(ratio))) is not None) is fires


@pytest.mark.parametrize(
    ("metrics", "why"),
    [*BLIND, SIZELESS],
)
def test_what_is_missing_is_said(metrics: Metrics, why: str) -> None:
    with pytest.raises(MissingSignal, match=why):
        RULE.check(metrics)
