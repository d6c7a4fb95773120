from __future__ import annotations

from typing import Any

import host_builder
import pytest
from findings_builder import fired
from metrics_builder import build

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.memory.host_leak import HostLeak

RULE = HostLeak()


def growing(mib: float, *, epochs: int = 4, **more: Any) -> Metrics:
    return build(host=host_builder.growing(mib, **more), epochs=epochs)


def test_a_list_that_keeps_tensors_is_found_with_the_time_that_is_left() -> None:
    finding = fired(RULE, growing(1024.0))
    assert finding.severity == "critical"
    assert finding.subject == "main process"
    assert "from 524 MB to 1.6 GB so far. The 21.5 GB left last 0.56 h." in finding.summary
    assert "Net or a callback" in finding.advice
    assert finding.gain is None


def test_the_limit_of_the_control_group_counts_if_it_is_nearer() -> None:
    finding = fired(RULE, growing(100.0, left_gib=200.0, limit_gib=3.0))
    assert finding.severity == "critical"
    assert "The 2.15 GB left" in finding.summary


@pytest.mark.parametrize(("left_gib", "severity"), [(3.0, "critical"), (5.5, "warning"), (1000.0, "info")])
def test_the_severity_goes_by_the_time_that_is_left(left_gib: float, severity: str) -> None:
    assert fired(RULE, growing(100.0, left_gib=left_gib)).severity == severity


def test_pages_that_workers_copy_after_a_fork_are_no_leak() -> None:
    assert RULE.check(growing(1024.0, of="workers")) is None


def test_what_was_seen_for_a_short_time_foretells_no_long_one() -> None:
    found = [RULE.check(growing(100.0, left_gib=left_gib)) for left_gib in (0.5, 7.0)]  # 60 times 100 s: 5.9 GiB
    assert [f and f.severity for f in found] == ["critical", "info"]


def test_pages_of_files_are_no_leak() -> None:
    assert RULE.check(growing(1024.0, of="process")) is None


@pytest.mark.parametrize(("even", "fires"), [(0.4, False), (0.6, True), (None, False)])
def test_growth_in_a_few_jumps_is_none(even: float | None, fires: bool) -> None:
    """Layers that are unfrozen: their optimizer state is made once."""
    assert (RULE.check(growing(1024.0, even=even)) is not None) is fires


def test_growth_that_may_be_chance_is_none() -> None:
    assert RULE.check(growing(1024.0, p_value=0.005)) is None


@pytest.mark.parametrize(("left_gib", "severity"), [(3.0, "warning"), (4.0, "info"), (50.0, "info")])
def test_in_the_first_epochs_it_is_a_warning_only_if_memory_ends_within_an_hour(left_gib: float, severity: str) -> None:
    """A dataset that is cached grows, too, until all of it was read."""
    assert fired(RULE, growing(100.0, left_gib=left_gib, epochs=2)).severity == severity


@pytest.mark.parametrize(("mib", "first_mib", "fires"), [(63, 500, False), (65, 500, True), (65, 2000, False)])
def test_both_the_least_growth_and_its_least_share_must_be_passed(mib: float, first_mib: float, fires: bool) -> None:
    assert (RULE.check(growing(mib, first_mib=first_mib)) is not None) is fires


def test_what_was_not_measured_is_not_judged() -> None:
    with pytest.raises(MissingSignal, match="less than 20 times"):
        RULE.check(build())
