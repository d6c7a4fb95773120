from __future__ import annotations

from typing import Any

import pytest
from feeding_builder import part, starved, worker_row
from metrics_builder import build

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.input.loader_cpu_bound import LoaderCpuBound

RULE = LoaderCpuBound()


def planted(cpu: float = 0.95, delay: float = 0.02, **changes: Any) -> Metrics:
    rows = (worker_row(0, cpu=cpu, delay=delay), worker_row(1, cpu=cpu, delay=delay))
    given = {"rows": rows, "usable_cpus": 2.0, "worker_cpus": 2 * cpu, "process_cpus": 0.1, **changes}
    return starved(**given)


def test_it_says_how_many_cpus_the_work_would_need() -> None:
    finding = RULE.check(planted(parts=(part("Blur", 0.4), part("Crop", 0.35), part("Flip", 0.05))))
    assert finding is not None
    assert finding.severity == "critical"
    assert "2 workers compute in 96 % of the time that they make batches in" in finding.summary
    # 40 ms * 0.95 / 0.99 over 10 ms
    assert "it costs 38.4 ms of CPU time, for a step of 10.0 ms that is the work of 3.8 CPUs" in finding.advice
    assert "Where it goes: Blur 39 %, Crop 34 %." in finding.advice
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(10.0)


def test_it_is_quiet_where_the_workers_wait_for_storage() -> None:
    assert RULE.check(planted(cpu=0.1, delay=0.02)) is None


def test_workers_that_wait_for_a_cpu_count_and_the_others_are_named() -> None:
    finding = RULE.check(planted(cpu=0.35, delay=0.6, others_cpus=1.3))
    assert finding is not None
    assert finding.confidence == 0.6
    assert finding.severity == "info"  # 14.1 ms of CPU time a step of 10 ms: two CPUs would do
    assert "but 40.0 ms pass for want of CPUs" in finding.advice
    assert "ready without a CPU in 61 %" in finding.summary
    assert finding.advice.startswith("First free the CPUs: other processes use 1.3 CPUs of 2 CPUs.")


def test_it_is_quiet_where_more_workers_fit_on_the_cpus() -> None:
    assert RULE.check(planted(usable_cpus=8.0)) is None


@pytest.mark.parametrize(("cpu", "fires"), [(0.81, False), (0.83, True)])
def test_the_share_of_making_batches_decides(cpu: float, fires: bool) -> None:
    assert (RULE.check(planted(cpu=cpu)) is not None) is fires  # and 2 % without a CPU, of 99 %


def test_the_wait_for_work_is_no_making() -> None:
    assert RULE.check(planted(cpu=0.6, delay=0.02)) is None
    assert RULE.check(planted(cpu=0.6, delay=0.02, idle_ratio=0.35)) is not None


def test_it_is_quiet_where_a_tenth_of_the_step_is_no_wait_for_certain() -> None:
    assert RULE.check(planted(items_ms=26.0)) is None  # 3.5 ms of 13.5, 3 of it the price of a fetch


def test_it_is_quiet_on_a_healthy_run_and_without_workers() -> None:
    assert RULE.check(build()) is None
    assert RULE.check(planted(workers=0)) is None
    assert RULE.check(planted(items_ms=12.0)) is None


def test_bursts_are_judged_too() -> None:
    finding = RULE.check(planted(burst=0.4))
    assert finding is not None
    assert finding.explains == claims.OUTLIERS


def test_workers_that_were_not_sampled_are_not_judged() -> None:
    with pytest.raises(MissingSignal, match="was not sampled"):
        RULE.check(planted(rows=()))
    with pytest.raises(MissingSignal, match="sampled 4 times, 5 are needed"):
        RULE.check(planted(rows=(worker_row(samples=4),)))
    with pytest.raises(MissingSignal, match="waited for a CPU was not measured"):
        RULE.check(planted(rows=(worker_row(delay=None),)))
    with pytest.raises(MissingSignal, match="CPU time of the DataLoader workers was not measured"):
        RULE.check(planted(rows=(worker_row(cpu=None),)))
