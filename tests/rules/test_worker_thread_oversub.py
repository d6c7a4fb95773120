from __future__ import annotations

from typing import Any

import pytest
from feeding_builder import starved, worker_row

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.input.worker_thread_oversub import WorkerThreadOversub

RULE = WorkerThreadOversub()


def planted(cpu: float = 0.95, delay: float = 0.6, threads: float = 6.0, **changes: Any) -> Metrics:
    row = worker_row(cpu=cpu, delay=delay, threads=threads)
    return starved(**{"rows": (row, row), "usable_cpus": 2.0, "worker_cpus": 2 * cpu, **changes})


def test_it_counts_the_threads_of_all_workers() -> None:
    finding = RULE.check(planted(run={"host.omp_num_threads": 4}))
    assert finding is not None
    assert finding.severity == "warning"
    assert "2 workers compute on 4 threads each, 8 for 2 CPUs" in finding.summary
    assert "OMP_NUM_THREADS=1" in finding.advice
    assert finding.gain is None


def test_pools_that_do_nothing_are_no_matter() -> None:
    assert RULE.check(planted(cpu=0.5, delay=0.1)) is None


def test_workers_on_one_thread_that_want_a_cpu_are_no_pools() -> None:
    assert RULE.check(planted(cpu=0.4, delay=0.6, threads=3.0)) is None
    assert RULE.check(planted(cpu=0.4, delay=0.6)) is None


def test_threads_on_enough_cpus_are_welcome() -> None:
    assert RULE.check(planted(cpu=3.0, delay=0.02, usable_cpus=16.0)) is None
    assert RULE.check(planted(cpu=3.0, delay=0.02)) is None


@pytest.mark.parametrize(("cpu", "fires"), [(0.59, False), (0.61, True)])
def test_more_than_one_thread_can_do_decides(cpu: float, fires: bool) -> None:
    assert (RULE.check(planted(cpu=cpu, delay=0.6)) is not None) is fires


@pytest.mark.parametrize(("threads", "fires"), [(3.5, False), (3.6, True)])
def test_three_halves_of_the_cpus_decide(threads: float, fires: bool) -> None:
    assert (RULE.check(planted(threads=threads)) is not None) is fires


def test_it_is_quiet_where_nobody_waits() -> None:
    assert RULE.check(planted(items_ms=12.0)) is None
    assert RULE.check(planted(workers=0)) is None


def test_workers_that_were_not_sampled_are_not_judged() -> None:
    with pytest.raises(MissingSignal, match="was not sampled"):
        RULE.check(starved())
    with pytest.raises(MissingSignal, match="run-queue time"):
        RULE.check(planted(rows=(worker_row(delay=None),)))
