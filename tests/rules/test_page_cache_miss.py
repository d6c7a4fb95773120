from __future__ import annotations

from typing import Any

import msgspec
import pytest
from feeding_builder import level, starved, worker_row
from metrics_builder import build, replace

from lightning_gpuprof.model.host import MachineUse, Reading
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.input.page_cache_miss import PageCacheMiss

RULE = PageCacheMiss()


def planted(
    disk: float | None = 11e9,
    calls: float | None = 10e9,
    *,
    seconds: float = 13.0,
    state_d: float | None = 0.6,
    **changes: Any,
) -> Metrics:
    row = worker_row(cpu=0.2, delay=0.05, disk=state_d)
    metrics = starved(**{"rows": (row, row), "usable_cpus": 2.0, "worker_cpus": 0.4, **changes})
    later = Reading(epochs=7, seconds=seconds, disk_bytes=disk, call_bytes=calls)
    machine = MachineUse(memory_available_bytes=level(1e9))
    return replace(metrics, host=msgspec.structs.replace(metrics.host, later_epochs=later, machine=machine))


def test_it_says_how_much_comes_from_the_disk_and_whether_it_would_fit() -> None:
    finding = RULE.check(planted())
    assert finding is not None
    assert finding.severity == "critical"
    assert "Epochs after the first read 11 GB from disks, 1.57 GB each: 100 % of all that was read" in finding.summary
    assert "it does not fit into the 1 GB of memory" in finding.advice
    small = RULE.check(planted(5e9, 5e9))
    assert small is not None
    assert "it would fit into the 1 GB of memory" in small.advice


@pytest.mark.parametrize(("disk", "fires"), [(4.9e9, False), (5.1e9, True)])
def test_half_of_what_is_read_decides(disk: float, fires: bool) -> None:
    assert (RULE.check(planted(disk)) is not None) is fires


def test_workers_that_do_not_wait_for_the_disk_are_no_matter() -> None:
    assert RULE.check(planted(state_d=0.1)) is None


def test_little_reading_is_no_dataset() -> None:
    assert RULE.check(planted(1e6, 1e6)) is None


def test_it_is_quiet_where_steps_do_not_wait_and_in_one_epoch() -> None:
    assert RULE.check(planted(items_ms=12.0)) is None
    assert RULE.check(planted(workers=0)) is None
    assert RULE.check(build()) is None
    assert RULE.check(starved(rows=(worker_row(cpu=0.2, disk=0.6),))) is None


def test_what_was_not_measured_is_not_judged() -> None:
    with pytest.raises(MissingSignal, match="read from disks was not measured"):
        RULE.check(planted(None))
    with pytest.raises(MissingSignal, match=r"4\.0 s after the first epoch"):
        RULE.check(planted(seconds=4.0))
    with pytest.raises(MissingSignal, match="whether workers wait for disks"):
        RULE.check(planted(state_d=None))
