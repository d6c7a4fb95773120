from __future__ import annotations

import pytest
from metrics_builder import build

from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.input.input_bound import InputBound
from lightning_gpuprof.rules.input.single_process_loading import SingleProcessLoading

RULE = SingleProcessLoading()
SHORT = {"forward": 4.0, "backward": 5.0, "optimizer": 1.0, "zero_grad": 0.2, "loop": 1.0}


def slow_loader(
    wait_ms: float = 41.0,
    *,
    usable_cpus: float = 2.0,
    process_cpus: float | None = 1.1,
    num_workers: int = 0,
    device: str = "cpu",
    has_model: bool = False,
) -> Metrics:
    return build(
        times_ms={**SHORT, "data_wait": wait_ms},
        num_workers=num_workers,
        usable_cpus=usable_cpus,
        process_cpus=process_cpus,
        worker_cpus=None,
        run={"device.type": device, "loader.dataset_has_model": has_model},
    )


def fired(metrics: Metrics) -> Finding:
    finding = RULE.check(metrics)
    assert finding is not None
    assert finding.gain is not None
    return finding


def test_it_gives_the_number_of_workers_and_the_code_with_this_runs_values() -> None:
    finding = fired(slow_loader())
    assert finding.severity == "critical"
    assert finding.advice == (
        "num_workers is 0: set num_workers=2 (2 CPUs are usable, 0.9 free; one batch takes 41.0 ms to make, the step "
        "needs 12.0 ms without it): DataLoader(..., num_workers=2, persistent_workers=True). "
        "5 workers would keep pace with the step, but making a batch is CPU work, and 2 CPUs cannot do more of it at a "
        "time: for more, make the batch cheaper."
    )


def test_pinned_memory_is_proposed_only_with_a_gpu() -> None:
    assert "pin_memory" not in fired(slow_loader()).advice
    assert "num_workers=2, pin_memory=True, persistent_workers=True" in fired(slow_loader(device="cuda")).advice


def test_workers_are_not_proposed_for_a_dataset_that_uses_the_model() -> None:
    metrics = slow_loader(has_model=True)
    assert RULE.check(metrics) is None
    finding = InputBound().check(metrics)
    assert finding is not None
    assert finding.severity == "critical"
    assert "their copies of the model do not learn" in finding.advice
    assert "num_workers" not in finding.advice


def test_it_is_quiet_where_taking_a_batch_from_a_worker_costs_as_much() -> None:
    assert RULE.check(build(times_ms={"data_wait": 0.45, "forward": 0.8, "backward": 0.9}, num_workers=0)) is None


@pytest.mark.parametrize(("lower", "fires"), [(0.068 / 0.775, False), (0.070 / 0.775, True)])
def test_the_lower_bound_above_the_price_of_a_fetch_decides(lower: float, fires: bool) -> None:
    metrics = build(times_ms={**SHORT, "data_wait": 41.0}, num_workers=0, lower=lower)
    assert metrics.shares["data_wait"].median_ratio == pytest.approx(0.775, abs=0.002)
    assert (RULE.check(metrics) is not None) is fires


def test_workers_that_wait_may_be_more_than_cpus() -> None:
    finding = fired(slow_loader(process_cpus=0.23))  # the CPU time of a step without its wait
    assert "set num_workers=5" in finding.advice
    assert finding.gain is not None
    # All but the receipt of a batch can be gained.
    assert finding.gain.saved_ms_per_step == pytest.approx(40.5, abs=0.1)


def test_the_gain_respects_the_cpu_time_of_a_step() -> None:
    metrics = slow_loader()
    finding = fired(metrics)
    assert finding.gain is not None
    assert metrics.period_ms is not None
    # Making the batch and computing with it keep one CPU busy all the time: two CPUs need half of it.
    assert finding.gain.saved_ms_per_step == pytest.approx(metrics.period_ms / 2)


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
    finding = fired(metrics)
    assert "set num_workers=6" in finding.advice
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(33.5)


def test_unknown_cpu_time_is_said_and_taken_for_work() -> None:
    metrics = slow_loader(process_cpus=None)
    finding = fired(metrics)
    assert "was not measured" in finding.advice
    assert "num_workers=2" in finding.advice
    assert finding.gain is not None
    assert metrics.period_ms is not None
    assert finding.gain.saved_ms_per_step <= metrics.period_ms / 2 + 1e-9
    assert finding.confidence < fired(slow_loader()).confidence


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
    workers = int(finding.advice.split("set num_workers=")[1].split(" ")[0])
    assert 1 <= workers <= max(16, usable_cpus)
    assert finding.gain is not None
    assert 0 <= finding.gain.saved_lower_ms_per_step <= finding.gain.saved_ms_per_step <= wait_ms


@pytest.mark.parametrize(("threads", "device", "told"), [(2, "cpu", True), (1, "cpu", False), (2, "cuda", False)])
def test_a_model_that_computes_on_the_same_cpus_is_told_to_leave_some(threads: int, device: str, told: bool) -> None:
    metrics = build(
        times_ms={**SHORT, "data_wait": 41.0},
        num_workers=0,
        usable_cpus=2.0,
        process_cpus=1.1,
        worker_cpus=None,
        run={"device.type": device, "torch.num_threads": threads},
    )
    assert ("torch.set_num_threads(1)" in fired(metrics).advice) == told


def test_what_the_device_idles_bounds_the_gain() -> None:
    def on_gpu(idle_ratio: float | None) -> Finding | None:
        metrics = build(
            times_ms={"forward": 60.0, "data_wait": 40.0},
            num_workers=0,
            usable_cpus=8.0,
            run={"device.type": "cuda"},
            idle_ratio=idle_ratio,
        )
        return RULE.check(metrics)

    assert on_gpu(0.01) is None
    finding = on_gpu(0.12)
    assert finding is not None
    assert finding.gain is not None
    assert finding.severity == "warning"
    assert finding.gain.saved_ms_per_step == pytest.approx(0.12 * 129.2)
    unseen = on_gpu(None)
    assert unseen is not None
    assert unseen.severity == "warning"


def test_what_taking_a_batch_from_a_worker_may_cost_is_not_certain_to_be_gained() -> None:
    metrics = build(
        times_ms={"data_wait": 2.0, "forward": 1.0, "backward": 1.0, "optimizer": 0.3, "loop": 0.1},
        num_workers=0,
        usable_cpus=8.0,
        process_cpus=1.0,
    )
    finding = fired(metrics)
    assert finding.severity == "info"
    assert finding.gain is not None
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
