from collections.abc import Mapping

import pytest
from findings_builder import fired
from metrics_builder import build, replace, share

from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.steps.optimizer_slow import OptimizerSlow

RULE = OptimizerSlow()


def updating(
    ms: float, *, tensors: int = 2000, run: Mapping[str, Value] | None = None, idle_ratio: float | None = None
) -> Metrics:
    facts: dict[str, Value] = {
        "model.parameter_tensors": tensors,
        "model.parameter_bytes": 64_000,
        "model.optimizer": "AdamW",
        **(run or {}),
    }
    return build(times_ms={"optimizer": ms}, run=facts, idle_ratio=idle_ratio)


def test_a_loop_over_many_tensors_is_found_and_fused_is_advised() -> None:
    finding = fired(RULE, updating(100.0, run={"model.optimizer_foreach": False}))
    assert (finding.severity, finding.subject) == ("critical", "AdamW")
    assert finding.change.added == ("torch.optim.AdamW(..., fused=True)",)
    assert "2,000 parameter tensors" in finding.summary
    assert finding.gain.saved_ms_per_step == pytest.approx(100 - 20 - 0.0896)


@pytest.mark.parametrize("kind", ["SGD", "NAdam", "Lion"])
def test_what_the_data_itself_needs_is_no_fault(kind: str) -> None:
    facts: dict[str, Value] = {"model.parameter_bytes": 45_000_000, "model.optimizer": kind}
    assert RULE.check(updating(60.0, tensors=150, run=facts)) is None


@pytest.mark.parametrize(("kind", "left_ratio"), [("Adam", 0.5), ("AdamW", 0.5), ("Adagrad", 0.55)])
def test_a_fused_update_takes_no_more_than_its_share_of_the_loop(kind: str, left_ratio: float) -> None:
    """The estimate by bytes passes the loop's own time: the machine is faster than it assumes."""
    finding = fired(RULE, updating(60.0, tensors=24, run={"model.parameter_bytes": 360e6, "model.optimizer": kind}))
    assert finding.severity == "critical"
    assert finding.gain.saved_ms_per_step == pytest.approx(60 * (1 - left_ratio))


def test_few_tensors_of_an_optimizer_without_a_known_share_are_information_only() -> None:
    facts: dict[str, Value] = {"model.optimizer": "NAdam"}
    assert fired(RULE, updating(12.0, tensors=99, run=facts)).severity == "info"
    assert fired(RULE, updating(12.0, tensors=100, run=facts)).severity == "warning"


@pytest.mark.parametrize(("ms", "fires"), [(8.2, False), (8.4, True)])
def test_the_lower_bound_of_the_share_must_pass_the_threshold(ms: float, fires: bool) -> None:
    assert (RULE.check(updating(ms, tensors=50)) is not None) is fires


def test_time_in_which_the_thread_waits_for_a_cpu_is_no_lower_bound() -> None:
    metrics = updating(100.0)
    finding = fired(RULE, replace(metrics, cpu=replace(metrics.cpu, run_delay_ratio=0.5)))
    assert finding.gain.saved_lower_ms_per_step == pytest.approx(49 - 20.0896)
    assert finding.severity == "critical"
    assert finding.gain.saved_ms_per_step == pytest.approx(50 - 20 - 0.0896)  # cpu-contention counts the other half


def test_the_scheduler_is_not_the_optimizer() -> None:
    metrics = updating(100.0)
    assert RULE.check(replace(metrics, lr_scheduler=share(90.0, 146.0))) is None


def test_optimizers_without_a_fused_update_get_foreach() -> None:
    scaled = {"trainer.precision": "16-mixed", "trainer.gradient_clip_val": 1.0}
    finding = fired(RULE, updating(100.0, run=scaled))
    assert "in 16-mixed it cannot be fused): torch.optim.AdamW(..., foreach=True)" in finding.advice


def test_an_optimizer_of_ones_own_is_named_with_less_confidence() -> None:
    assert fired(RULE, updating(100.0, run={"model.optimizer": "Lion"})).confidence == 0.6


CUDA: Mapping[str, Value] = {"device.type": "cuda", "model.optimizer_foreach": False}


def test_on_a_device_only_a_loop_that_lets_it_idle_counts() -> None:
    assert RULE.check(updating(100.0, run={"device.type": "cuda"})) is None
    assert RULE.check(updating(100.0, run=CUDA, idle_ratio=0.1)) is None
    finding = fired(RULE, updating(100.0, run=CUDA, idle_ratio=0.6))
    assert finding.gain.saved_ms_per_step == pytest.approx(0.6 * 146 - 20.0896, rel=0.02)
    with pytest.raises(MissingSignal, match="no trace window"):
        RULE.check(updating(100.0, run=CUDA))


@pytest.mark.parametrize(("blocked_ms", "fires"), [(0.0, True), (95.0, False)])
def test_an_optimizer_that_waits_does_not_update_slowly(blocked_ms: float, fires: bool) -> None:
    facts: dict[str, Value] = {
        "model.parameter_tensors": 2000,
        "model.parameter_bytes": 64_000,
        "model.optimizer": "SGD",
        "torch.num_threads": 1,
    }
    metrics = build(times_ms={"optimizer": 100.0}, blocked_ms={"optimizer": blocked_ms}, run=facts)
    assert (RULE.check(metrics) is not None) is fires
