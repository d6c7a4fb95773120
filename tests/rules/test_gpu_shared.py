from __future__ import annotations

import pytest
from findings_builder import fired
from gpu_builder import gpu, on
from memory_builder import allocator, memory
from metrics_builder import replace

from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.hardware.gpu_shared import GpuShared

RULE = GpuShared()
GIB = 2.0**30
HIDDEN = {"foreign_processes_count": None, "memory_others_bytes": None, "memory_own_bytes": None}


@pytest.mark.parametrize(("others", "fires"), [(0.99 * GIB, False), (1.0 * GIB, True)])
def test_small_contexts_are_no_finding(others: float, fires: bool) -> None:
    finding = RULE.check(on(gpu(values={"foreign_processes_count": 2.0, "memory_others_bytes": others})))
    assert (finding is not None) is fires


def test_in_a_container_memory_that_torch_has_not_reserved_is_information() -> None:
    shared = gpu(values={**HIDDEN, "memory_used_bytes": 90 * GIB})
    finding = fired(RULE, replace(on(shared), memory=memory(allocator(reserved_gib=62))))
    assert finding.severity == "info"
    assert "torch reserved only 62 GiB" in finding.summary
    alone = gpu(values={**HIDDEN, "memory_used_bytes": 65 * GIB})
    assert RULE.check(replace(on(alone), memory=memory(allocator(reserved_gib=62)))) is None


@pytest.mark.parametrize(
    ("device", "why"),
    [(gpu(values=HIDDEN), "process ids are not visible"), (gpu(samples=19), "19 samples are too few")],
)
def test_what_is_missing_is_said(device: object, why: str) -> None:
    with pytest.raises(MissingSignal, match=why):
        RULE.check(on(device))  # type: ignore[arg-type]
