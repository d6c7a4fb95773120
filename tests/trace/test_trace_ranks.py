"""Ranks of one window: transfer against waiting, the late rank, and traces that do not belong together."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import pytest
from recorded_traces import recorded_trace
from tiny_traces import Json, document, span, write

from lightning_gpuprof.errors import TraceError
from lightning_gpuprof.model.trace.ranks import RanksComparison
from lightning_gpuprof.trace.analyses.communication.communication import communication_of
from lightning_gpuprof.trace.analyses.communication.rank_window import (
    file_beside,
    rank_window,
    read_beside,
    write_beside,
)
from lightning_gpuprof.trace.analyses.communication.ranks import compare_ranks as compare_windows
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace


def compare_ranks(traces: Sequence[LinkedTrace], *, names: Sequence[str] | None = None) -> RanksComparison:
    return compare_windows([rank_window(trace) for trace in traces], names=names)


ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
BROADCAST = "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


class TraceOfRank:
    """Builds the trace of a rank; each collective is launched 1 us before it starts."""

    def __init__(self, rank: int | None, world_size: int = 2, **tail: object) -> None:
        self.events: list[Json] = []
        self.tail = dict(tail)
        if rank is not None:
            self.tail["distributedInfo"] = {"rank": rank, "world_size": world_size, "backend": "nccl"}
        self._correlation = 0

    def kernel(self, name: str, ts: float, dur: float, **args: object) -> TraceOfRank:
        self._correlation += 1
        launch = span("cuda_runtime", "cudaLaunchKernel", ts - 1, 1, correlation=self._correlation)
        where = {"pid": 0, "tid": 7, "device": 0, "stream": 7, "correlation": self._correlation}
        self.events += [launch, span("kernel", name, ts, dur, **where, **args)]
        return self

    def step(self, number: int, ts: float, dur: float) -> TraceOfRank:
        self.events.append(span("user_annotation", f"ProfilerStep#{number}", ts, dur))
        return self

    def linked(self, folder: Path) -> LinkedTrace:
        return LinkedTrace(Trace.read(write(folder / "trace.json", document(self.events, **self.tail))))


def two_ranks(folder: Path) -> list[LinkedTrace]:
    """Rank 0 comes first to both all-reduces, at 10 and 200; rank 1 computes 40 us longer before each of them."""
    early = TraceOfRank(0).kernel(ALL_REDUCE, 10, 70).kernel("gemm", 80, 100).kernel(ALL_REDUCE, 200, 60)
    late = TraceOfRank(1).kernel(ALL_REDUCE, 50, 30).kernel("gemm", 80, 140).kernel(ALL_REDUCE, 240, 20)
    return [early.linked(folder), late.linked(folder)]


def test_the_shortest_duration_is_the_transfer_and_the_rest_is_waiting(tmp_path: Path) -> None:
    found = compare_ranks(two_ranks(tmp_path))
    assert found.matched == 2
    assert [(one.transfer_us, one.waiting_us) for one in found.ranks] == [(50.0, 80.0), (50.0, 0.0)]
    assert [one.waiting_in_first_us for one in found.ranks] == [40.0, 0.0]
    assert [(one.last, one.caused_us) for one in found.ranks] == [(0, 0.0), (2, 80.0)]
    (kind,) = found.kinds
    assert (kind.kind, kind.count, kind.transfer_us, kind.waiting_us) == ("all_reduce", 2, 100.0, 80.0)
    assert kind.waiting_ratio == 80 / 180


def test_the_late_rank_is_named_with_what_it_does_longer(tmp_path: Path) -> None:
    late = compare_ranks(two_ranks(tmp_path)).late
    assert (late.rank, late.waiting_us, late.others_waiting_us, late.last_ratio) == (1, 0.0, 80.0, 1.0)
    assert late.consistent
    assert (late.excess_between_us, late.excess_computation_us) == (160.0 - 120.0, 40.0)
    (excess,) = late.excess_by_class
    assert (excess.kernel_class, excess.rank_us, excess.others_median_us, excess.excess_us) == ("gemm", 140, 100, 40)


def test_ranks_that_are_late_in_turn_are_not_called_consistently_late(tmp_path: Path) -> None:
    one = TraceOfRank(0).kernel(ALL_REDUCE, 10, 70).kernel(ALL_REDUCE, 200, 20)
    other = TraceOfRank(1).kernel(ALL_REDUCE, 50, 30).kernel(ALL_REDUCE, 160, 60)
    late = compare_ranks([one.linked(tmp_path), other.linked(tmp_path)]).late
    assert (late.last_ratio, late.consistent) == (0.5, False)


def test_lateness_comes_from_durations_where_clocks_do_not_agree(tmp_path: Path) -> None:
    early, late = TraceOfRank(0), TraceOfRank(1)
    early.kernel(ALL_REDUCE, 10, 70)
    late.kernel(ALL_REDUCE, 7_050, 30)  # this host's clock is 7 ms ahead
    found = compare_ranks([early.linked(tmp_path), late.linked(tmp_path)])
    assert (found.ends_apart_us, found.clocks_agree) == (7000.0, False)
    assert [one.clock_offset_us for one in found.ranks] == [-3500.0, 3500.0]
    assert found.collectives[0].start_skew_us is None
    assert (found.collectives[0].waiting_us, found.collectives[0].late_rank) == ((40.0, 0.0), 1)
    assert any("clocks of the ranks differ" in note for note in found.notes)


def test_starts_are_compared_where_ends_show_that_clocks_agree(tmp_path: Path) -> None:
    early = TraceOfRank(0, baseTimeNanoseconds=1_000_000)
    late = TraceOfRank(1, baseTimeNanoseconds=0)
    early.kernel(ALL_REDUCE, 10, 70)
    late.kernel(ALL_REDUCE, 1050, 30)  # the same moments, counted from another base
    found = compare_ranks([early.linked(tmp_path), late.linked(tmp_path)])
    assert (found.clocks_agree, found.ends_apart_us) == (True, 0.0)
    assert found.collectives[0].start_skew_us == 40.0


def test_collectives_are_matched_within_their_step(tmp_path: Path) -> None:
    whole = TraceOfRank(0).step(3, 0, 100).step(4, 100, 100).kernel(ALL_REDUCE, 10, 5).kernel(ALL_REDUCE, 110, 30)
    part = TraceOfRank(1).step(4, 100, 100).kernel(ALL_REDUCE, 130, 10)
    found = compare_ranks([whole.linked(tmp_path), part.linked(tmp_path)])
    (matched,) = found.collectives
    assert (matched.step, matched.transfer_us, matched.waiting_us) == ("ProfilerStep#4", 10.0, (20.0, 0.0))
    (unmatched,) = found.unmatched
    assert (unmatched.step, unmatched.counts, unmatched.why) == ("ProfilerStep#3", (1, 0), "on one rank only")
    assert [one.unmatched for one in found.ranks] == [1, 0]
    assert any("same steps: 1 are in all" in note for note in found.notes)


def test_collectives_that_are_not_equally_often_there_are_not_matched(tmp_path: Path) -> None:
    one = TraceOfRank(0).kernel(ALL_REDUCE, 10, 5).kernel(ALL_REDUCE, 20, 5)
    other = TraceOfRank(1).kernel(ALL_REDUCE, 10, 5)
    found = compare_ranks([one.linked(tmp_path), other.linked(tmp_path)])
    assert (found.matched, found.collectives, found.late, found.clocks_agree) == (0, (), None, None)
    assert found.unmatched[0].counts == (2, 1)
    assert any("No collective appears in two traces" in note for note in found.notes)


def test_sizes_tell_collectives_apart_where_all_are_known(tmp_path: Path) -> None:
    def rank(number: int, first: int, second: int) -> LinkedTrace:
        built = TraceOfRank(number)
        for ts, elements in ((10, first), (50, second)):
            sizes = {"In_msg_nelems": elements, "Out_msg_nelems": elements, "dtype": "Float", "Group_size": 2}
            built.kernel(ALL_REDUCE, ts, elements / 100, Collective_name="allreduce", **sizes)
        return built.linked(tmp_path)

    # with a bucket of 3000 elements on rank 0 only, order alone would match it with one of 1000
    found = compare_ranks([rank(0, 3000, 1000), rank(1, 1000, 2000)])
    assert [(one.message_bytes, one.transfer_us) for one in found.collectives] == [(4000, 10.0)]
    assert sorted(one.message_bytes or 0 for one in found.unmatched) == [8000, 12000]


def test_nobody_is_late_to_a_broadcast_whose_sender_need_not_wait(tmp_path: Path) -> None:
    one, other = TraceOfRank(0).kernel(BROADCAST, 10, 5), TraceOfRank(1).kernel(BROADCAST, 10, 50)
    found = compare_ranks([one.linked(tmp_path), other.linked(tmp_path)])
    assert (found.matched, found.late, found.collectives[0].late_rank) == (1, None, None)


def test_point_to_point_transfers_are_not_matched(tmp_path: Path) -> None:
    ranks = [TraceOfRank(number).kernel(SEND_RECV, 10, 5).linked(tmp_path) for number in range(2)]
    found = compare_ranks(ranks)
    assert found.matched == 0
    assert found.unmatched[0].why == "the trace does not name the peers"


def test_what_was_launched_before_the_window_is_not_matched(tmp_path: Path) -> None:
    ranks = []
    for number in range(2):
        built = TraceOfRank(number).kernel(ALL_REDUCE, 100, 10)
        early = span("kernel", ALL_REDUCE, 5, 10, pid=0, tid=7, device=0, stream=7, correlation=-5)
        built.events.append(early)
        ranks.append(built.linked(tmp_path))
    found = compare_ranks(ranks)
    assert found.matched == 1
    assert found.unmatched[0].why == "launched before the window"


def test_ranks_come_in_order_and_missing_ones_are_said(tmp_path: Path) -> None:
    ranks = [TraceOfRank(number, 4).kernel(ALL_REDUCE, 10, 5).linked(tmp_path) for number in (3, 1)]
    found = compare_ranks(ranks, names=["three", "one"])
    assert [(one.rank, one.trace) for one in found.ranks] == [(1, "one"), (3, "three")]
    assert found.missing_ranks == (0, 2)
    assert any("2 of 4 ranks were given" in note for note in found.notes)


def test_traces_that_name_no_rank_are_numbered(tmp_path: Path) -> None:
    ranks = [TraceOfRank(None).kernel(ALL_REDUCE, 10, 5).linked(tmp_path) for _ in range(2)]
    found = compare_ranks(ranks)
    assert [one.rank for one in found.ranks] == [0, 1]
    assert found.world_size is None
    assert any("numbered in the order given" in note for note in found.notes)


def test_windows_far_apart_are_said_to_be(tmp_path: Path) -> None:
    one, other = TraceOfRank(0).kernel(ALL_REDUCE, 10, 5), TraceOfRank(1).kernel(ALL_REDUCE, 60e6, 5)
    found = compare_ranks([one.linked(tmp_path), other.linked(tmp_path)])
    assert any("60 s apart" in note for note in found.notes)


def test_traces_without_communication_give_what_there_is(tmp_path: Path) -> None:
    cpu = TraceOfRank(0)
    cpu.events.append(span("cpu_op", "aten::add", 0, 5))
    found = compare_ranks(
        [cpu.linked(tmp_path), TraceOfRank(1).kernel("gemm", 5, 10).linked(tmp_path)], names=["a", "b"]
    )
    assert [(one.device, one.computation_us) for one in found.ranks] == [(None, None), ("0", 10.0)]
    assert [one.idle_us for one in found.ranks] == [None, 0.0]
    for one in found.ranks:  # no collective was matched: that is no waiting of 0
        assert (one.matched, one.transfer_us, one.waiting_us, one.last, one.caused_us) == (0, None, None, None, None)
    assert any("No NCCL or RCCL kernels in a, b" in note for note in found.notes)


def test_a_rank_without_a_device_does_not_count_among_the_others(tmp_path: Path) -> None:
    cpu = TraceOfRank(2)
    cpu.events.append(span("cpu_op", "aten::add", 0, 5))
    late = compare_ranks([*two_ranks(tmp_path), cpu.linked(tmp_path)]).late
    assert late is not None
    assert (late.rank, late.others_waiting_us, late.excess_between_us) == (1, 80.0, 40.0)
    assert [one.others_median_us for one in late.excess_by_class] == [100.0]


@pytest.mark.parametrize("count", [0, 1])
def test_one_trace_cannot_be_compared(tmp_path: Path, count: int) -> None:
    ranks = [TraceOfRank(0).kernel(ALL_REDUCE, 10, 5).linked(tmp_path)] * count
    with pytest.raises(TraceError, match="at least two ranks"):
        compare_ranks(ranks)


def test_a_rank_that_is_given_twice_is_refused_by_name(tmp_path: Path) -> None:
    rank = TraceOfRank(0).kernel(ALL_REDUCE, 10, 5).linked(tmp_path)
    with pytest.raises(TraceError, match=r"a\.json and b\.json: both are rank 0\. Give one trace for each rank"):
        compare_ranks([rank, copy.copy(rank)], names=["a.json", "b.json"])


def test_jobs_of_different_sizes_are_refused(tmp_path: Path) -> None:
    ranks = [TraceOfRank(number, size).linked(tmp_path) for number, size in ((0, 2), (1, 8))]
    with pytest.raises(TraceError, match="a is of 2, b is of 8"):
        compare_ranks(ranks, names=["a", "b"])


def test_a_trace_without_rank_among_others_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="b: does not name its rank"):
        compare_ranks([TraceOfRank(0).linked(tmp_path), TraceOfRank(None).linked(tmp_path)], names=["a", "b"])


def test_what_a_rank_keeps_beside_its_trace_is_the_same(tmp_path: Path) -> None:
    traces = two_ranks(tmp_path)
    kept = []
    for number, trace in enumerate(traces):
        file = tmp_path / f"rank{number}.1.pt.trace.json.gz"
        file.write_bytes(bytes(number + 1))
        write_beside(rank_window(trace), file)
        kept.append(read_beside(file))
    assert all(window is not None for window in kept)
    assert compare_windows(kept) == compare_ranks(traces)


def test_what_is_kept_of_another_trace_or_is_damaged_does_not_count(tmp_path: Path) -> None:
    file = tmp_path / "rank0.1.pt.trace.json.gz"
    file.write_bytes(b"trace")
    assert read_beside(file) is None
    write_beside(rank_window(two_ranks(tmp_path)[0]), file)
    whole = file_beside(file).read_bytes()
    for damaged in (
        whole[:-9],
        whole.replace(b'"of_class":[0', b'"of_class":[9'),
        whole.replace(b'"step":[', b'"step":[7,'),
    ):
        file_beside(file).write_bytes(damaged)
        assert read_beside(file) is None
    file_beside(file).write_bytes(whole)
    assert read_beside(file) is not None
    file.write_bytes(b"another trace")
    assert read_beside(file) is None


def test_eight_real_ranks_fit_together(shared: Path) -> None:
    files = sorted((shared / "traces").glob("v100_dlrm_8rank_*.json.gz"))
    ranks = [recorded_trace(file.name) for file in files]
    found = compare_ranks(ranks)
    assert [one.rank for one in found.ranks] == list(range(8))
    assert (found.matched, found.unmatched, found.missing_ranks) == (8, (), ())
    for rank, linked in zip(found.ranks, ranks, strict=True):
        durations_us = sum(kind.total_us for kind in communication_of(linked).kinds)
        assert rank.transfer_us + rank.waiting_us == pytest.approx(durations_us)
        assert rank.computation_us + rank.communication_us + rank.idle_us >= 0.9 * rank.window_us
    # these ran on one host: starts by its clock say, independently, what durations say
    assert found.clocks_agree
    for one in found.collectives:
        assert one.start_skew_us == pytest.approx(max(one.waiting_us), abs=5)
        assert min(one.waiting_us) == 0
    assert sum(one.caused_us for one in found.ranks) == sum(one.waiting_us for one in found.ranks)
    assert (found.late.rank, found.late.last_ratio) == (7, 5 / 8)
