from __future__ import annotations

import pytest
from findings_builder import fired
from gpu_builder import gpu, held, on

from lightning_gpuprof.rules.hardware.power_brake import PowerBrake

RULE = PowerBrake()


def test_it_fires_on_the_brake() -> None:
    metrics = on(gpu(held("hw_power_brake", 0.75, 900.0), held("hw_slowdown", 0.75, 900.0), free_mhz=1900.0))
    finding = fired(RULE, metrics)
    assert finding.severity == "critical"
    assert "in 75 % of 40 busy samples: SM clock 900 MHz instead of 1,900 MHz" in finding.summary
    assert finding.gain.saved_ms_per_step == pytest.approx(0.75 * (1 - 900 / 1900) * 0.95 * 50)


@pytest.mark.parametrize(("samples", "fires"), [(1, False), (2, True)])
def test_the_brake_in_two_samples_is_enough(samples: int, fires: bool) -> None:
    finding = RULE.check(on(gpu(held("hw_power_brake", samples / 40, 900.0))))
    assert (finding is not None) is fires
    assert finding is None or finding.severity == "warning"


@pytest.mark.parametrize(("slow", "fires"), [(4, False), (6, True)])
def test_a_slowdown_without_a_reason_needs_a_twentieth_of_the_samples(slow: int, fires: bool) -> None:
    finding = RULE.check(on(gpu(held("hw_slowdown", slow / 60, 900.0), busy=60)))
    assert (finding is not None) is fires
    assert finding is None or finding.summary.startswith("A protection of the board")
