from __future__ import annotations

import pytest
from findings_builder import fired
from gpu_builder import copying_window, gpu, on
from metrics_builder import replace

from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.hardware.pcie_degraded import PcieDegraded

RULE = PcieDegraded()
SLOW = gpu(values={"pcie_generation": 3.0, "pcie_width": 8.0})


def test_a_slow_link_that_holds_the_step_is_a_warning() -> None:
    finding = fired(RULE, on(SLOW, times_ms={"h2d": 20.0}))
    assert finding.severity == "warning"
    assert finding.gain.saved_ms_per_step == pytest.approx(20.0 * 7 / 8)
    assert finding.gain.saved_lower_ms_per_step == 0
    assert finding.explains == claims.BATCH_COPIES


def test_a_window_tells_how_long_the_copies_take() -> None:
    metrics = replace(on(SLOW, times_ms={"h2d": 20.0}), windows=(copying_window(h2d_ms=8.0),))
    assert fired(RULE, metrics).gain.saved_ms_per_step == pytest.approx(8.0 * 7 / 8)


@pytest.mark.parametrize(("generation", "width", "fires"), [(5.0, 16.0, False), (4.0, 16.0, True), (5.0, 8.0, True)])
def test_any_step_down_of_generation_or_width_decides(generation: float, width: float, fires: bool) -> None:
    finding = RULE.check(on(gpu(values={"pcie_generation": generation, "pcie_width": width})))
    assert (finding is not None) is fires


@pytest.mark.parametrize(
    ("device", "why"),
    [
        (gpu(values={"pcie_generation": None}), "was not measured"),
        (gpu(facts={"pcie_width_max": None}), "was not measured"),
        (gpu(values={"pcie_width": 8.0}, samples=29), "rarely read"),
        (gpu(values={"pcie_width": 8.0}, samples=100), "an idle link is slow"),
    ],
)
def test_what_is_missing_is_said(device: object, why: str) -> None:
    with pytest.raises(MissingSignal, match=why):
        RULE.check(on(device))  # type: ignore[arg-type]
