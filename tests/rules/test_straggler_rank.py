from __future__ import annotations

import pytest
from device_builder import collective, distributed
from metrics_builder import build, replace, share

from lightning_gpuprof.model.metrics import Metrics, RankShare, RankTimes
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.ranks.straggler_rank import StragglerRank

RULE = StragglerRank()


def job(
    excess_ms: float,
    *,
    slowest: float = 0.95,
    steps: int = 100,
    late: int = 1,
    ranks: int = 4,
    lower: float = 0.98,
    imbalance_ms: float = 0.0,
) -> Metrics:
    """Steps of 50 ms in which one rank takes so much longer in its forward than the median of the others."""
    metrics = build(run={"trainer.world_size": ranks})
    told = tuple(
        RankShare(
            rank=rank,
            host=f"node{rank // 2}",
            excess=share(excess_ms if rank == late else 0.0, 50.0, lower=lower),
            excess_by_phase_ms={"data_wait": 0.1, "forward": excess_ms if rank == late else 0.0},
            slowest_ratio=slowest if rank == late else (1 - slowest) / (ranks - 1),
        )
        for rank in range(ranks)
    )
    return replace(
        metrics,
        ranks=RankTimes(
            world_size=ranks,
            steps=steps,
            phases=("data_wait", "forward"),
            imbalance=share(imbalance_ms, 50.0, lower=lower),
            ranks=told,
        ),
    )


def test_it_names_the_rank_its_host_and_the_phase() -> None:
    finding = RULE.check(job(12.0, late=3))
    assert finding is not None
    assert finding.severity == "critical"
    assert finding.subject == "rank 3"
    assert finding.summary.startswith("Rank 3 on node1 takes 12.0 ms longer than the others in a step of 50.0 ms")
    assert "12.0 ms of it in forward" in finding.summary
    assert finding.gain is not None
    assert finding.explains == claims.COMMUNICATION
    assert finding.gain.saved_ms_per_step == pytest.approx(12.0)


def test_ranks_that_are_late_in_turn_are_no_stragglers() -> None:
    assert RULE.check(job(12.0, slowest=0.3)) is None


def test_equal_ranks_are_quiet() -> None:
    assert RULE.check(job(0.5)) is None


def test_one_rank_is_quiet() -> None:
    assert RULE.check(build()) is None


@pytest.mark.parametrize(("excess_ms", "fires"), [(4.99, False), (5.01, True)])
def test_the_boundary_is_a_tenth_of_the_step(excess_ms: float, fires: bool) -> None:
    assert (RULE.check(job(excess_ms, lower=1.0)) is not None) is fires


@pytest.mark.parametrize(("slowest", "fires"), [(0.59, False), (0.61, True)])
def test_the_same_rank_must_be_slowest(slowest: float, fires: bool) -> None:
    assert (RULE.check(job(12.0, slowest=slowest)) is not None) is fires


def on_device(of: Metrics, exposed_ms: float) -> Metrics:
    """The same ranks on devices that are idle for 1 ms of 50 and do nothing but communicate for so long."""
    return replace(distributed([collective(exposed_ms / 2)]), ranks=of.ranks)


def test_a_wait_that_the_device_s_work_covers_costs_nothing() -> None:
    assert RULE.check(on_device(job(12.0), 2.0)) is None


def test_on_a_device_the_gain_is_at_most_what_it_waits() -> None:
    finding = RULE.check(on_device(job(12.0), 8.0))
    assert finding is not None
    assert finding.severity == "warning"
    assert "takes 12.0 ms longer" in finding.summary
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(9.0)
    assert finding.confidence == 0.8


def test_without_a_window_a_device_may_cover_it() -> None:
    finding = RULE.check(replace(on_device(job(12.0), 8.0), windows=()))
    assert finding is not None
    assert finding.confidence == 0.5


def test_few_steps_in_common_do_not_make_it_critical() -> None:
    finding = RULE.check(job(12.0, steps=15))
    assert finding is not None
    assert finding.severity == "warning"


def test_it_is_not_evaluated_without_all_journals_or_with_few_steps() -> None:
    with pytest.raises(MissingSignal, match="journals of all ranks"):
        RULE.check(build(run={"trainer.world_size": 2}))
    metrics = job(12.0)
    assert metrics.ranks is not None
    some = replace(metrics.ranks, ranks=metrics.ranks.ranks[:2])
    with pytest.raises(MissingSignal, match="journals of all ranks"):
        RULE.check(replace(metrics, ranks=some))
    with pytest.raises(MissingSignal, match="9 steps"):
        RULE.check(job(12.0, steps=9))
