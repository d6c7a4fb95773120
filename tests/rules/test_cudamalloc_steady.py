from __future__ import annotations

import pytest
from gpu_builder import idle_window
from memory_builder import BLIND, allocator, on_gpu

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.memory.cudamalloc_steady import CudamallocSteady

RULE = CudamallocSteady()


@pytest.mark.parametrize(("share", "severity"), [(0.05, "info"), (0.12, "warning"), (0.3, "critical")])
def test_the_idle_time_of_a_window_decides_how_bad_it_is(share: float, severity: str) -> None:
    metrics = on_gpu(allocator(device_allocs_steady_count=190), windows=(idle_window(allocator=share, launch=0.1),))
    finding = RULE.check(metrics)
    assert finding is not None
    assert finding.severity == severity
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(share * 50)


@pytest.mark.parametrize("cause", [{"retries_steady_count": 3}, {"device_frees_steady_count": 190}])
def test_retries_and_an_emptied_cache_are_other_rules(cause: dict[str, int]) -> None:
    assert RULE.check(on_gpu(allocator(device_allocs_steady_count=190, **cause))) is None


@pytest.mark.parametrize(("allocs", "fires"), [(38, False), (39, True)])
def test_one_in_ten_steps_decides(allocs: int, fires: bool) -> None:
    assert (RULE.check(on_gpu(allocator(device_allocs_steady_count=allocs))) is not None) is fires


@pytest.mark.parametrize(
    ("metrics", "why"),
    [*BLIND],
)
def test_what_is_missing_is_said(metrics: Metrics, why: str) -> None:
    with pytest.raises(MissingSignal, match=why):
        RULE.check(metrics)
