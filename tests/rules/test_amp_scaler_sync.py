from __future__ import annotations

import pytest
from gpu_trace import GpuTrace, recorded_steps
from trace_metrics import metrics_of

from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.transfers.amp_scaler_sync import AmpScalerSync
from lightning_gpuprof.rules.transfers.sync_points import SyncPoints

RULE = AmpScalerSync()


def step_of(after_us: float) -> WindowFacts:
    """10 ms on the device, then the scaler reads a value, and the optimizer needs a while for its first launch."""

    def step(trace: GpuTrace) -> None:
        with trace.phase("[LightningModule]Net.optimizer_step"):
            with trace.phase("[Strategy]SingleDeviceStrategy.backward"):
                for _ in range(100):
                    trace.kernel(100.0)
            trace.item()
            trace.python(after_us)
            trace.kernel(100.0)

    return recorded_steps(step)


def found(after_us: float, **run: Value) -> Finding | None:
    names = {
        "precision": "trainer.precision",
        "capability": "device.capability",
        "clip": "trainer.gradient_clip_val",
        "optimizer": "model.optimizer",
    }
    facts = {"trainer.precision": "16-mixed", **{names[key]: value for key, value in run.items()}}
    return RULE.check(metrics_of(step_of(after_us), run=facts))


def test_it_proposes_bf16_where_the_device_has_it() -> None:
    finding = found(2000.0, capability="9.0")
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.subject == "GradScaler"
    assert finding.advice.startswith("Use bf16 (compute capability 9.0)")
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(2.0, rel=0.05)


def test_an_older_device_gets_other_advice() -> None:
    finding = found(2000.0, capability="7.0", clip=1.0)
    assert finding is not None
    assert "bf16-mixed" not in finding.advice
    assert "fused=True" in finding.advice
    assert "gradient_clip_val has to go" in finding.advice


def test_it_is_quiet_where_the_launch_follows_at_once() -> None:
    assert found(0.0) is None


def test_without_a_scaler_the_wait_is_the_code_s() -> None:
    metrics = metrics_of(step_of(2000.0), run={"trainer.precision": "bf16-mixed"})
    assert RULE.check(metrics) is None
    assert SyncPoints().check(metrics) is not None


def test_what_the_optimizer_itself_reads_is_not_the_scaler_s() -> None:
    def step(trace: GpuTrace) -> None:
        with trace.phase("[LightningModule]Net.optimizer_step"):
            with trace.phase("[Strategy]SingleDeviceStrategy.backward"):
                for _ in range(100):
                    trace.kernel(100.0)
            with trace.range("Optimizer.step#AdamW.step"):
                trace.item()
                trace.python(2000.0)
                trace.kernel(100.0)

    metrics = metrics_of(recorded_steps(step), run={"trainer.precision": "16-mixed"})
    assert RULE.check(metrics) is None
    finding = SyncPoints().check(metrics)
    assert finding is not None
    assert finding.subject == "aten::item in Optimizer.step#AdamW.step"


@pytest.mark.parametrize(("after_us", "fires"), [(400.0, False), (650.0, True)])
def test_a_twentieth_of_the_step_decides(after_us: float, fires: bool) -> None:
    assert (found(after_us) is not None) is fires


def test_without_a_window_it_is_not_evaluated() -> None:
    with pytest.raises(MissingSignal, match="no trace window was recorded"):
        RULE.check(metrics_of(run={"trainer.precision": "16-mixed"}))


def test_an_optimizer_that_cannot_be_fused_is_not_told_to() -> None:
    finding = found(2000.0, capability="7.0", optimizer="RMSprop")
    assert finding is not None
    assert "Adam, AdamW, SGD or Adagrad with fused=True; RMSprop does not" in finding.advice
