"""Ranks side by side: known delays in journals flow in, excess and turns flow out."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from built_journals import journal

from lightning_gpuprof.analyze.journal import Journal
from lightning_gpuprof.analyze.rank_times import rank_times

N = 100


def rank(number: int, forward_ms: object = None, *, of: int = 2, device: str = "cpu", stage: str = "fit") -> Journal:
    one = journal(N, forward_ms=np.full(N, 5.0) if forward_ms is None else forward_ms)
    header = msgspec.structs.replace(one.header, rank=number, world_size=of, stage=stage)
    return replace(one, header=header, conditions={**one.conditions, "device.type": device})


def test_the_late_rank_has_the_excess_and_is_the_slowest() -> None:
    found = rank_times([rank(0), rank(1, np.full(N, 7.0))])
    assert found is not None
    quick, late = found.ranks
    assert (quick.rank, late.rank, found.world_size) == (0, 1, 2)
    assert late.excess.median_ms == pytest.approx(2.0)
    assert quick.excess.median_ms == pytest.approx(-2.0)
    assert late.slowest_ratio == 1.0
    assert max(late.excess_by_phase_ms, key=late.excess_by_phase_ms.__getitem__) == "forward"
    assert found.imbalance.median_ms == pytest.approx(1.0)
    assert late.phases_ms == {"data_wait": 4.0, "forward": 7.0, "callbacks": 1.0}
    assert (quick.period_ms, late.period_ms) == (10.0, 12.0)
    assert sum(late.phases_ms.values()) == late.period_ms


def test_ranks_that_are_late_in_turn_share_the_steps() -> None:
    even, odd = np.where(np.arange(N) % 2, 5.0, 9.0), np.where(np.arange(N) % 2, 9.0, 5.0)
    found = rank_times([rank(0, even), rank(1, odd)])
    assert found is not None
    assert [one.slowest_ratio for one in found.ranks] == pytest.approx([0.5, 0.5], abs=0.02)
    assert found.imbalance.median_ms == pytest.approx(2.0)


def test_the_order_of_the_journals_does_not_matter() -> None:
    ranks = [rank(0, of=3), rank(1, np.full(N, 7.0), of=3), rank(2, of=3)]
    assert rank_times(ranks) == rank_times(ranks[::-1])


def test_other_numbers_of_the_ranks_permute_what_is_said_of_them() -> None:
    forward_ms = [np.full(N, 5.0), np.full(N, 7.0), np.full(N, 6.0)]
    numbers = [2, 0, 1]
    before = rank_times([rank(number, ms, of=3) for number, ms in enumerate(forward_ms)])
    after = rank_times([rank(number, ms, of=3) for number, ms in zip(numbers, forward_ms, strict=True)])
    assert before is not None
    assert after is not None
    assert after.imbalance == before.imbalance
    assert [after.ranks[number] for number in numbers] == [
        replace(one, rank=number) for one, number in zip(before.ranks, numbers, strict=True)
    ]


def test_on_a_device_only_the_wait_for_batches_is_a_rank_s_own() -> None:
    found = rank_times([rank(0, device="cuda"), rank(1, np.full(N, 7.0), device="cuda")])
    assert found is not None
    assert found.phases == ("data_wait",)
    assert found.imbalance.median_ms == 0


def test_journals_that_do_not_belong_together_are_not_compared() -> None:
    assert rank_times([]) is None
    assert rank_times([rank(0)]) is None
    assert rank_times([rank(0, of=1), rank(1, of=1)]) is None
    assert rank_times([rank(0), rank(1, stage="validate")]) is None
    other = rank(1)
    later = msgspec.structs.replace(other.header, epoch_ns=other.header.epoch_ns + 3_600_000_000_000)
    assert rank_times([rank(0), replace(other, header=later)]) is None
