from __future__ import annotations

import pytest
from gpu_builder import gpu, kernels_window, on
from metrics_builder import replace

from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.hardware.util_misleading import UtilMisleading

RULE = UtilMisleading()


def test_it_fires_where_few_multiprocessors_have_work() -> None:
    finding = RULE.check(on(gpu(values={"sm_active_ratio": 0.2, "utilization_ratio": 0.97})))
    assert finding is not None
    assert (finding.severity, finding.gain) == ("info", None)
    assert finding.summary == (
        "NVIDIA H200 (gpu0) shows a utilization of 97 %, but 20 % of its multiprocessors have work (by its counters)."
    )
    assert finding.advice.startswith("batch_size is 32, 80 GiB of memory are free: try 64")


def test_it_is_quiet_on_a_full_gpu() -> None:
    assert RULE.check(on(gpu())) is None


def test_a_gpu_that_waits_for_the_host_is_another_cause() -> None:
    assert RULE.check(on(gpu(values={"sm_active_ratio": 0.2, "utilization_ratio": 0.4}))) is None


@pytest.mark.parametrize(("active", "fires"), [(0.51, False), (0.49, True)])
def test_half_of_the_multiprocessors_decide(active: float, fires: bool) -> None:
    assert (RULE.check(on(gpu(values={"sm_active_ratio": active}))) is not None) is fires


def test_without_counters_the_kernels_of_a_window_tell() -> None:
    blind = on(gpu(values={"sm_active_ratio": None}))
    finding = RULE.check(replace(blind, windows=(kernels_window(efficiency=0.1),)))
    assert finding is not None
    assert "estimated from the kernels of a window" in finding.summary
    assert RULE.check(replace(blind, windows=(kernels_window(efficiency=0.9),))) is None
    with pytest.raises(MissingSignal, match="nor the geometry"):
        RULE.check(replace(blind, windows=(kernels_window(efficiency=0.1, known=0.5),)))


@pytest.mark.parametrize(
    ("device", "changes", "why"),
    [
        (gpu(distinct=19), {}, "19 distinct samples"),
        (gpu(distinct=None), {}, "the utilization was not measured"),
        (gpu(), {"steps": 90}, "less than 5 s"),
        (gpu(values={"sm_active_ratio": None}), {}, "neither the activity"),
    ],
)
def test_what_is_missing_is_said(device: object, changes: dict[str, int], why: str) -> None:
    with pytest.raises(MissingSignal, match=why):
        RULE.check(on(device, **changes))  # type: ignore[arg-type]
