from __future__ import annotations

import pytest
from findings_builder import fired
from metrics_builder import replace
from ranks_builder import job, on_device

from lightning_gpuprof.rules.ranks.straggler_rank import StragglerRank

RULE = StragglerRank()


@pytest.mark.parametrize(("excess_ms", "fires"), [(4.99, False), (5.01, True)])
def test_the_boundary_is_a_tenth_of_the_step(excess_ms: float, fires: bool) -> None:
    assert (RULE.check(job(excess_ms, lower=1.0)) is not None) is fires


@pytest.mark.parametrize(("slowest", "fires"), [(0.59, False), (0.61, True)])
def test_the_same_rank_must_be_slowest(slowest: float, fires: bool) -> None:
    assert (RULE.check(job(12.0, slowest=slowest)) is not None) is fires


def test_a_wait_that_the_device_s_work_covers_costs_nothing() -> None:
    assert RULE.check(on_device(job(12.0), 2.0)) is None


def test_on_a_device_the_gain_is_at_most_what_it_waits() -> None:
    finding = fired(RULE, on_device(job(12.0), 8.0))
    assert finding.severity == "warning"
    assert "takes 12.0 ms longer" in finding.summary
    assert finding.gain.saved_ms_per_step == pytest.approx(9.0)
    assert finding.confidence == 0.8


def test_without_a_window_a_device_may_cover_it() -> None:
    assert fired(RULE, replace(on_device(job(12.0), 8.0), windows=())).confidence == 0.5
