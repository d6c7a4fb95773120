from __future__ import annotations

import pytest
from copying import PAGEABLE, PINNED, copying
from gpu_trace import GpuTrace, recorded_steps
from late_steps import training
from trace_metrics import metrics_of

from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.transfers.many_small_copies import ManySmallCopies

RULE = ManySmallCopies()


def test_dozens_of_copies_are_counted() -> None:
    window = copying(PAGEABLE, us=2.0, nbytes=2000, copies=100, kernels=100, kernel_us=10.0)
    finding = RULE.check(metrics_of(window))
    assert finding is not None
    assert "100 small copies to the device per step, 2 kB on average" in finding.summary
    assert finding.advice.startswith("Collate into few tensors: 100 copies per step")
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step <= 1.3


def test_it_is_quiet_without_copies() -> None:
    assert RULE.check(metrics_of(recorded_steps(training))) is None


def test_copies_that_the_host_is_far_ahead_of_cost_nothing() -> None:
    assert RULE.check(metrics_of(copying(PINNED, us=2.0, nbytes=2000, copies=100), period_ms=10.4)) is None


def test_large_copies_are_another_rule_s() -> None:
    window = copying(PINNED, us=20.0, nbytes=400_000, copies=100, kernels=100, kernel_us=10.0)
    assert RULE.check(metrics_of(window)) is None


@pytest.mark.parametrize(("copies", "fires"), [(10, False), (30, True)])
def test_ten_copies_per_step_are_usual(copies: int, fires: bool) -> None:
    window = copying(PAGEABLE, us=2.0, nbytes=2000, copies=copies, kernels=100, kernel_us=7.0)
    assert (RULE.check(metrics_of(window)) is not None) is fires


def test_without_a_window_it_is_not_evaluated() -> None:
    with pytest.raises(MissingSignal, match="no trace window was recorded"):
        RULE.check(metrics_of())


def test_waits_for_a_large_copy_are_not_those_of_small_ones() -> None:
    """15 small tensors and an image of 150 MB, all pageable: the host waits for each, and is late after the image."""

    def step(trace: GpuTrace) -> None:
        with trace.phase("[Strategy]SingleDeviceStrategy.batch_to_device"):
            for _ in range(15):
                trace.copy(2.0, 2000, kind=PAGEABLE)
            trace.copy(20_000.0, 150_000_000, kind=PAGEABLE)
            trace.python(5000.0)
        with trace.phase("[Strategy]SingleDeviceStrategy.training_step"):
            for _ in range(100):
                trace.kernel(100.0)

    assert RULE.check(metrics_of(recorded_steps(step))) is None


def test_waits_for_large_copies_of_another_kind_do_not_count() -> None:
    def step(trace: GpuTrace) -> None:
        with trace.phase("[Strategy]SingleDeviceStrategy.batch_to_device"):
            for _ in range(15):
                trace.copy(2.0, 2000, kind=PINNED)
            trace.copy(20_000.0, 150_000_000, kind=PAGEABLE)
            trace.python(5000.0)
        with trace.phase("[Strategy]SingleDeviceStrategy.training_step"):
            for _ in range(100):
                trace.kernel(100.0)

    assert RULE.check(metrics_of(recorded_steps(step))) is None
