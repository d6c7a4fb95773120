from __future__ import annotations

import pytest
from gpu_builder import idle_window
from memory_builder import BLIND, allocator, grows, on_gpu

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.memory.cudamalloc_steady import CudamallocSteady

RULE = CudamallocSteady()


def test_it_tells_of_new_segments_in_steady_steps() -> None:
    finding = RULE.check(on_gpu(allocator(device_allocs_steady_count=190)))
    assert finding is not None
    assert (finding.severity, finding.gain) == ("info", None)
    assert finding.summary == "380 steady steps took 190 new segments from gpu0 (0.5 a step) and gave 0 back."
    assert finding.advice.startswith("Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")


@pytest.mark.parametrize(("share", "severity"), [(0.05, "info"), (0.12, "warning"), (0.3, "critical")])
def test_the_idle_time_of_a_window_decides_how_bad_it_is(share: float, severity: str) -> None:
    metrics = on_gpu(allocator(device_allocs_steady_count=190), windows=(idle_window(allocator=share, launch=0.1),))
    finding = RULE.check(metrics)
    assert finding is not None
    assert finding.severity == severity
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(share * 50)


def test_it_is_quiet_on_a_healthy_run() -> None:
    assert RULE.check(on_gpu()) is None


@pytest.mark.parametrize("cause", [{"retries_steady_count": 3}, {"device_frees_steady_count": 190}])
def test_retries_and_an_emptied_cache_are_other_rules(cause: dict[str, int]) -> None:
    assert RULE.check(on_gpu(allocator(device_allocs_steady_count=190, **cause))) is None


def test_memory_that_leaks_needs_new_segments_but_that_is_not_the_cause() -> None:
    assert RULE.check(on_gpu(allocator(device_allocs_steady_count=190), growth=(grows(2**22),))) is None


@pytest.mark.parametrize(("allocs", "fires"), [(38, False), (39, True)])
def test_one_in_ten_steps_decides(allocs: int, fires: bool) -> None:
    assert (RULE.check(on_gpu(allocator(device_allocs_steady_count=allocs))) is not None) is fires


@pytest.mark.parametrize(
    ("metrics", "why"),
    [*BLIND, (on_gpu(allocator(device_allocs_steady_count=None)), "cudaMalloc were not counted")],
)
def test_what_is_missing_is_said(metrics: Metrics, why: str) -> None:
    with pytest.raises(MissingSignal, match=why):
        RULE.check(metrics)
