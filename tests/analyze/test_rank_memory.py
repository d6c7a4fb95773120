"""Peaks of the ranks' GPU memory: left in summaries, compared where they are of the same part of the model."""

from pathlib import Path

import msgspec
import pytest
from built_journals import journal
from msgspec.structs import replace

from lightning_gpuprof.analyze.all_ranks import build, rank_memory
from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.analyze.rank_summary import OtherRanks, summarise
from lightning_gpuprof.model.journal import Sample, Value
from lightning_gpuprof.model.missing import Unmeasured
from lightning_gpuprof.model.rank_memory import RankMemory
from lightning_gpuprof.model.rank_summary import RankSummary

GIB = 2.0**30


def rank(number: int, tensors: float | None, used: float | None = None, *, of: int = 3, **more: Value) -> Journal:
    """A rank on ``gpu1`` with peaks in GiB, of which the last reading is not the largest; 1 GiB is reserved beyond."""
    one = journal(40)
    samples = [
        Sample(
            source="memory",
            subject=f"gpu1 {phase}",
            t_ns=number,
            values={"allocated_peak_bytes": gib * GIB, "reserved_peak_bytes": (gib + 1) * GIB},
        )
        for gib, phase in (() if tensors is None else ((tensors / 2, "forward"), (tensors, "backward")))
    ]
    for gib in () if used is None else (used, used / 2):
        samples.append(Sample(source="nvml", subject="gpu1", t_ns=number, values={"memory_used_bytes": gib * GIB}))
    samples.append(Sample(source="nvml", subject="gpu0", t_ns=number, values={"memory_used_bytes": 70 * GIB}))
    conditions = {**one.conditions, "device.type": "cuda", "memory.gpu1.total_bytes": int(80 * GIB), **more}
    header = msgspec.structs.replace(one.header, rank=number, world_size=of, job="j")
    return replace(one, header=header, samples=samples, conditions=conditions)


def left_by(one: Journal) -> RankSummary:
    """As other ranks read it."""
    return msgspec.json.decode(msgspec.json.encode(summarise(one)), type=RankSummary)


def compared(*ranks: Journal) -> RankMemory:
    own, *others = map(left_by, ranks)
    found = rank_memory(own, others)
    assert isinstance(found, RankMemory)
    return found


def test_the_peak_and_what_is_beyond_it_are_in_the_summary() -> None:
    need = left_by(rank(1, 20.0, 35.0)).gpu_need
    assert need is not None
    assert (need.tensors_bytes, need.outside_bytes, need.total_bytes) == (20 * GIB, 14 * GIB, 80 * GIB)
    assert need.needed_bytes == 34 * GIB
    assert left_by(rank(1, None, 35.0)).gpu_need is None


def test_the_fullest_and_the_emptiest_are_known_by_all_that_is_in_use() -> None:
    found = compared(rank(1, 20.0, 22.0), rank(0, 20.0, 35.0), rank(2, 24.0, 26.0))
    assert [one.rank for one in found.ranks] == [0, 1, 2]
    assert (found.fullest.rank, found.emptiest.rank) == (0, 1)


def test_what_is_not_known_of_one_rank_counts_for_none() -> None:
    found = compared(rank(0, 20.0, 35.0), rank(1, 21.0, None))
    assert [one.gpu.outside_bytes for one in found.ranks] == [None, None]
    assert found.fullest.rank == 1


def test_ranks_with_another_part_of_the_model_are_left_out() -> None:
    stages = [rank(number, 20.0 + number, **{"trainer.pipeline_stage": number // 2}) for number in range(4)]
    assert [one.rank for one in compared(*stages).ranks] == [0, 1]


@pytest.mark.parametrize("other", [rank(1, None), rank(1, 20.0, of=4)])
def test_a_rank_without_another_one_is_not_compared(other: Journal) -> None:
    found = rank_memory(left_by(rank(0, 20.0)), [left_by(other)])
    assert isinstance(found, Unmeasured)
    assert found.why == "the peak of GPU memory is known of 1 rank of 3, 2 are needed"


def test_only_a_run_of_several_ranks_is_asked(tmp_path: Path) -> None:
    alone = build(rank(0, 20.0, of=1), tmp_path / "rank0.jsonl", OtherRanks(), [], [])
    assert alone.rank_memory is None
    beside = OtherRanks(summaries=[left_by(rank(1, 30.0))])
    together = build(rank(0, 20.0), tmp_path / "rank0.jsonl", beside, [], [])
    assert isinstance(together.rank_memory, RankMemory)
