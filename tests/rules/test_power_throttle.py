from __future__ import annotations

import pytest
from gpu_builder import gpu, held, on

from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.hardware.power_throttle import PowerThrottle

RULE = PowerThrottle()
CAPPED = held("sw_power_cap", 1.0, 1400.0)


def test_a_lowered_limit_is_a_warning_with_a_gain() -> None:
    finding = RULE.check(on(gpu(CAPPED, values={"power_limit_w": 400.0})))
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.summary == (
        "The power limit of NVIDIA H200 (gpu0) is 400 W where its default is 700 W: it held the clocks down in 100 % "
        "of 40 busy samples: SM clock 1,400 MHz instead of 1,980 MHz."
    )
    assert finding.advice.startswith(
        "Have the administrator raise the limit from 400 W: nvidia-smi -i 00000000:1A:00.0 -pl 700"
    )
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx((1 - 1400 / 1980) * 0.95 * 50)


def test_dense_products_at_the_default_limit_are_what_the_board_is_built_for() -> None:
    finding = RULE.check(on(gpu(CAPPED)))
    assert finding is not None
    assert (finding.severity, finding.gain) == ("info", None)
    assert finding.advice.startswith("Nothing to repair")
    assert "tensor cores were active in 45 % of the time" in finding.advice


def test_a_low_clock_without_tensor_cores_at_work_is_a_warning() -> None:
    finding = RULE.check(on(gpu(CAPPED, values={"tensor_active_ratio": 0.05})))
    assert finding is not None
    assert (finding.severity, finding.gain) == ("warning", None)
    assert "tensor cores were active in 5.0 % of the time only" in finding.advice


def test_without_counters_a_board_at_its_default_limit_is_not_accused() -> None:
    finding = RULE.check(on(gpu(CAPPED, values={"tensor_active_ratio": None})))
    assert finding is not None
    assert finding.severity == "info"


@pytest.mark.parametrize(("clock_mhz", "severity"), [(1670.0, "warning"), (1690.0, "info")])
def test_a_lowered_limit_warns_below_the_threshold_of_the_clock(clock_mhz: float, severity: str) -> None:
    finding = RULE.check(on(gpu(held("sw_power_cap", 1.0, clock_mhz), values={"power_limit_w": 400.0})))
    assert finding is not None
    assert finding.severity == severity


def test_it_is_quiet_on_a_healthy_gpu() -> None:
    assert RULE.check(on(gpu())) is None


@pytest.mark.parametrize("reason", ["sw_thermal", "hw_power_brake", "app_clocks"])
def test_it_is_quiet_where_something_else_holds_the_clocks(reason: str) -> None:
    assert RULE.check(on(gpu(held(reason, 1.0, 990.0), values={"power_limit_w": 400.0}))) is None


@pytest.mark.parametrize(("capped", "fires"), [(11, False), (13, True)])
def test_the_lower_bound_of_a_fifth_of_the_busy_samples_decides(capped: int, fires: bool) -> None:
    assert (RULE.check(on(gpu(held("sw_power_cap", capped / 40, 1400.0)))) is not None) is fires


def test_a_driver_that_does_not_tell_is_not_judged() -> None:
    with pytest.raises(MissingSignal, match="does not tell what holds the clocks down"):
        RULE.check(on(gpu(reasons_known=False)))
