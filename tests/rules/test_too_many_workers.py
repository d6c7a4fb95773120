from __future__ import annotations

from typing import Any

import msgspec
import pytest
from feeding_builder import level, starved, worker_row
from metrics_builder import build, replace

from lightning_gpuprof.model.host import HostUse, MachineUse
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.input.too_many_workers import TooManyWorkers

RULE = TooManyWorkers()


def planted(delay: float = 0.8, *, workers: int = 16, training: float | None = 0.3, **changes: Any) -> Metrics:
    row = worker_row(cpu=0.1, delay=delay, uss_bytes=level(50e6))
    given = {"usable_cpus": 2.0, "worker_cpus": 1.6, "process_cpus": 0.3, "others_cpus": 0.05, **changes}
    metrics = starved(workers=workers, **{"rows": (row,) * workers, **given})
    return replace(metrics, cpu=replace(metrics.cpu, run_delay_ratio=training))


def test_it_proposes_the_usable_cpus_and_says_who_waits() -> None:
    finding = RULE.check(planted())
    assert finding is not None
    assert finding.severity == "warning"
    assert "16 workers take turns on 2 CPUs" in finding.summary
    assert "the main thread 30 % of the step" in finding.summary
    assert "Use as many workers as CPUs: DataLoader(..., num_workers=2)" in finding.advice
    assert "frees 700 MB" in finding.advice
    assert finding.gain is None


@pytest.mark.parametrize(("training", "severity"), [(0.09, "info"), (0.1, "warning"), (None, "info")])
def test_the_training_thread_makes_it_a_warning(training: float | None, severity: str) -> None:
    finding = RULE.check(planted(training=training))
    assert finding is not None
    assert finding.severity == severity


@pytest.mark.parametrize(("workers", "fires"), [(4, False), (5, True)])
def test_twice_the_cpus_decide(workers: int, fires: bool) -> None:
    assert (RULE.check(planted(workers=workers)) is not None) is fires


@pytest.mark.parametrize(("delay", "fires"), [(0.29, False), (0.3, True)])
def test_a_third_of_the_time_without_a_cpu_decides(delay: float, fires: bool) -> None:
    assert (RULE.check(planted(delay)) is not None) is fires


def test_workers_that_wait_for_storage_may_be_many() -> None:
    assert RULE.check(planted(0.02, worker_cpus=0.2)) is None


def test_cpus_that_are_not_used_by_this_run_are_not_short() -> None:
    assert RULE.check(planted(worker_cpus=0.9)) is None


def test_where_others_use_the_cpus_it_does_not_judge() -> None:
    with pytest.raises(MissingSignal, match=r"other processes used 1\.2 CPUs of 2 CPUs"):
        RULE.check(planted(others_cpus=1.2))
    with pytest.raises(MissingSignal, match="who used the CPUs"):
        RULE.check(planted(others_cpus=None))
    with pytest.raises(MissingSignal, match="waited for a CPU was not measured"):
        RULE.check(planted(rows=(worker_row(delay=None),)))


def waiting(workers: int = 16, *, idle: float = 0.96, each: float | None = 440e6, total: float = 64e9) -> Metrics:
    """Batches of 4 ms for steps of 10 ms."""
    rows = (worker_row(cpu=0.02, delay=0.0, uss_bytes=level(each)),) * workers
    host = HostUse(samples=30, worker_rows=rows, machine=MachineUse(memory_total_bytes=total))
    return starved(workers=workers, items_ms=3.0, idle_ratio=idle, host=host, usable_cpus=32.0)


def test_workers_that_wait_and_hold_memory_are_told_with_the_number_to_set() -> None:
    finding = RULE.check(waiting())
    assert finding is not None
    assert finding.summary == "16 workers are idle 96 % of the time and hold 7.0 GB; 2 are enough."
    assert finding.advice.startswith("Use fewer workers: DataLoader(..., num_workers=2")
    assert finding.advice.endswith("frees 6.2 GB.")
    assert finding.gain is None


@pytest.mark.parametrize(("total", "severity"), [(61e9, "warning"), (63e9, "info")])
def test_a_tenth_of_the_machines_memory_makes_it_a_warning(total: float, severity: str) -> None:
    finding = RULE.check(waiting(total=total))
    assert finding is not None
    assert finding.severity == severity


@pytest.mark.parametrize(
    ("changes", "fires"),
    [
        ({"workers": 4}, True),
        ({"workers": 3}, False),  # 2 keep pace
        ({"idle": 0.81}, True),
        ({"idle": 0.79}, False),
        ({"workers": 4, "each": 490e6}, False),
        ({"each": None}, False),
    ],
)
def test_idle_time_number_and_memory_decide_about_workers_that_wait(changes: dict[str, Any], fires: bool) -> None:
    each = {"each": 510e6} if changes.get("workers") else {}
    assert (RULE.check(waiting(**{**each, **changes})) is not None) is fires


def test_workers_that_steps_wait_for_are_not_too_many() -> None:
    of = waiting()
    assert of.input is not None
    assert RULE.check(replace(of, input=msgspec.structs.replace(of.input, verdict="processing"))) is None


def test_it_is_quiet_on_a_healthy_run() -> None:
    assert RULE.check(build()) is None
    assert RULE.check(build(num_workers=0)) is None
