from __future__ import annotations

import msgspec
import pytest
from gpu_trace import GpuTrace, recorded_steps
from late_steps import training
from metrics_builder import build
from trace_metrics import metrics_of

from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.launches.launch_bound import LaunchBound

RULE = LaunchBound()


def window(steps: int = 5, **changes: float) -> WindowFacts:
    return recorded_steps(lambda trace: training(trace, **changes), steps=steps)  # type: ignore[arg-type]


def test_short_kernels_behind_slow_launches_are_found() -> None:
    """300 kernels of 3 µs, one every 15 µs: 0.9 ms of device work in a step of 4.5 ms."""
    run: dict[str, Value] = {"compile.state": "none", "model.optimizer": "AdamW"}
    finding = RULE.check(metrics_of(window(kernel_us=3.0), run=run))
    assert finding is not None
    assert finding.severity == "critical"
    assert "300 kernels of 3.0 us each, one every 15" in finding.summary
    assert 'torch.compile(model, mode="reduce-overhead")' in finding.advice
    assert "AdamW launches 100 works per step: make it with fused=True" in finding.advice
    assert "batch_size=160 instead of 32" in finding.advice
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(300 * 0.012, rel=0.05)
    lower_ms = finding.gain.saved_lower_ms_per_step
    assert lower_ms is not None
    assert lower_ms <= finding.gain.saved_ms_per_step


def test_it_is_quiet_where_the_device_is_busy() -> None:
    assert RULE.check(metrics_of(window())) is None


def test_it_is_quiet_where_only_tracing_makes_launches_late() -> None:
    """Traced, a step takes 4.5 ms; untraced, the host keeps up: 0.95 ms."""
    assert RULE.check(metrics_of(window(kernel_us=3.0), period_ms=0.95)) is None


def test_an_idle_device_that_waits_for_batches_is_another_cause() -> None:
    assert RULE.check(metrics_of(window(fetch_us=60_000.0))) is None


def test_one_long_work_of_the_host_is_another_cause() -> None:
    assert RULE.check(metrics_of(window(other_us=40_000.0))) is None


def test_what_follows_a_wait_is_not_certain() -> None:
    """A loss is read every step; then it takes a while until the next launch."""
    slow = window(kernel_us=100.0, item=True, after_step_us=900.0, kernels=30)
    assert RULE.check(metrics_of(slow)) is None


def test_time_outside_of_the_model_is_not_the_launches() -> None:
    """The loop takes 3 of 4.5 ms on the host: no compiler helps there."""
    outside = metrics_of(window(kernel_us=3.0), phases_ms={"loop": 3.2, "forward": 1.3})
    assert RULE.check(outside) is None


@pytest.mark.parametrize(("period_ms", "fires"), [(1.02, False), (1.4, True)])
def test_the_untraced_period_decides(period_ms: float, fires: bool) -> None:
    """15 % of idle time that is certain, beside 0.9 ms of work."""
    metrics = metrics_of(window(kernel_us=3.0, fetch_us=0.0), period_ms=period_ms, phases_ms={})
    assert (RULE.check(metrics) is not None) is fires


def test_a_compiled_model_gets_other_advice() -> None:
    finding = RULE.check(metrics_of(window(kernel_us=3.0), run={"compile.state": "module", "compile.mode": "default"}))
    assert finding is not None
    assert finding.advice.startswith("The model is compiled with mode 'default'")


def test_a_window_on_a_slow_step_does_not_count() -> None:
    slow = msgspec.structs.replace(window(kernel_us=3.0), reason="slow step: 90 ms")
    with pytest.raises(MissingSignal, match="opened on a slow step"):
        RULE.check(metrics_of(slow))


def test_without_device_work_it_is_not_evaluated() -> None:
    with pytest.raises(MissingSignal, match="no trace window was recorded"):
        RULE.check(metrics_of())
    with pytest.raises(MissingSignal, match="runs on the CPU"):
        RULE.check(build())


@pytest.mark.parametrize(
    ("run", "advised"),
    [
        ({"model.optimizer": "RMSprop"}, ""),
        ({"model.optimizer": "Lion"}, ""),
        ({"model.optimizer": "RMSprop", "model.optimizer_foreach": False}, "make it with foreach=True."),
        ({"model.optimizer": "AdamW", "trainer.precision": "16-mixed", "trainer.gradient_clip_val": 1.0}, ""),
        ({}, "make it with fused=True, if it has that."),
    ],
)
def test_an_optimizer_is_told_only_what_it_can_do(run: dict[str, Value], advised: str) -> None:
    finding = RULE.check(metrics_of(window(kernel_us=3.0), run={"compile.state": "none", **run}))
    assert finding is not None
    assert advised in finding.advice
    assert ("make it with" in finding.advice) is bool(advised)


@pytest.mark.parametrize("varies", [True, False])
def test_graphs_are_not_advised_for_shapes_that_vary(varies: bool) -> None:
    lengths = iter((64, 80, 96, 72, 88))

    def step(trace: GpuTrace) -> None:
        shape = [32, next(lengths) if varies else 64]
        with trace.phase("[Strategy]SingleDeviceStrategy.training_step"):
            for _ in range(301):
                trace.kernel(3.0, host_us=15.0, inputs=([shape], ["float"]))

    finding = RULE.check(metrics_of(recorded_steps(step), run={"compile.state": "none"}))
    assert finding is not None
    assert ("reduce-overhead" in finding.advice) is not varies
    assert ("dynamic=True" in finding.advice) is varies
