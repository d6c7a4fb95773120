from __future__ import annotations

import pytest
from findings_builder import fired
from gpu_builder import gpu, kernels_window, on
from metrics_builder import replace

from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.hardware.util_misleading import UtilMisleading

RULE = UtilMisleading()


@pytest.mark.parametrize(("active", "fires"), [(0.51, False), (0.49, True)])
def test_half_of_the_multiprocessors_decide(active: float, fires: bool) -> None:
    assert (RULE.check(on(gpu(values={"sm_active_ratio": active}))) is not None) is fires


def test_without_counters_the_kernels_of_a_window_tell() -> None:
    blind = on(gpu(values={"sm_active_ratio": None}))
    finding = fired(RULE, replace(blind, windows=(kernels_window(efficiency=0.1),)))
    assert "estimated from the kernels" in finding.summary
    assert RULE.check(replace(blind, windows=(kernels_window(efficiency=0.9),))) is None
    with pytest.raises(MissingSignal, match="nor the geometry"):
        RULE.check(replace(blind, windows=(kernels_window(efficiency=0.1, known=0.5),)))


@pytest.mark.parametrize(
    ("device", "changes", "why"),
    [
        (gpu(distinct=None), {}, "the utilization was not measured"),
        (gpu(), {"steps": 90}, "less than 5 s"),
    ],
)
def test_what_is_missing_is_said(device: object, changes: dict[str, int], why: str) -> None:
    with pytest.raises(MissingSignal, match=why):
        RULE.check(on(device, **changes))  # type: ignore[arg-type]
