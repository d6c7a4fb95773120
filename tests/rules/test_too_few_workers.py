from __future__ import annotations

import pytest
from metrics_builder import build

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.too_few_workers import TooFewWorkers

RULE = TooFewWorkers()


def behind(
    *,
    wait_ms: float = 150.0,
    workers: int = 1,
    waited: float | None = 0.98,
    usable_cpus: float = 2.0,
    worker_cpus: float | None = 0.02,
) -> Metrics:
    return build(
        times_ms={"data_wait": wait_ms, "forward": 4.0, "backward": 5.0},
        num_workers=workers,
        usable_cpus=usable_cpus,
        process_cpus=0.1,
        worker_cpus=worker_cpus,
        fetch_waited_ratio=waited,
    )


def test_it_fires_on_one_worker_with_slow_items_and_gives_the_number() -> None:
    finding = RULE.check(behind())
    assert finding is not None
    assert finding.severity == "critical"
    # ceil(166.2 / 16.2) + 1: the worker waits, so CPUs are no limit
    assert "num_workers is 1: set num_workers=12" in finding.advice
    assert "mostly wait" in finding.advice
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(149.5)


def test_cpu_work_is_held_to_the_usable_cpus() -> None:
    finding = RULE.check(behind(worker_cpus=0.95))
    assert finding is not None
    assert "set num_workers=2 " in finding.advice
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step <= 166.2 - (166.2 * 0.95 + 16.2) / 2 + 1e-9


def test_unknown_cpu_use_is_said_and_held_to_the_usable_cpus() -> None:
    finding = RULE.check(behind(worker_cpus=None))
    assert finding is not None
    assert "set num_workers=2 " in finding.advice
    assert "was not measured" in finding.advice
    assert finding.confidence == 0.6


def test_it_is_quiet_on_a_healthy_run() -> None:
    assert RULE.check(build()) is None


def test_it_is_quiet_without_workers() -> None:
    assert RULE.check(behind(workers=0)) is None


def test_it_is_quiet_where_the_workers_use_all_cpus() -> None:
    assert RULE.check(behind(workers=2, worker_cpus=1.9)) is None


def test_it_is_quiet_where_the_queue_is_mostly_full() -> None:
    assert RULE.check(behind(waited=0.1)) is None


def test_it_is_quiet_where_the_wait_may_be_the_receipt_of_a_batch() -> None:
    assert RULE.check(behind(wait_ms=2.9, waited=1.0)) is None


@pytest.mark.parametrize(("waited", "fires"), [(0.299, False), (0.30, True)])
def test_the_share_of_empty_queues_decides(waited: float, fires: bool) -> None:
    assert (RULE.check(behind(waited=waited)) is not None) is fires


def test_without_the_state_of_the_queue_it_does_not_judge() -> None:
    with pytest.raises(MissingSignal, match="no batch ready"):
        RULE.check(behind(waited=None))


def test_a_loader_that_is_not_known_is_not_judged() -> None:
    with pytest.raises(MissingSignal, match="not a torch DataLoader"):
        RULE.check(build(no_loader=True))
