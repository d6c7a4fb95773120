from __future__ import annotations

import pytest
from gpu_builder import gpu
from memory_builder import BLIND, GIB, SIZELESS, allocator, on_gpu

from lightning_gpuprof.model.memory import DeviceMemory
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.memory.fragmentation import Fragmentation

RULE = Fragmentation()


def pieces(ratio: float, *, reserved_gib: float = 130.0, retries: int = 0) -> DeviceMemory:
    return allocator(
        allocated_gib=95.0,
        reserved_gib=reserved_gib,
        fragmentation_ratio=ratio,
        inactive_split_at_peak_bytes=ratio * reserved_gib * GIB,
        retries_steady_count=retries,
    )


def test_it_tells_of_pieces_where_memory_is_short() -> None:
    finding = RULE.check(on_gpu(pieces(0.25)))
    assert finding is not None
    assert (finding.severity, finding.gain) == ("info", None)
    assert finding.summary == (
        "32.5 GiB of 130 GiB reserved (25 %) lay in free pieces at the fullest reading of gpu0, which was reserved to "
        "93 %."
    )
    assert finding.advice == "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before the start."


def test_it_is_a_warning_once_allocations_had_to_be_tried_again() -> None:
    finding = RULE.check(on_gpu(pieces(0.25, retries=3)))
    assert finding is not None
    assert finding.severity == "warning"


def test_it_is_quiet_on_a_healthy_run() -> None:
    assert RULE.check(on_gpu()) is None


def test_pieces_do_not_matter_while_there_is_room() -> None:
    assert RULE.check(on_gpu(pieces(0.6, reserved_gib=100.0))) is None


def test_a_full_gpu_without_pieces_is_another_cause() -> None:
    assert RULE.check(on_gpu(allocator(allocated_gib=136.0))) is None


def test_what_others_hold_makes_memory_short() -> None:
    used = gpu(values={"memory_used_bytes": 120.0 * GIB})
    assert RULE.check(on_gpu(pieces(0.25, reserved_gib=100.0), gpus=(used,))) is not None


@pytest.mark.parametrize(("ratio", "fires"), [(0.20, False), (0.21, True)])
def test_a_fifth_of_the_reserved_memory_decides(ratio: float, fires: bool) -> None:
    assert (RULE.check(on_gpu(pieces(ratio))) is not None) is fires


@pytest.mark.parametrize(
    ("metrics", "why"),
    [*BLIND, SIZELESS, (on_gpu(allocator(fragmentation_ratio=None)), "free pieces .* were not measured")],
)
def test_what_is_missing_is_said(metrics: Metrics, why: str) -> None:
    with pytest.raises(MissingSignal, match=why):
        RULE.check(metrics)
