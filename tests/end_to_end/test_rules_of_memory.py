"""Faults of memory planted in real fits on a CPU, whose device is played: each gives its rule and no other."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_allocator import MIB, FakeAllocator
from memory_fits import PEAK, WEIGHTS, Hungry, fit, fit_until_out_of_memory
from planted_runs import Planted, quiet_profiler
from planted_runs import fit as plain_fit
from rules_in import rules_in

from lightning_gpuprof.model.report import Report

RULES = rules_in("memory", besides=("host-leak",)).keys()


class Faulty(Hungry):
    """Does something with the allocator at the end of each step."""

    def __init__(self, allocator: FakeAllocator, fault: Callable[[FakeAllocator, int], object], **options: Any) -> None:
        super().__init__(allocator, **options)
        self.fault = fault

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.fault(self.allocator, batch_idx)


def nothing(allocator: FakeAllocator, batch: int) -> None:
    """A healthy step."""


def empty(allocator: FakeAllocator, batch: int) -> None:
    allocator.empty_cache()


def empty_now_and_then(allocator: FakeAllocator, batch: int) -> None:
    """As at the end of an epoch."""
    if batch == 150:
        allocator.empty_cache()


def retry(allocator: FakeAllocator, batch: int) -> None:
    if batch % 10 == 9:
        allocator.empty_cache()
        allocator.retries += 1


def need_another_segment(allocator: FakeAllocator, batch: int) -> None:
    allocator.device_allocs += batch % 2


def found(report: Report) -> dict[str, str]:
    assert [n for n in report.not_evaluated if n.why.startswith("failed")] == []
    return {f.rule: f.severity for f in report.findings if f.rule in RULES}


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (nothing, {}),
        (empty, {"empty-cache-in-loop": "warning"}),
        (empty_now_and_then, {}),
        (retry, {"alloc-retries": "warning"}),
        (need_another_segment, {"cudamalloc-steady": "info"}),
    ],
)
def test_what_the_allocator_does_in_steady_steps(fault: Any, expected: dict[str, str], tmp_path: Path) -> None:
    model = Faulty(FakeAllocator(held=WEIGHTS), fault, nap_s=0.02)
    assert found(fit(tmp_path, model, steps=200 if fault is empty_now_and_then else 80, reports=["json"])) == expected


@pytest.mark.parametrize(("held_mib", "severity"), [(0, None), (4, "info"), (14, "warning")])
def test_a_device_that_is_full(held_mib: int, severity: str | None, tmp_path: Path) -> None:
    allocator = FakeAllocator(160 * MIB, held=WEIGHTS + held_mib * MIB)
    report = fit(tmp_path, Hungry(allocator, nap_s=0.01), steps=40, reports=["json"])
    assert report.memory.devices[0].allocated_peak_bytes == PEAK + held_mib * MIB
    assert found(report) == ({} if severity is None else {"oom-risk": severity})


def test_a_run_that_runs_out_of_memory(tmp_path: Path) -> None:
    report, _ = fit_until_out_of_memory(tmp_path, Hungry(FakeAllocator(held=WEIGHTS), oom_at=20), reports=["json"])
    assert found(report) == {"oom-risk": "critical"}
    finding = next(f for f in report.findings if f.rule == "oom-risk")
    assert finding.summary.startswith("Out of memory at batch ")
    assert "1,024 GiB were requested" in finding.summary
    assert finding.advice.startswith("Activations hold most")
    assert report.findings[0].severity == "critical"


@pytest.mark.slow
@pytest.mark.parametrize(("leak_bytes", "expected"), [(0, {}), (8 * MIB, {"memory-leak": "info"})])
def test_memory_that_stays_from_step_to_step(leak_bytes: int, expected: dict[str, str], tmp_path: Path) -> None:
    allocator = FakeAllocator(1 << 40, held=WEIGHTS)
    report = fit(tmp_path, Hungry(allocator, leak_bytes=leak_bytes, nap_s=0.1), steps=80, reports=["json"])
    assert found(report) == expected  # in one epoch; the new segments for it are not the cause
    growth = next(row for row in report.memory.growth if row.what == "gpu0 allocated")
    assert growth.bytes_per_step == pytest.approx(leak_bytes, rel=0.01)
    assert (growth.p_value < 0.01) is bool(leak_bytes)


def test_on_a_cpu_no_rule_has_anything_to_tell(tmp_path: Path) -> None:
    report = plain_fit(tmp_path, Planted(), profiler=quiet_profiler())
    assert not found(report)
    assert not {n.rule for n in report.not_evaluated} & RULES
