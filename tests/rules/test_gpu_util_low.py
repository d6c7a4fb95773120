from __future__ import annotations

import msgspec
import pytest
from findings_builder import fired
from gpu_builder import constant, gpu, idle_window, on
from metrics_builder import replace

from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.hardware.gpu_util_low import GpuUtilLow
from lightning_gpuprof.rules.input.input_bound import InputBound

RULE = GpuUtilLow()
LOW = gpu(values={"utilization_ratio": 0.3})


def test_it_comes_after_the_rule_that_explains_it() -> None:
    metrics = on(LOW, times_ms={"data_wait": 100.0}, fetch_waited_ratio=1.0)
    assert [f.rule for f in diagnose(metrics, [RULE, InputBound()]).findings] == ["input-bound", "gpu-util-low"]


def test_it_names_what_lies_beside_the_steps() -> None:
    assert "validation 50 % of the run (validation-stall)" in fired(RULE, on(LOW, validation=(4, 20.0))).summary


def test_a_window_tells_the_causes() -> None:
    finding = fired(RULE, replace(on(LOW), windows=(idle_window(launch=0.6, data=0.05),)))
    assert "60 % of a window" in finding.summary
    assert "data" not in finding.summary.split("causes")[1].split(",")[0]


@pytest.mark.parametrize(("mean", "std", "fires"), [(0.69, 0.0, True), (0.69, 0.1, False), (0.71, 0.0, False)])
def test_the_upper_bound_of_the_mean_decides(mean: float, std: float, fires: bool) -> None:
    spread = msgspec.structs.replace(constant(mean), std=std)
    assert (RULE.check(on(gpu(values={"utilization_ratio": spread}))) is not None) is fires
