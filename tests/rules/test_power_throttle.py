from __future__ import annotations

import pytest
from findings_builder import fired
from gpu_builder import gpu, held, on

from lightning_gpuprof.rules.hardware.power_throttle import PowerThrottle

RULE = PowerThrottle()
CAPPED = held("sw_power_cap", 1.0, 1400.0)


def test_a_lowered_limit_is_a_warning_with_a_gain() -> None:
    finding = fired(RULE, on(gpu(CAPPED, values={"power_limit_w": 400.0})))
    assert "in 100 % of 40 busy samples: SM clock 1,400 MHz instead of 1,980 MHz" in finding.summary
    assert finding.advice.endswith("nvidia-smi -i 00000000:1A:00.0 -pl 700")
    assert finding.gain.saved_ms_per_step == pytest.approx((1 - 1400 / 1980) * 0.95 * 50)


@pytest.mark.parametrize(("clock_mhz", "severity"), [(1670.0, "warning"), (1690.0, "info")])
def test_a_lowered_limit_warns_below_the_threshold_of_the_clock(clock_mhz: float, severity: str) -> None:
    finding = fired(RULE, on(gpu(held("sw_power_cap", 1.0, clock_mhz), values={"power_limit_w": 400.0})))
    assert finding.severity == severity


@pytest.mark.parametrize("reason", ["sw_thermal", "hw_power_brake", "app_clocks"])
def test_it_is_quiet_where_something_else_holds_the_clocks(reason: str) -> None:
    assert RULE.check(on(gpu(held(reason, 1.0, 990.0), values={"power_limit_w": 400.0}))) is None


@pytest.mark.parametrize(("capped", "fires"), [(11, False), (13, True)])
def test_the_lower_bound_of_a_fifth_of_the_busy_samples_decides(capped: int, fires: bool) -> None:
    assert (RULE.check(on(gpu(held("sw_power_cap", capped / 40, 1400.0)))) is not None) is fires
