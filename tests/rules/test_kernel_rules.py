"""What the examples of the rules on kernels cannot say: which of two rules has the gain, windows that do not count."""

import pytest
from example_runs import example_run
from metrics_builder import outliers, replace, varied_shapes
from msgspec.structs import replace as changed

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.trace.kernels import MeasuredKernel
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule, MissingSignal
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.kernels.attention_unfused import AttentionUnfused
from lightning_gpuprof.rules.kernels.cudnn_benchmark_thrash import CudnnBenchmarkThrash
from lightning_gpuprof.rules.kernels.fp32_matmul_tf32_off import Fp32MatmulTf32Off
from lightning_gpuprof.rules.kernels.kernel_rule import KernelRule
from lightning_gpuprof.rules.kernels.latency_bound_kernels import LatencyBoundKernels
from lightning_gpuprof.rules.kernels.memory_bound_kernels import MemoryBoundKernels
from lightning_gpuprof.rules.kernels.tc_unused import TcUnused


def metrics_of(rule: BaseRule) -> Metrics:
    """The run of the rule's first example, which fires."""
    return example_run(**rule.examples[0].changes)


@pytest.mark.parametrize(
    ("general", "special", "run"),
    [
        (TcUnused(), Fp32MatmulTf32Off(), metrics_of(Fp32MatmulTf32Off())),
        (
            MemoryBoundKernels(),
            AttentionUnfused(),
            example_run(
                kernels={"pointwise": 30, "tensor core gemm": 19},
                operators=AttentionUnfused.examples[0].changes["operators"],
                roofline=MemoryBoundKernels.examples[0].changes["roofline"],
            ),
        ),
    ],
)
def test_the_special_rule_has_the_gain_and_both_no_more_than_the_larger(
    general: KernelRule, special: KernelRule, run: Metrics
) -> None:
    alone = [found.gain for rule in (general, special) if (found := rule.check(run)) and found.gain is not None]
    found = diagnose(run, (general, special)).findings
    assert [one.rule for one in found] == [special.id, general.id]
    gains = [one.gain.saved_ms_per_step for one in found if one.gain is not None]
    assert sum(gains) == pytest.approx(max(gain.saved_ms_per_step for gain in alone))


def test_a_window_on_a_slow_step_is_no_ordinary_one() -> None:
    run = metrics_of(TcUnused())
    slow = changed(run.windows[0], reason="slow step: 3 times the median")
    with pytest.raises(MissingSignal, match="no trace window"):
        TcUnused().check(replace(run, windows=(slow,)))


def test_twelve_of_thirteen_batches_may_differ_in_runs_of_twenty_shapes_once_in_sixteen() -> None:
    assert varied_shapes().are_of_more_than(20)
    assert not varied_shapes(shapes=11).are_of_more_than(20)
    assert not varied_shapes(looks=1, shapes=1).are_of_more_than(20)
    assert varied_shapes(looks=40, shapes=21).are_of_more_than(20)


def untimed(excess_ms: float, phases: str = "forward") -> Metrics:
    """A run whose traced steps time algorithms, 15.2 ms each, and whose ordinary steps do not."""
    run = metrics_of(CudnnBenchmarkThrash())
    ordinary_ms = run.step_ms - 16.0
    stalls = outliers(count=20, stall_ms=excess_ms / 20, phases=phases, steps=380, period_ms=ordinary_ms)
    period = changed(run.steps.period_ms, median=ordinary_ms)
    return replace(run, steps=changed(run.steps, period_ms=period), outliers=stalls)


def test_algorithms_that_only_some_steps_time_cost_no_more_than_the_excess_of_these() -> None:
    found = CudnnBenchmarkThrash().check(untimed(380 * 4.0))
    assert found is not None
    assert found.gain is not None
    assert found.gain.saved_ms_per_step == pytest.approx(4.0)
    assert (found.severity, found.explains) == ("info", claims.OUTLIERS)
    assert CudnnBenchmarkThrash().check(untimed(380 * 4.0, "data_wait")) is None
    assert CudnnBenchmarkThrash().check(untimed(0.0)) is None, "all shapes are known by now"


def test_of_steps_that_all_time_algorithms_half_the_time_is_certain() -> None:
    found = CudnnBenchmarkThrash().check(metrics_of(CudnnBenchmarkThrash()))
    assert found is not None
    assert found.gain is not None
    assert found.gain.saved_ms_per_step == pytest.approx(3 * 16 * 0.3, rel=0.1)
    assert found.gain.saved_lower_ms_per_step == pytest.approx(found.gain.saved_ms_per_step / 2)
    assert found.explains == claims.ALGORITHM_TRIALS


def by_nsight_compute(compute: float, memory: float | None, average_us: float = 30e3) -> Metrics:
    """A run without the GPU's counters, whose longest kernel Nsight Compute measured."""
    run = example_run(kernels={"tensor core gemm": 30, "pointwise": 19})
    (window,) = run.windows
    assert window.analysis is not None
    assert window.analysis.kernels is not None
    first, *others = window.analysis.kernels.kernels
    measured = MeasuredKernel(
        name=first.name,
        launches=1,
        duration_us=None,
        occupancy_ratio=None,
        l1_hit_ratio=None,
        l2_hit_ratio=None,
        dram_bytes=None,
        compute_throughput_ratio=compute,
        memory_throughput_ratio=memory,
    )
    kernels = changed(
        window.analysis.kernels, kernels=(changed(first, measured=measured, average_us=average_us), *others)
    )
    return replace(run, windows=(changed(window, analysis=changed(window.analysis, kernels=kernels)),))


def test_kernels_below_both_throughputs_that_nsight_compute_measured_are_limited_by_latency() -> None:
    rule = LatencyBoundKernels()
    found = rule.check(by_nsight_compute(0.3, 0.59))
    assert found is not None
    assert "1 kernel of 20 µs and more takes 30.0 ms" in found.summary
    assert found.gain is None
    assert rule.check(by_nsight_compute(0.6, 0.1)) is None
    assert rule.check(by_nsight_compute(0.1, 0.6)) is None, "caches may be the limit"
    for few in (by_nsight_compute(0.3, None), by_nsight_compute(0.3, 0.3, average_us=19)):
        with pytest.raises(MissingSignal, match="neither Nsight Compute"):
            rule.check(few)


def test_counters_of_the_gpu_prove_only_what_cannot_have_been_full() -> None:
    """At most (SMs + memory) / 60 % of the step can be at 60 % of one of them."""
    run = metrics_of(LatencyBoundKernels())
    found = LatencyBoundKernels().check(run)
    assert found is not None
    whole = run.run_s / run.wall.parts["train"]
    proven = 49.0 / 50.0 - (0.12 + 0.06) * whole / 0.6
    assert found.evidence[0].value == pytest.approx(proven, rel=1e-3)
    (gpu,) = run.devices
    with pytest.raises(MissingSignal, match="several GPUs"):
        LatencyBoundKernels().check(replace(run, devices=(gpu, gpu)))
