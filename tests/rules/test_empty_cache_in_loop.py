from __future__ import annotations

import pytest
from gpu_builder import idle_window
from memory_builder import BLIND, allocator, on_gpu

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.memory.cudamalloc_steady import CudamallocSteady
from lightning_gpuprof.rules.memory.empty_cache_in_loop import EmptyCacheInLoop

RULE = EmptyCacheInLoop()
EMPTIED = allocator(device_allocs_steady_count=1500, device_frees_steady_count=1520)


def test_a_window_tells_what_it_costs_and_the_more_general_rule_is_silent() -> None:
    metrics = on_gpu(EMPTIED, windows=(idle_window(allocator=0.3),))
    (finding,) = diagnose(metrics, [RULE, CudamallocSteady()]).findings
    assert finding.rule == "empty-cache-in-loop"
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(15)


def test_new_segments_alone_are_another_rule_s() -> None:
    assert RULE.check(on_gpu(allocator(device_allocs_steady_count=900))) is None


@pytest.mark.parametrize(("frees", "severity"), [(38, None), (39, "info"), (379, "info"), (380, "warning")])
def test_frees_per_step_decide(frees: int, severity: str | None) -> None:
    finding = RULE.check(on_gpu(allocator(device_allocs_steady_count=900, device_frees_steady_count=frees)))
    assert (None if finding is None else finding.severity) == severity


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        *BLIND,
        (on_gpu(allocator(steady_steps=None)), "over 0 of the 20 steady steps"),
    ],
)
def test_what_is_missing_is_said(metrics: Metrics, why: str) -> None:
    with pytest.raises(MissingSignal, match=why):
        RULE.check(metrics)
