from __future__ import annotations

import pytest
from copying import PAGEABLE, PINNED, copying
from gpu_trace import GpuTrace, recorded_steps
from late_steps import training
from metrics_builder import replace
from trace_metrics import metrics_of

from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.transfers.h2d_exposed import H2dExposed

RULE = H2dExposed()
MB = 1_000_000


def test_it_proposes_fewer_bytes() -> None:
    window = copying(PINNED, us=4000.0, nbytes=100 * MB)
    finding = RULE.check(metrics_of(window, period_ms=14.1, run={"batch.dtypes": "float32, int64"}))
    assert finding is not None
    assert finding.severity == "critical"
    assert "100 MB at 25.0 GB/s per step take 4.00 ms" in finding.advice
    assert "As uint8 a float32 image has a quarter" in finding.advice
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(4.0, rel=0.01)


def test_it_is_quiet_without_copies() -> None:
    assert RULE.check(metrics_of(recorded_steps(training))) is None


def test_pageable_memory_is_another_rule_s() -> None:
    assert RULE.check(metrics_of(copying(PAGEABLE, us=4000.0, nbytes=20 * MB))) is None


def test_where_launches_come_late_the_copy_is_not_what_holds_the_step() -> None:
    slow = copying(PINNED, us=1000.0, nbytes=20 * MB, kernels=600, kernel_us=2.0)
    assert RULE.check(metrics_of(slow)) is None


@pytest.mark.parametrize(("us", "fires"), [(1000.0, False), (1300.0, True)])
def test_a_tenth_of_the_step_decides(us: float, fires: bool) -> None:
    window = copying(PINNED, us=us, nbytes=20 * MB)
    assert (RULE.check(metrics_of(window, period_ms=10.1 + us / 1e3)) is not None) is fires


def test_without_a_window_it_is_not_evaluated() -> None:
    with pytest.raises(MissingSignal, match="no trace window was recorded"):
        RULE.check(metrics_of())


@pytest.mark.parametrize(("empty_ratio", "fires"), [(0.9, False), (0.02, True)])
def test_it_is_quiet_where_workers_set_the_pace(empty_ratio: float, fires: bool) -> None:
    def step(trace: GpuTrace) -> None:
        training(trace, fetch_us=20_000.0, kernels=100)
        trace.copy(6000.0, 100 * MB, kind=PINNED)

    metrics = replace(metrics_of(recorded_steps(step)), fetch_waited_ratio=empty_ratio)
    assert (RULE.check(metrics) is not None) is fires
