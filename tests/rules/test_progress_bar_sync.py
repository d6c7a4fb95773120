from __future__ import annotations

import pytest
from gpu_trace import GpuTrace, recorded_steps
from trace_metrics import metrics_of

from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.transfers.progress_bar_sync import ProgressBarSync
from lightning_gpuprof.rules.transfers.sync_points import SyncPoints

RULE = ProgressBarSync()


def drawn(
    after_us: float, *, hook: str = "[Callback]TQDMProgressBar.on_train_batch_end", every: int = 1
) -> Finding | None:
    """Steps of 10 ms on the device, after which a hook reads a value and then takes a while."""
    count = iter(range(100))

    def step(trace: GpuTrace) -> None:
        with trace.line("train.py(82): main"):
            with trace.phase("[Strategy]SingleDeviceStrategy.training_step"):
                for _ in range(100):
                    trace.kernel(100.0)
            with trace.phase(hook):
                if next(count) % every == 0:
                    trace.item()
                    trace.python(after_us)

    return RULE.check(metrics_of(recorded_steps(step, steps=6)))


def test_it_proposes_a_refresh_rate() -> None:
    finding = drawn(2000.0)
    assert finding is not None
    assert finding.subject == "TQDMProgressBar.on_train_batch_end"
    assert finding.severity == "warning"
    assert "TQDMProgressBar(refresh_rate=14)" in finding.advice
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(
        5 / 6 * 2.0 * 13 / 14, rel=0.05
    )  # after the last step nothing follows


def test_the_rich_one_is_named() -> None:
    finding = drawn(2000.0, hook="[Callback]RichProgressBar.on_train_batch_end")
    assert finding is not None
    assert "RichProgressBar(refresh_rate=" in finding.advice


def test_it_is_quiet_where_the_bar_reads_rarely() -> None:
    assert drawn(2000.0, every=6) is None


def test_another_callback_is_not_a_progress_bar() -> None:
    assert drawn(2000.0, hook="[Callback]Watch.on_train_batch_end") is None


@pytest.mark.parametrize(("after_us", "fires"), [(500.0, False), (800.0, True)])
def test_a_twentieth_of_the_step_decides(after_us: float, fires: bool) -> None:
    assert (drawn(after_us) is not None) is fires


def test_one_wait_is_one_rule_s() -> None:
    def step(trace: GpuTrace) -> None:
        for _ in range(100):
            trace.kernel(100.0)
        with trace.phase("[Callback]TQDMProgressBar.on_train_batch_end"):
            trace.item()
            trace.python(2000.0)

    metrics = metrics_of(recorded_steps(step))
    assert RULE.check(metrics) is not None
    assert SyncPoints().check(metrics) is None


def test_without_a_window_it_is_not_evaluated() -> None:
    with pytest.raises(MissingSignal, match="no trace window was recorded"):
        RULE.check(metrics_of())
