"""What the examples of the rules on launches cannot say: which rule has the gain, what an optimizer is told."""

from typing import Any

import msgspec
import pytest
from example_runs import example_run
from findings_builder import fired
from late_steps import training
from trace_metrics import metrics_of, recorded_steps
from truths.gpu_trace import GpuTrace

from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, MissingSignal
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.launches.compile_absent import CompileAbsent
from lightning_gpuprof.rules.launches.gpu_gaps import GpuGaps
from lightning_gpuprof.rules.launches.launch_bound import LaunchBound
from lightning_gpuprof.rules.launches.python_overhead import PythonOverhead
from lightning_gpuprof.rules.launches.slow_launch_api import SlowLaunchApi
from lightning_gpuprof.rules.launches.small_kernels import SmallKernels

RULE: Any = LaunchBound()
EAGER: dict[str, Value] = {"compile.state": "none"}


@pytest.mark.parametrize("special", [SmallKernels(), SlowLaunchApi(), PythonOverhead()], ids=lambda rule: rule.id)
def test_the_special_rule_comes_first_and_both_gain_no_more_than_the_general_one(special: BaseRule) -> None:
    metrics = example_run(**special.examples[0].changes)
    alone = RULE.check(metrics)
    said = diagnose(metrics, [RULE, special])  # type: ignore[list-item]
    assert [found.rule for found in said.findings] == [special.id, RULE.id]
    assert said.combined.saved_ms_per_step == pytest.approx(alone.gain.saved_ms_per_step)


def test_a_model_that_is_not_compiled_is_a_hint_behind_the_rule_that_measures() -> None:
    found = diagnose(example_run(step={"kernel_us": 3.0}, run=EAGER), [CompileAbsent(), RULE]).findings
    assert [one.rule for one in found] == ["launch-bound", "compile-absent"]
    assert found[1].gain is None


@pytest.mark.parametrize(
    ("run", "advised"),
    [
        ({"model.optimizer": "RMSprop"}, ""),
        ({"model.optimizer": "Lion"}, ""),
        ({"model.optimizer": "RMSprop", "model.optimizer_foreach": False}, "RMSprop(..., foreach=True)"),
        ({"model.optimizer": "AdamW", "trainer.precision": "16-mixed", "trainer.gradient_clip_val": 1.0}, ""),
        ({}, "If the optimizer supports it, set fused=True"),
    ],
)
def test_an_optimizer_is_advised_only_what_it_can_do(run: dict[str, Value], advised: str) -> None:
    finding = RULE.check(example_run(step={"kernel_us": 3.0}, run={**EAGER, **run}))
    assert advised in finding.advice
    assert ("fused" in finding.advice or "foreach" in finding.advice) is bool(advised)


@pytest.mark.parametrize("varies", [True, False])
def test_graphs_are_not_advised_for_shapes_that_vary(varies: bool) -> None:
    lengths = iter((64, 80, 96, 72, 88))

    def step(trace: GpuTrace) -> None:
        shape = [32, next(lengths) if varies else 64]
        with trace.phase("[Strategy]SingleDeviceStrategy.training_step"):
            for _ in range(301):
                trace.kernel(3.0, host_us=15.0, inputs=([shape], ["float"]))

    finding = RULE.check(metrics_of(recorded_steps(step), run=EAGER))
    assert ("reduce-overhead" in finding.advice) is not varies
    assert ("dynamic=True" in finding.advice) is varies


def test_a_window_on_a_slow_step_does_not_count() -> None:
    slow = msgspec.structs.replace(
        recorded_steps(lambda trace: training(trace, kernel_us=3.0)), reason="slow step: 90 ms"
    )
    with pytest.raises(MissingSignal, match="opened on a slow step"):
        RULE.check(metrics_of(slow))


def test_a_gap_of_one_step_is_no_property_of_the_step() -> None:
    count = iter(range(100))
    window = recorded_steps(lambda trace: training(trace, kernels=90, other_us=16_000.0 if next(count) == 0 else 0.0))
    assert GpuGaps().check(metrics_of(window)) is None


@pytest.mark.parametrize("settings", [None, "expandable_segments:True"])
def test_memory_from_the_driver_gets_advice_of_its_own(settings: str | None) -> None:
    def step(trace: GpuTrace) -> None:
        training(trace, kernels=90)
        with trace.range("aten::empty", "cpu_op"), trace.range("cudaMalloc", "cuda_runtime"):
            trace.python(14_000.0)

    finding = fired(GpuGaps(), metrics_of(recorded_steps(step), run={"allocator.settings": settings}))
    assert ("expandable_segments:True" in finding.advice) is (settings is None)
    assert finding.explains == claims.ALLOCATOR
