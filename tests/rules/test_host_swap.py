from __future__ import annotations

from typing import Any

import pytest
from feeding_builder import level
from metrics_builder import build

from lightning_gpuprof.model.host import HostUse, MachineUse, PressureUse, ProcessUse
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.input.host_swap import HostSwap

RULE = HostSwap()


def planted(
    swapping: int | None = 24, *, faults: float = 300.0, full: float | None = None, shm: float = 0.1, **changes: Any
) -> Metrics:
    machine = MachineUse(
        swapping_samples=swapping,
        swap_in_bytes_per_s=level(changes.pop("read", 4e6)),
        shm_used_ratio=level(shm),
        shm_size_bytes=64e6,
        memory_available_min_bytes=2e8,
    )
    pressure = () if full is None else (PressureUse(scope="cgroup", resource="memory", full_ratio=level(full)),)
    process = ProcessUse(major_faults_per_s=faults)
    return build(host=HostUse(samples=60, machine=machine, process=process, pressure=pressure), **changes)


def test_pages_of_this_run_that_come_back_from_swap() -> None:
    finding = RULE.check(planted())
    assert finding is not None
    assert finding.severity == "warning"
    assert "Memory came back from swap in 24 of 60 samples, 4 MB/s on average" in finding.summary
    assert "num_workers is 2 and prefetch_factor 2, 4 batches: DataLoader(..., num_workers=1, prefetch_factor=1)" in (
        finding.advice
    )
    assert "0.2 GB at the least" in finding.advice
    assert finding.gain is None


def test_standing_still_for_memory_is_what_can_be_gained() -> None:
    finding = RULE.check(planted(faults=0.0, full=0.2))
    assert finding is not None
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(10.0)


def test_swap_of_others_is_no_matter() -> None:
    assert RULE.check(planted(faults=2.0)) is None
    assert RULE.check(planted(faults=2.0, full=0.01)) is None


def test_pages_that_only_leave_are_no_matter() -> None:
    assert RULE.check(planted(read=0.0)) is None


def test_faults_without_swap_are_mapped_files() -> None:
    assert RULE.check(planted(0)) is None


@pytest.mark.parametrize(("swapping", "fires"), [(5, False), (6, True)])
def test_a_tenth_of_the_samples_decides(swapping: int, fires: bool) -> None:
    assert (RULE.check(planted(swapping)) is not None) is fires


@pytest.mark.parametrize(("shm", "fires"), [(0.89, False), (0.9, True)])
def test_shared_memory_that_is_almost_full(shm: float, fires: bool) -> None:
    finding = RULE.check(planted(0, shm=shm))
    assert (finding is not None) is fires
    assert finding is None or "--shm-size" in finding.advice


def test_shared_memory_is_no_matter_without_workers() -> None:
    assert RULE.check(planted(0, shm=0.95, num_workers=0)) is None


def test_what_was_not_measured_is_not_judged() -> None:
    with pytest.raises(MissingSignal, match="0 samples of the host"):
        RULE.check(build(host=HostUse()))
    with pytest.raises(MissingSignal, match="neither swap traffic"):
        RULE.check(build(host=HostUse(samples=60, machine=MachineUse())))
