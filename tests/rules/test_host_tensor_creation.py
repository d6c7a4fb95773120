from __future__ import annotations

import pytest
from gpu_trace import GpuTrace, recorded_steps
from trace_metrics import metrics_of

from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.transfers.host_tensor_creation import HostTensorCreation

RULE = HostTensorCreation()


def found(
    *, copies: int = 4, host_us: float = 300.0, kind: str = "HtoD (Pageable -> Device)", phase: str = "training_step"
) -> Finding | None:
    """A step of 10 ms on the device, within it some tensors that take ``host_us`` each to make on the host."""

    def step(trace: GpuTrace) -> None:
        with trace.line("net.py(20): forward"), trace.phase(f"[Strategy]SingleDeviceStrategy.{phase}"):
            for _ in range(copies):
                for _ in range(100 // copies):
                    trace.kernel(100.0)
                trace.copy(2.0, 4096, kind=kind)
                trace.python(host_us)
            trace.kernel(100.0)

    return RULE.check(metrics_of(recorded_steps(step)))


def test_it_names_the_line_and_how_often() -> None:
    finding = found(host_us=600.0)
    assert finding is not None
    assert finding.subject == "net.py(20): forward"
    assert finding.severity == "warning"
    assert "4 times per step" in finding.summary
    assert "register_buffer" in finding.advice
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(4 * 0.6, rel=0.1)


def test_it_is_quiet_with_pinned_memory() -> None:
    assert found(host_us=600.0, kind="HtoD (Pinned -> Device)") is None


def test_the_batch_is_not_the_model_s() -> None:
    assert found(host_us=600.0, phase="batch_to_device") is None


def test_one_copy_per_step_is_not_enough() -> None:
    assert found(copies=1, host_us=3000.0) is None


@pytest.mark.parametrize(("host_us", "fires"), [(100.0, False), (170.0, True)])
def test_a_twentieth_of_the_step_decides(host_us: float, fires: bool) -> None:
    assert (found(host_us=host_us) is not None) is fires


def test_without_a_window_it_is_not_evaluated() -> None:
    with pytest.raises(MissingSignal, match="no trace window was recorded"):
        RULE.check(metrics_of())
