from __future__ import annotations

from typing import Any

import pytest
from feeding_builder import level, starved, worker_row
from metrics_builder import build

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.input.loader_io_bound import LoaderIoBound

RULE = LoaderIoBound()


def planted(
    cpu: float = 0.05, delay: float = 0.02, disk: float | None = 0.0, read: float = 2e3, **changes: Any
) -> Metrics:
    row = worker_row(cpu=cpu, delay=delay, disk=disk, read_call_bytes_per_s=level(read))
    return starved(**{"rows": (row, row), "usable_cpus": 2.0, "worker_cpus": 2 * cpu, "process_cpus": 0.1, **changes})


def test_what_is_no_disk_is_called_waiting() -> None:
    finding = RULE.check(planted())
    assert finding is not None
    assert finding.severity == "critical"
    assert "2 workers wait in 93 % of the time that they make batches in" in finding.summary
    assert "waiting (not CPU), no disk was seen" in finding.summary
    assert "a worker reads only 2 kB/s by system calls meanwhile" in finding.advice
    # ceil(40 / 10) + 1
    assert "num_workers=5, persistent_workers=True) instead of num_workers=2" in finding.advice


def test_workers_in_state_d_blame_the_disk() -> None:
    finding = RULE.check(planted(disk=0.6, read=40e6))
    assert finding is not None
    assert "for a disk: 61 % of the looks found one in state D" in finding.summary
    assert "Make Digits read less or faster (a worker reads 40 MB/s)" in finding.advice


def test_reading_without_state_d_blames_what_answers_slowly() -> None:
    finding = RULE.check(planted(read=5e6))
    assert finding is not None
    assert "a network file system, a database, a lock" in finding.advice


def test_it_is_quiet_where_workers_compute() -> None:
    assert RULE.check(planted(cpu=0.95)) is None


def test_it_is_quiet_where_workers_wait_for_a_cpu_or_for_work() -> None:
    assert RULE.check(planted(cpu=0.2, delay=0.75)) is None
    assert RULE.check(planted(cpu=0.5, delay=0.02, idle_ratio=0.4)) is None


@pytest.mark.parametrize(("cpu", "fires"), [(0.48, False), (0.47, True)])
def test_half_of_the_making_decides(cpu: float, fires: bool) -> None:
    assert (RULE.check(planted(cpu=cpu)) is not None) is fires  # and 2 % without a CPU, of 99 %


@pytest.mark.parametrize(("disk", "blamed"), [(0.19, False), (0.2, True)])
def test_a_fifth_of_the_looks_blames_the_disk(disk: float, blamed: bool) -> None:
    finding = RULE.check(planted(disk=disk))
    assert finding is not None
    assert ("for a disk" in finding.summary) is blamed


def test_it_is_quiet_on_a_healthy_run_and_without_workers() -> None:
    assert RULE.check(build()) is None
    assert RULE.check(planted(items_ms=12.0)) is None
    assert RULE.check(planted(workers=0)) is None


def test_workers_that_were_not_sampled_are_not_judged() -> None:
    with pytest.raises(MissingSignal, match="was not sampled"):
        RULE.check(planted(rows=()))
