"""What streams did, alone and beside each other, and how much work was in their queues."""

from collections import Counter
from functools import cache
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from recorded_traces import TRUTH, recorded_trace
from tiny_traces import Json, linked_trace, span

from lightning_gpuprof.model.trace.streams import DeviceStreams, QueueDepth, Streams
from lightning_gpuprof.trace.analyses.calls.queue_depth import queue_depth
from lightning_gpuprof.trace.analyses.calls.streams import streams_of
from lightning_gpuprof.trace.tables import Int64

recorded = pytest.mark.skipif(not TRUTH, reason="no recorded traces beside the repository (../shared/traces)")


def work(
    category: str, start: float, end: float, stream: int | None, launch: float | None = None, name: str = "gemm"
) -> list[Json]:
    correlation = int(start * 1000 + (stream or 0))
    event = span(category, name, start, end - start, pid=0, tid=7)
    event["args"] = {"device": 0, "correlation": correlation} | ({} if stream is None else {"stream": stream})
    if launch is None:
        return [event]
    return [span("cuda_runtime", "cudaLaunchKernel", launch, 2, correlation=correlation), event]


def streams(events: list[Json], **options: int) -> Streams:
    return streams_of(linked_trace(events), **options)


def device(events: list[Json]) -> DeviceStreams:
    (one,) = streams(events).devices
    return one


def three_streams() -> list[Json]:
    """Window 0 to 100. Stream 7 computes [0, 40) and [50, 80), 9 copies [30, 60), 13 communicates [55, 100)."""
    return [
        *work("kernel", 0, 40, 7),
        *work("kernel", 50, 70, 7),
        *work("kernel", 65, 80, 7),
        *work("gpu_memcpy", 30, 60, 9, name="Memcpy HtoD (Pinned -> Device)"),
        *work("gpu_memset", 60, 61, 9, name="Memset (Device)"),
        *work("kernel", 55, 100, 13, name="ncclDevKernel_AllReduce_Sum_f32"),
    ]


def test_each_stream_has_its_work_and_its_busy_time() -> None:
    one = device(three_streams())
    assert [row.stream for row in one.streams] == [7, 13, 9]
    compute, communication, copies = one.streams
    assert (compute.works, compute.kernels, compute.copies, compute.memsets) == (3, 3, 0, 0)
    assert (copies.works, copies.kernels, copies.copies, copies.memsets) == (2, 0, 1, 1)
    assert (compute.busy_us, communication.busy_us, copies.busy_us) == (70, 45, 31)
    assert (compute.window_ratio, compute.device_busy_ratio) == (0.7, 0.7)
    assert (compute.communicates, communication.communicates, copies.communicates) == (False, True, False)
    assert (compute.communication_us, communication.communication_us) == (0, 45)


def test_overlap_is_the_time_beside_any_other_stream() -> None:
    compute, communication, copies = device(three_streams()).streams
    assert compute.overlap_us == 10 + 30  # [30, 40) and [50, 80)
    assert compute.overlap_ratio == pytest.approx(40 / 70)
    assert communication.overlap_us == 25  # [55, 80)
    assert copies.overlap_us == 10 + 11  # [30, 40) and [50, 61)


def test_times_with_so_many_streams_sum_to_the_window() -> None:
    found = device(three_streams()).concurrency
    assert (found.none_us, found.one_us, found.two_us, found.more_us) == (0, 30 + 10 + 20, 10 + 5 + 19, 6)
    assert found.max == 3
    assert found.mean == pytest.approx((60 + 2 * 34 + 3 * 6) / 100)


def test_a_gap_is_time_with_no_stream() -> None:
    found = device([*work("kernel", 0, 10, 7), *work("kernel", 25, 30, 9)]).concurrency
    assert (found.none_us, found.one_us, found.two_us, found.more_us, found.max) == (15, 15, 0, 0, 1)


def test_copies_are_exposed_while_no_kernel_runs_on_any_stream() -> None:
    one = device(three_streams())
    compute, communication, copies = one.streams
    assert (copies.copy_us, copies.exposed_copy_us) == (30, 10)  # [40, 50)
    assert (compute.copy_us, communication.exposed_copy_us) == (0, 0)
    assert (one.copy_us, one.exposed_copy_us) == (30, 10)


def test_a_stream_that_runs_works_beside_each_other_counts_their_union() -> None:
    (only,) = device([*work("kernel", 0, 20, 7), *work("kernel", 10, 30, 7)]).streams
    assert (only.busy_us, only.overlap_us) == (30, 0)


def test_work_without_a_stream_is_a_stream_that_is_not_known() -> None:
    (only,) = device(work("kernel", 0, 20, None)).streams
    assert only.stream is None


def test_work_is_in_the_queue_from_its_launch_to_its_end() -> None:
    events = [
        *work("kernel", 10, 20, 7, launch=0),  # launched 10 before the window
        *work("kernel", 20, 40, 7, launch=5),
        *work("kernel", 60, 70, 7, launch=50),
        *work("kernel", 90, 110, 9),  # its launch is not in the trace
    ]
    one = device(events)
    # from 10: two until 20, one until 40, none until 50, one until 70, none until 90, one until 110
    assert one.queue.mean == pytest.approx((2 * 10 + 20 + 20 + 20) / 100)
    assert one.queue.max == 2
    assert one.queue.empty_ratio == pytest.approx(30 / 100)
    assert one.unmatched == 1
    first, second = one.streams
    assert (first.stream, first.unmatched, second.unmatched) == (7, 0, 1)
    assert first.queue.empty_ratio == pytest.approx(50 / 100)
    assert second.queue.empty_ratio == pytest.approx(80 / 100)
    assert second.queue.mean == pytest.approx(0.2)


def test_a_launch_after_the_begin_of_its_work_is_taken_as_the_begin() -> None:
    one = device(work("kernel", 10, 20, 7, launch=12))
    assert (one.queue.mean, one.queue.empty_ratio) == (1, 0)


def ns_columns(*rows: tuple[int, int]) -> tuple[Int64, Int64]:
    return np.array([a for a, _ in rows], np.int64), np.array([b for _, b in rows], np.int64)


def test_a_series_has_the_mean_and_the_maximum_of_each_stretch() -> None:
    found = queue_depth(*ns_columns((0, 30), (10, 20), (15, 20), (70, 100)), (0, 100), 5)
    assert found.bin_us == 0.02
    # [0, 20): one, with a second from 10 and a third from 15
    assert found.means == ((20 + 10 + 5) / 20, 10 / 20, 0, 10 / 20, 20 / 20)
    assert found.maxima == (3, 1, 0, 1, 1)
    assert (found.mean, found.max, found.empty_ratio) == (75 / 100, 3, 0.4)


def test_work_that_is_done_in_the_moment_the_next_begins_is_not_beside_it() -> None:
    found = queue_depth(*ns_columns((0, 10), (10, 20)), (0, 20), 2)
    assert (found.max, found.maxima, found.empty_ratio) == (1, (1, 1), 0)


def test_a_window_shorter_than_the_series_has_fewer_stretches() -> None:
    found = queue_depth(*ns_columns((0, 3)), (0, 3), 400)
    assert found.means == (1, 1, 1)
    assert queue_depth(*ns_columns((0, 3)), (0, 3), 0).means == ()


def test_a_window_without_length() -> None:
    found = queue_depth(*ns_columns((5, 5)), (5, 5), 400)
    assert (found.mean, found.max, found.empty_ratio, found.means) == (0, 0, 0, ())


@pytest.mark.parametrize("seed", range(5))
def test_a_queue_is_that_of_a_count_moment_by_moment(seed: int) -> None:
    random = np.random.default_rng(seed)
    start = random.integers(0, 900, 60)
    end = np.minimum(start + random.integers(0, 200, 60), 1000)
    launched = start - random.integers(0, 50, 60)  # some before the window
    found = queue_depth(launched, end, (0, 1000), 37)
    entered = np.maximum(launched, 0)
    depth = [int(((entered <= t) & (t < end)).sum()) for t in range(1000)]
    edges = [n * 1000 // 37 for n in range(38)]
    stretches = [depth[a:b] for a, b in pairwise(edges)]
    assert found.mean == pytest.approx(sum(depth) / 1000)
    assert found.max == max(depth)
    assert found.empty_ratio == Counter(depth)[0] / 1000
    assert found.means == tuple(round(sum(one) / len(one), 3) for one in stretches)
    assert found.maxima == tuple(max(one) for one in stretches)


def test_only_the_busiest_streams_have_a_series() -> None:
    events = [event for n in range(12) for event in work("kernel", 100 * n, 100 * n + 10 + n, n)]
    (one,) = streams(events, points=50).devices
    assert len(one.streams) == 12
    assert [bool(row.queue.means) for row in one.streams] == [True] * 8 + [False] * 4
    assert len(one.queue.means) == len(one.queue.maxima) == 50


@pytest.mark.parametrize("events", [[], [span("cpu_op", "aten::relu", 0, 5)]])
def test_without_device_work_there_are_no_streams(events: list[Json]) -> None:
    assert streams(events).devices == ()


def test_work_without_duration_has_no_shares() -> None:
    one = device(work("kernel", 5, 5, 7))
    (only,) = one.streams
    assert (only.window_ratio, only.device_busy_ratio, only.overlap_ratio) == (None, None, None)
    assert (one.concurrency.mean, one.concurrency.max) == (None, 0)


@cache
def measured(name: str) -> Streams:
    return streams_of(recorded_trace(name))


def ns(us: float) -> int:
    return round(us * 1000)


def assert_fits(queue: QueueDepth, window_us: float) -> None:
    assert 0 <= queue.empty_ratio <= 1
    assert 0 <= queue.mean <= queue.max
    assert len(queue.means) == len(queue.maxima) <= 400
    if queue.means:
        assert max(queue.maxima) == queue.max
        assert sum(queue.means) / len(queue.means) == pytest.approx(queue.mean, abs=0.01 + queue.max * 1e-3)
        assert queue.bin_us * len(queue.means) == pytest.approx(window_us)


@recorded
@pytest.mark.parametrize("name", sorted(TRUTH) or ["none"])
def test_recorded_streams_add_up(name: str) -> None:
    truth = TRUTH[name]["devices"]
    assert {one.device for one in measured(name).devices} == set(truth)
    for one in measured(name).devices:
        assert len(one.streams) == truth[one.device]["streams"]
        assert one.works == truth[one.device]["n"] == sum(row.works for row in one.streams)
        assert one.unmatched == sum(row.unmatched for row in one.streams)
        found = one.concurrency
        assert ns(found.none_us) + ns(found.one_us) + ns(found.two_us) + ns(found.more_us) == ns(one.window_us)
        assert ns(one.window_us) - ns(found.none_us) == ns(one.busy_us)
        alone_ns = sum(ns(row.busy_us) - ns(row.overlap_us) for row in one.streams)
        assert alone_ns == ns(found.one_us)
        assert one.exposed_copy_us <= one.copy_us <= one.busy_us
        assert_fits(one.queue, one.window_us)
        assert one.queue.empty_ratio * one.window_us <= found.none_us + 1e-6
        for row in one.streams:
            assert row.works == row.kernels + row.copies + row.memsets
            assert 0 <= row.overlap_us <= row.busy_us <= one.busy_us
            assert row.exposed_copy_us <= row.copy_us <= row.busy_us
            assert row.communication_us <= row.busy_us
            assert_fits(row.queue, one.window_us)
    assert msgspec.json.decode(msgspec.json.encode(measured(name)), type=Streams) == measured(name)


@recorded
def test_a_stream_of_collectives_beside_the_computation() -> None:
    (one,) = measured("v100_2rank_rank1_comm_heavy.json.gz").devices
    compute, communication = one.streams
    assert (compute.communicates, communication.communicates) == (False, True)
    truth = TRUTH["v100_2rank_rank1_comm_heavy.json.gz"]["devices"]["1"]
    assert communication.communication_us == truth["comm_us"]
    assert communication.overlap_us == truth["comm_comp_overlap_us"]


@recorded
def test_a_host_far_ahead_of_its_device_fills_the_queue_that_cuda_has() -> None:
    (one,) = measured("v100_ns_resolution.json.gz").devices
    assert 900 < one.queue.max <= 1024
    assert one.queue.empty_ratio < 0.01
