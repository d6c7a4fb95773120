from __future__ import annotations

import pytest
from findings_builder import fired
from gpu_builder import gpu, held, on
from metrics_builder import build, replace

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.hardware.thermal_throttle import ThermalThrottle

RULE = ThermalThrottle()
HOT = gpu(held("sw_thermal", 1.0, 990.0), held("hw_thermal", 0.5, 900.0), values={"temperature_c": 91.0})


def test_it_fires_on_a_hot_gpu_and_says_what_it_costs() -> None:
    finding = fired(RULE, on(HOT))
    assert (finding.severity, finding.subject) == ("critical", "NVIDIA H200 (gpu0)")
    assert "in 100 % of 40 busy samples (at least 94 %), up to 91 °C: SM clock 990 MHz" in finding.summary
    assert "00000000:1A:00.0" in finding.advice
    # Half the speed of 95 % of 50 ms; the memory works in 0.4 of it.
    assert finding.gain.saved_ms_per_step == pytest.approx(0.5 * 0.95 * 50)
    assert finding.gain.saved_lower_ms_per_step == pytest.approx(0.5 * 0.95 * 50 * 0.6, rel=0.07)


def test_windows_tell_better_than_the_utilization_how_busy_the_gpu_is() -> None:
    assert fired(RULE, on(HOT, idle_ratio=0.6)).gain.saved_ms_per_step == pytest.approx(0.5 * 0.4 * 50)


def test_the_clock_without_the_limit_is_what_could_be_had() -> None:
    finding = fired(RULE, on(gpu(held("sw_thermal", 0.5, 1500.0), free_mhz=1600.0)))
    assert finding.severity == "info"
    assert "SM clock 1,500 MHz instead of 1,600 MHz" in finding.summary


def test_without_the_memory_s_activity_no_gain_is_certain() -> None:
    finding = fired(RULE, on(gpu(held("sw_thermal", 1.0, 990.0), values={"dram_active_ratio": None})))
    assert finding.gain.saved_lower_ms_per_step == 0


@pytest.mark.parametrize("reason", ["sw_power_cap", "app_clocks", "hw_power_brake", "sync_boost", "hw_slowdown"])
def test_it_is_quiet_where_something_else_holds_the_clocks(reason: str) -> None:
    assert RULE.check(on(gpu(held(reason, 1.0, 990.0)))) is None


@pytest.mark.parametrize(("hot", "fires"), [(4, False), (6, True)])
def test_the_lower_bound_of_a_twentieth_of_the_busy_samples_decides(hot: int, fires: bool) -> None:
    assert (RULE.check(on(gpu(held("sw_thermal", hot / 60, 990.0), busy=60))) is not None) is fires


def test_the_worse_of_two_gpus_is_named() -> None:
    assert fired(RULE, on(gpu(), gpu(held("sw_thermal", 1.0, 990.0), subject="gpu1"))).subject == "NVIDIA H200 (gpu1)"


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        (build(), "runs on the CPU"),
        (on(), "no GPU was sampled"),
        (on(gpu(reasons_known=False)), "gpu0: the driver does not report"),
        (on(gpu(busy=19)), "19 of the 20 samples of the busy GPU"),
        (on(gpu(), gpu(busy=0, subject="gpu1")), "gpu1: 0 of the 20"),
        (on(HOT, steps=25), "5 steady steps"),
    ],
)
def test_what_is_missing_is_said(metrics: Metrics, why: str) -> None:
    with pytest.raises(MissingSignal, match=why):
        RULE.check(metrics)


def test_the_notice_of_the_driver_is_quoted() -> None:
    metrics = on()
    told = replace(metrics, validity=type(metrics.validity)(ok=True, caveats=("nvml: Driver Not Loaded",)))
    with pytest.raises(MissingSignal, match=r"no GPU was sampled \(nvml: Driver Not Loaded\)"):
        RULE.check(told)
