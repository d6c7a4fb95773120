"""Batches that workers make in time, and that still come late because the main thread has no CPU."""

import pytest
from empty_structs import empty
from findings_builder import fired
from metrics_builder import build, replace

from lightning_gpuprof.model.input_pipeline import InputLoader, InputPipeline
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import measured
from lightning_gpuprof.rules.input.input_bound import InputBound
from lightning_gpuprof.rules.input.too_few_workers import TooFewWorkers


def waiting(*, make_ms: float | None, run_delay_ratio: float | None = None, workers: int = 1) -> Metrics:
    """Seen on two CPUs with a load of 16: 11 ms of 32 ms are wait, the worker makes a batch in 3.3 ms."""
    metrics = build(
        times_ms={"data_wait": 11.3, "forward": 8.0, "backward": 8.0},
        num_workers=workers,
        usable_cpus=4.0,
        worker_cpus=0.1,
        fetch_waited_ratio=1.0,
    )
    made = InputLoader(
        loader=0,
        workers=workers,
        make_ms=make_ms,
        items_ms=make_ms,
        collate_ms=0.0,
        deliver_ms=make_ms,
        idle_ratio=None,
    )
    found = empty(InputPipeline, verdict="transfer", loaders=(made,), slowest=0)
    return replace(metrics, input=found, cpu=replace(metrics.cpu, run_delay_ratio=run_delay_ratio))


def test_more_workers_are_no_cure_where_batches_are_made_in_time() -> None:
    assert TooFewWorkers().check(waiting(make_ms=3.3)) is None
    assert TooFewWorkers().check(waiting(make_ms=33.0)) is not None


def test_without_the_time_in_the_worker_it_is_not_known_that_batches_are_made_in_time() -> None:
    assert not measured(waiting(make_ms=None).loading).made_in_time
    assert TooFewWorkers().check(waiting(make_ms=None)) is not None


@pytest.mark.parametrize(("of_the_step", "in_time"), [(0.79, True), (0.81, False)])
def test_in_time_is_four_fifths_of_the_step_for_all_workers_together(of_the_step: float, in_time: bool) -> None:
    compute_ms = measured(waiting(make_ms=1.0).loading).compute_ms
    assert measured(waiting(make_ms=2 * of_the_step * compute_ms, workers=2).loading).made_in_time is in_time


@pytest.mark.parametrize(
    ("run_delay_ratio", "severity"), [(None, "warning"), (0.09, "warning"), (0.11, "info"), (0.7, "info")]
)
def test_a_wait_for_a_cpu_is_information_only(run_delay_ratio: float | None, severity: str) -> None:
    finding = fired(InputBound(), waiting(make_ms=3.3, run_delay_ratio=run_delay_ratio))
    assert (finding.severity == "info") is (severity == "info")


@pytest.mark.parametrize(
    ("run_delay_ratio", "advice"),
    [(0.0, "Send fewer bytes to the main process"), (0.7, "Leave a CPU for the main thread")],
)
def test_a_batch_that_is_made_in_time_need_not_be_cheaper(run_delay_ratio: float, advice: str) -> None:
    assert fired(InputBound(), waiting(make_ms=3.3, run_delay_ratio=run_delay_ratio)).advice.startswith(advice)


def test_batches_that_are_made_too_slowly_stay_a_warning_where_cpus_are_scarce() -> None:
    assert fired(InputBound(), waiting(make_ms=33.0, run_delay_ratio=0.7)).severity != "info"
