from __future__ import annotations

import pytest
from findings_builder import fired
from ranks_builder import job, on_device

from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.ranks.load_imbalance import LoadImbalance
from lightning_gpuprof.rules.ranks.straggler_rank import StragglerRank

RULE = LoadImbalance()


def test_a_wait_that_the_device_s_work_covers_costs_nothing() -> None:
    ranks = job(0.0, slowest=0.28, imbalance_ms=12.0)
    assert RULE.check(on_device(ranks, 2.0)) is None
    assert fired(RULE, on_device(ranks, 8.0)).gain.saved_ms_per_step == pytest.approx(9.0)


def test_a_straggler_is_told_by_its_own_rule_only() -> None:
    found = diagnose(job(16.0, imbalance_ms=12.0), (RULE, StragglerRank())).findings
    assert [one.rule for one in found] == ["straggler-rank"]


@pytest.mark.parametrize(("ms", "fires"), [(4.99, False), (5.01, True)])
def test_the_boundary_is_a_tenth_of_the_step(ms: float, fires: bool) -> None:
    assert (RULE.check(job(0.0, slowest=0.25, imbalance_ms=ms, lower=1.0)) is not None) is fires
