from __future__ import annotations

import msgspec
import pytest
from copying import PAGEABLE, PINNED, copying
from gpu_trace import recorded_steps
from late_steps import training
from trace_metrics import metrics_of

from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.transfers.h2d_pageable import H2dPageable

RULE = H2dPageable()
MB = 1_000_000


def test_it_says_what_pinned_memory_would_save() -> None:
    """40 MB at 4 GB/s take 10 ms; at 12 GB/s they would take 3.3 ms."""
    finding = RULE.check(metrics_of(copying(PAGEABLE, us=10_000.0, nbytes=40 * MB), pin_memory=False))
    assert finding is not None
    assert finding.severity == "critical"
    assert finding.advice.startswith("pin_memory is False: set DataLoader(..., pin_memory=True)")
    assert "40 MB at 4.0 GB/s per step" in finding.summary
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(10.0 - 40 / 12, rel=0.02)


def test_the_idle_time_after_the_wait_counts() -> None:
    fast = copying(PAGEABLE, us=1000.0, nbytes=12 * MB, after_us=2000.0)
    finding = RULE.check(metrics_of(fast, pin_memory=False))
    assert finding is not None
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(1.8, rel=0.05)  # 2 ms, in the first step 1 ms


def test_a_loader_that_pins_gets_other_advice() -> None:
    finding = RULE.check(metrics_of(copying(PAGEABLE, us=10_000.0, nbytes=40 * MB), pin_memory=True))
    assert finding is not None
    assert finding.advice.startswith("pin_memory is True, but what is copied is not pinned")


def test_it_is_quiet_on_pinned_memory() -> None:
    assert RULE.check(metrics_of(copying(PINNED, us=10_000.0, nbytes=40 * MB))) is None


def test_it_is_quiet_without_copies() -> None:
    assert RULE.check(metrics_of(recorded_steps(training))) is None


def test_small_values_are_no_batch() -> None:
    assert RULE.check(metrics_of(copying(PAGEABLE, us=100.0, nbytes=4096, copies=20))) is None


def test_a_copy_as_fast_as_pinned_memory_gains_nothing() -> None:
    assert RULE.check(metrics_of(copying(PAGEABLE, us=2000.0, nbytes=26 * MB), pin_memory=False)) is None


@pytest.mark.parametrize(("us", "fires"), [(480.0, False), (640.0, True)])
def test_a_twentieth_of_the_step_decides(us: float, fires: bool) -> None:
    metrics = metrics_of(copying(PAGEABLE, us=us, nbytes=2 * MB), pin_memory=False)
    assert (RULE.check(metrics) is not None) is fires


def test_names_that_do_not_tell_the_memory_are_not_judged() -> None:
    window = copying("HtoD (Host -> Device)", us=10_000.0, nbytes=40 * MB)
    with pytest.raises(MissingSignal, match="does not tell pageable from pinned"):
        RULE.check(metrics_of(window))


def test_without_a_window_it_is_not_evaluated() -> None:
    with pytest.raises(MissingSignal, match="no trace window was recorded"):
        RULE.check(metrics_of())


def test_without_the_tables_it_is_not_evaluated() -> None:
    window = copying(PAGEABLE, us=10_000.0, nbytes=40 * MB)
    without = msgspec.structs.replace(window, analysis=msgspec.structs.replace(window.analysis, api_tables=None))
    with pytest.raises(MissingSignal, match="could not be analysed"):
        RULE.check(metrics_of(without))
