from __future__ import annotations

import pytest
from findings_builder import fired
from gpu_builder import gpu, held, on

from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.hardware.low_clocks import LowClocks

RULE = LowClocks()


def test_it_fires_on_application_clocks() -> None:
    finding = fired(RULE, on(gpu(held("app_clocks", 1.0, 1200.0), clock_mhz=1200.0)))
    assert finding.severity == "warning"
    assert finding.gain.saved_ms_per_step == pytest.approx((1 - 1200 / 1980) * 0.95 * 50)


def test_it_fires_on_clocks_that_are_low_for_no_reason() -> None:
    finding = fired(RULE, on(gpu(clock_mhz=1200.0)))
    assert "names no reason" in finding.summary
    assert finding.confidence < 0.8


@pytest.mark.parametrize("reason", ["sw_power_cap", "sw_thermal", "hw_thermal", "hw_power_brake", "hw_slowdown"])
def test_it_is_quiet_where_another_rule_has_the_cause(reason: str) -> None:
    assert RULE.check(on(gpu(held(reason, 0.5, 900.0), held("app_clocks", 1.0, 900.0), clock_mhz=900.0))) is None


def test_a_gpu_that_is_not_always_busy_may_lower_its_clock() -> None:
    assert RULE.check(on(gpu(clock_mhz=1200.0, values={"utilization_ratio": 0.8}))) is None
    assert RULE.check(on(gpu(clock_mhz=1200.0, values={"utilization_ratio": None}))) is None


@pytest.mark.parametrize(("clock_mhz", "fires"), [(1583.0, True), (1585.0, False)])
def test_four_fifths_of_the_highest_clock_decide(clock_mhz: float, fires: bool) -> None:
    assert (RULE.check(on(gpu(held("app_clocks", 1.0, clock_mhz), clock_mhz=clock_mhz))) is not None) is fires


@pytest.mark.parametrize(("clock_mhz", "fires"), [(1385.0, True), (1387.0, False)])
def test_without_a_reason_seven_tenths_decide(clock_mhz: float, fires: bool) -> None:
    assert (RULE.check(on(gpu(clock_mhz=clock_mhz))) is not None) is fires


@pytest.mark.parametrize(("ratio", "fires"), [(0.6, False), (0.7, True)])
def test_the_reason_holds_in_half_of_the_busy_samples(ratio: float, fires: bool) -> None:
    assert (RULE.check(on(gpu(held("app_clocks", ratio, 1200.0), clock_mhz=1200.0))) is not None) is fires


@pytest.mark.parametrize(
    ("device", "why"),
    [
        (gpu(clock_mhz=None), "the SM clock"),
        (gpu(facts={"sm_clock_max_mhz": None}), "its maximum"),
    ],
)
def test_what_is_missing_is_said(device: object, why: str) -> None:
    with pytest.raises(MissingSignal, match=why):
        RULE.check(on(device))  # type: ignore[arg-type]
