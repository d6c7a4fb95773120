from __future__ import annotations

import pytest
from copying import BACK, PINNED, copying
from gpu_trace import recorded_steps
from late_steps import training
from trace_metrics import metrics_of

from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.transfers.d2h_traffic import D2hTraffic

RULE = D2hTraffic()
MB = 1_000_000


def test_it_names_the_line_and_the_bytes() -> None:
    finding = RULE.check(metrics_of(copying(BACK, us=3000.0, nbytes=18 * MB, phase="training_step")))
    assert finding is not None
    assert finding.severity == "critical"
    assert finding.subject == "train.py(61): collect"
    assert "18 MB at 6.0 GB/s per step are copied to the host" in finding.summary
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(3.0, rel=0.01)


def test_it_is_quiet_without_copies() -> None:
    assert RULE.check(metrics_of(recorded_steps(training))) is None


def test_values_that_are_read_are_no_traffic() -> None:
    assert RULE.check(metrics_of(copying(BACK, us=20.0, nbytes=4, copies=50))) is None


def test_copies_to_the_device_are_another_rule_s() -> None:
    assert RULE.check(metrics_of(copying(PINNED, us=3000.0, nbytes=18 * MB))) is None


@pytest.mark.parametrize(("us", "fires"), [(480.0, False), (600.0, True)])
def test_a_twentieth_of_the_step_decides(us: float, fires: bool) -> None:
    assert (RULE.check(metrics_of(copying(BACK, us=us, nbytes=3 * MB))) is not None) is fires


def test_without_a_window_it_is_not_evaluated() -> None:
    with pytest.raises(MissingSignal, match="no trace window was recorded"):
        RULE.check(metrics_of())
