import pytest
from findings_builder import fired
from metrics_builder import build

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.input.single_process_loading import SingleProcessLoading

RULE = SingleProcessLoading()
SHORT = {"forward": 4.0, "backward": 5.0, "optimizer": 1.0, "zero_grad": 0.2, "loop": 1.0}


def slow_loader(wait_ms: float, *, usable_cpus: float, process_cpus: float | None) -> Metrics:
    return build(
        times_ms={**SHORT, "data_wait": wait_ms},
        num_workers=0,
        usable_cpus=usable_cpus,
        process_cpus=process_cpus,
        worker_cpus=None,
    )


@pytest.mark.parametrize(("lower", "fires"), [(0.068 / 0.775, False), (0.070 / 0.775, True)])
def test_the_lower_bound_above_the_price_of_a_fetch_decides(lower: float, fires: bool) -> None:
    metrics = build(times_ms={**SHORT, "data_wait": 41.0}, num_workers=0, lower=lower)
    assert metrics.shares["data_wait"].median_ratio == pytest.approx(0.775, abs=0.002)
    assert (RULE.check(metrics) is not None) is fires


def test_threads_that_spin_are_not_taken_for_loading() -> None:
    # Measured: 2 ms of sleep per item, 16 items, a step of 7 ms on two threads; with 7 workers it ran at 5.5 ms.
    metrics = build(
        times_ms={"data_wait": 34.0, "forward": 2.0, "backward": 2.0, "optimizer": 2.0, "zero_grad": 0.1, "loop": 0.1},
        num_workers=0,
        usable_cpus=2,
        process_cpus=0.5,
        worker_cpus=None,
        run={"torch.num_threads": 2},
    )
    finding = fired(RULE, metrics)
    assert finding.change.arguments["num_workers"] == 6
    assert finding.gain.saved_ms_per_step == pytest.approx(33.5)


@pytest.mark.parametrize("usable_cpus", [0.5, 1.0, 2.0, 7.9, 64.0])
@pytest.mark.parametrize("wait_ms", [2.0, 12.0, 41.0, 4000.0])
@pytest.mark.parametrize("process_cpus", [None, 0.1, 1.0])
def test_the_proposal_is_possible_and_the_gain_never_passes_the_wait(
    usable_cpus: float, wait_ms: float, process_cpus: float | None
) -> None:
    metrics = slow_loader(wait_ms, usable_cpus=usable_cpus, process_cpus=process_cpus)
    finding = RULE.check(metrics)
    if finding is None:
        return
    workers = finding.change.arguments["num_workers"]
    assert isinstance(workers, int)
    assert f"num_workers={workers}, persistent_workers=True). Why {workers}:" in finding.advice
    assert 1 <= workers <= max(16, usable_cpus)
    assert 0 <= finding.gain.saved_lower_ms_per_step <= finding.gain.saved_ms_per_step <= wait_ms


def test_what_taking_a_batch_from_a_worker_may_cost_is_not_certain_to_be_gained() -> None:
    metrics = build(
        times_ms={"data_wait": 2.0, "forward": 1.0, "backward": 1.0, "optimizer": 0.3, "loop": 0.1},
        num_workers=0,
        usable_cpus=8.0,
        process_cpus=1.0,
    )
    finding = fired(RULE, metrics)
    assert finding.severity == "info"
    assert finding.gain.saved_ms_per_step == pytest.approx(1.5)
    assert finding.gain.saved_lower_ms_per_step == 0


def test_an_iterable_dataset_is_told_to_share_before_it_gets_workers() -> None:
    """Pasted as it stood, num_workers=5 made an epoch of 100 steps one of 500."""
    waits = build(times_ms={"data_wait": 200.0}, num_workers=0)
    stream = build(times_ms={"data_wait": 200.0}, num_workers=0, run={"loader.sampler": "_InfiniteConstantSampler"})
    told = {f.rule: f.advice for f in diagnose(stream).findings}
    for rule in ("single-process-loading", "input-bound"):
        assert "torch.utils.data.get_worker_info()" in told[rule]
    assert not any("get_worker_info" in f.advice for f in diagnose(waits).findings)
