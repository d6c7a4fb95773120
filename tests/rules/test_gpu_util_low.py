from __future__ import annotations

import msgspec
import pytest
from gpu_builder import constant, gpu, idle_window, on
from metrics_builder import replace

from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.hardware.gpu_util_low import GpuUtilLow
from lightning_gpuprof.rules.input.input_bound import InputBound

RULE = GpuUtilLow()
LOW = gpu(values={"utilization_ratio": 0.3})


def test_it_names_the_phase_in_which_the_gpu_waits_and_its_rule() -> None:
    finding = RULE.check(on(LOW, times_ms={"data_wait": 100.0}))
    assert finding is not None
    assert (finding.severity, finding.gain) == ("info", None)
    assert finding.summary == (
        "NVIDIA H200 (gpu0) has work in 30 % of the time (at most 30 %). Meanwhile: data_wait 67 % of the step "
        "(input-bound)."
    )


def test_it_comes_after_the_rule_that_explains_it() -> None:
    metrics = on(LOW, times_ms={"data_wait": 100.0}, fetch_waited_ratio=1.0)
    assert [f.rule for f in diagnose(metrics, [RULE, InputBound()]).findings] == ["input-bound", "gpu-util-low"]


def test_it_names_what_lies_beside_the_steps() -> None:
    finding = RULE.check(on(LOW, validation=(4, 20.0)))
    assert finding is not None
    assert "validation 50 % of the run (validation-stall)" in finding.summary


def test_a_window_tells_the_causes() -> None:
    finding = RULE.check(replace(on(LOW), windows=(idle_window(launch=0.6, data=0.05),)))
    assert finding is not None
    assert "60 % of a window" in finding.summary
    assert "data" not in finding.summary.split("Meanwhile")[1].split(",")[0]


def test_what_nothing_explains_is_said_to_be_unexplained() -> None:
    finding = RULE.check(on(LOW))
    assert finding is not None
    assert "Nothing measured explains it: 35.0 ms of a step of 50.0 ms" in finding.summary
    assert "GpuProfiler(windows=[...])" in finding.advice


def test_it_is_quiet_on_a_busy_gpu() -> None:
    assert RULE.check(on(gpu())) is None


def test_a_full_gpu_with_idle_multiprocessors_is_another_rule_s() -> None:
    assert RULE.check(on(gpu(values={"sm_active_ratio": 0.1}))) is None


@pytest.mark.parametrize(("mean", "std", "fires"), [(0.69, 0.0, True), (0.69, 0.1, False), (0.71, 0.0, False)])
def test_the_upper_bound_of_the_mean_decides(mean: float, std: float, fires: bool) -> None:
    spread = msgspec.structs.replace(constant(mean), std=std)
    assert (RULE.check(on(gpu(values={"utilization_ratio": spread}))) is not None) is fires


@pytest.mark.parametrize(
    ("device", "why"), [(gpu(distinct=19), "19 distinct samples"), (gpu(distinct=None), "was not measured")]
)
def test_what_is_missing_is_said(device: object, why: str) -> None:
    with pytest.raises(MissingSignal, match=why):
        RULE.check(on(device))  # type: ignore[arg-type]
