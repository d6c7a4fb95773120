"""The timeline of the median step: which step, what is in its lanes, and that it stays small."""

from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest
from recorded_traces import TRACES
from tiny_traces import Json, kernel, linked_trace, span, step, training_step

from lightning_gpuprof.model.trace.timeline import Timeline, TimelineLane
from lightning_gpuprof.trace.analyses.idle.idle import idle_times
from lightning_gpuprof.trace.analyses.operators.step_trace import step_trace
from lightning_gpuprof.trace.analyses.timeline.timeline import MAX_PARTS, MAX_STREAMS, MAX_THREADS, timeline
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace

LARGE = ("v100_2rank_rank1_comm_heavy", "a100_8rank_rank3_callstack", "v100_resnet50_dl0_2021")
RECORDED = sorted(
    path for path in TRACES.glob("*.json.gz") if path.stat().st_size < 200_000 or path.name.startswith(LARGE)
)
FETCH = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
MAX_BYTES = 100_000


def timeline_of(events: list[Json]) -> Timeline:
    found = timeline(linked_trace(events))
    assert found is not None
    return found


def lane(found: Timeline, kind: str) -> TimelineLane:
    (one,) = (one for one in found.lanes if one.kind == kind)
    return one


def parts(one: TimelineLane) -> list[tuple[str, float, float]]:
    return [
        (one.names[name], start, start + length)
        for name, start, length in zip(one.name, one.start_us, one.length_us, strict=True)
    ]


def test_the_step_with_the_median_period_is_shown_and_not_the_mean_or_the_first() -> None:
    edges = [0, 900, 1000, 1130, 1250, 1400]
    found = timeline_of([step(n, a, b - a) for n, (a, b) in enumerate(pairwise(edges))])
    assert (found.step, found.duration_us, found.steps) == ("ProfilerStep#2", 130, 5)


def test_a_period_reaches_to_the_next_step() -> None:
    # the ranges last 10, 50 and 30, but the second and third step begin after 100 and 200
    found = timeline_of([step(1, 0, 10), step(2, 100, 50), step(3, 300, 30), step(4, 340, 500)])
    assert found.step == "ProfilerStep#1"


def test_of_two_in_the_middle_the_shorter_one_is_shown() -> None:
    assert timeline_of([step(1, 0, 100), step(2, 100, 80)]).step == "ProfilerStep#2"


def test_phases_streams_calls_and_gaps_of_a_step() -> None:
    found = timeline_of(training_step())
    assert [one.kind for one in found.lanes] == ["phases", "operators", "calls", "stream", "stream", "idle"]
    assert parts(lane(found, "phases")) == [("data_wait", 0, 30), ("forward", 30, 70)]
    assert parts(lane(found, "operators")) == [("aten::linear", 30, 70)]
    calls = lane(found, "calls")
    assert parts(calls) == [("cudaLaunchKernel", 40, 45), ("cuLaunchKernel", 46, 51), ("cudaMemcpyAsync", 60, 65)]
    assert [calls.kinds[name] for name in calls.name] == ["launch", "launch", "call"]
    first, second = (one for one in found.lanes if one.kind == "stream")
    assert (first.device, first.stream, second.stream) == ("0", 7, 9)
    assert parts(first) == [("before the window", 5, 10), ("gemm", 50, 70), ("Memcpy HtoD", 90, 95)]
    assert [first.kinds[name] for name in first.name] == ["compute", "compute", "copy"]
    assert parts(lane(found, "idle")) == [
        ("data", 10, 30),
        ("launch", 30, 40),
        ("launch_latency", 40, 50),
        ("queued", 80, 90),
    ]


def test_gaps_are_those_of_the_step_and_not_of_its_neighbours() -> None:
    events = [
        step(1, 0, 100),
        step(2, 100, 100),
        step(3, 200, 150),
        span("user_annotation", FETCH, 120, 30),
        span("cuda_runtime", "cudaLaunchKernel", 10, 2, correlation=1),
        kernel("a", 20, 40, correlation=1),
        span("cuda_runtime", "cudaLaunchKernel", 160, 2, correlation=2),
        kernel("b", 170, 10, correlation=2),
        span("cuda_runtime", "cudaLaunchKernel", 300, 2, correlation=3),
        kernel("c", 310, 10, correlation=3),
    ]
    linked = linked_trace(events)
    found = timeline(linked)
    assert found.step == "ProfilerStep#2"
    (device,) = idle_times(linked).devices
    told = next(one for one in device.steps if one.step == found.step)
    gaps = lane(found, "idle")
    assert {row.name: row.time_us for row in gaps.sums} == told.causes_us
    assert gaps.total_us == pytest.approx(told.idle_us)
    assert sum(gaps.time_us) == pytest.approx(told.idle_us)
    assert all(0 <= start <= found.duration_us for start in gaps.start_us)


@pytest.mark.skipif(not RECORDED, reason="no recorded traces beside the repository (../shared/traces)")
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_recorded_traces_agree_with_the_other_analyses_and_stay_small(path: Path) -> None:
    linked = LinkedTrace(Trace.read(path, processes=1))
    found = timeline(linked)
    assert len(msgspec.json.encode(found)) < MAX_BYTES
    assert sum(len(one.name) for one in found.lanes) <= MAX_PARTS
    for one in found.lanes:
        assert {len(column) for column in (one.start_us, one.length_us, one.time_us, one.name, one.count)} == {
            len(one.name)
        }
        assert list(one.start_us) == sorted(one.start_us)
        assert sum(one.time_us) == pytest.approx(one.total_us, abs=0.01)
        assert sum(row.time_us for row in one.sums) == pytest.approx(one.total_us, abs=0.01)
        assert sum(row.count for row in one.sums) == sum(one.count)
        assert min(one.start_us) >= 0
        assert max(np.add(one.start_us, one.length_us)) <= found.duration_us + 0.001
    gaps = {one.device: one for one in found.lanes if one.kind == "idle"}
    for device in idle_times(linked).devices:
        for told in device.steps:
            if told.step == found.step and told.idle_us:
                assert gaps[device.device].total_us == pytest.approx(told.idle_us, abs=0.01)
                by_cause = {row.name: row.time_us for row in gaps[device.device].sums}
                assert by_cause == pytest.approx(told.causes_us, abs=0.01)
    told_phases = next((row.phases_us for row in step_trace(linked).steps if row.name == found.step), {})
    phases = [one for one in found.lanes if one.kind == "phases"]
    assert {row.name: row.time_us for one in phases for row in one.sums} == pytest.approx(
        {phase: us for phase, us in told_phases.items() if us}
    )


def test_a_step_of_many_thousand_kernels_has_few_parts_that_hold_all_their_time() -> None:
    rng = np.random.default_rng(7)
    lengths = rng.uniform(0.5, 1.5, 30_000).round(3)
    lengths[15_000] = 5_000
    starts = np.cumsum(lengths) - lengths
    events = [step(1, 0, float(lengths.sum()))]
    events += [
        kernel(f"kernel {n % 5000} {'x' * 300}", round(float(s), 3), float(d))
        for n, (s, d) in enumerate(zip(starts, lengths, strict=True))
    ]
    found = timeline_of(events)
    work = lane(found, "stream")
    assert len(work.name) <= 500
    assert len(msgspec.json.encode(found)) < MAX_BYTES
    assert sum(work.count) == 30_000
    assert sum(work.time_us) == pytest.approx(float(lengths.sum()), rel=1e-6)
    longest = int(np.argmax(work.length_us))
    assert (work.length_us[longest], work.count[longest]) == (5_000, 1)
    assert work.names[work.name[longest]].startswith("kernel 0 ")


def test_threads_and_streams_beyond_the_most_are_counted() -> None:
    events = [step(1, 0, 1000)]
    events += [kernel("k", 10 + n, 50 + n, stream=n) for n in range(MAX_STREAMS + 2)]
    events += [span("cpu_op", "aten::mm", 10, 20 + n, tid=n + 1) for n in range(MAX_THREADS + 1)]
    found = timeline_of(events)
    assert found.left_out == 2 + 1
    assert [one.stream for one in found.lanes if one.kind == "stream"] == list(range(2, MAX_STREAMS + 2))
    assert next(one for one in found.lanes if one.kind == "operators").main


def test_calls_that_wait_and_that_allocate_are_told_apart() -> None:
    events = [
        step(1, 0, 100),
        span("cuda_runtime", "cudaLaunchKernel", 5, 2, correlation=1),
        span("cuda_runtime", "cudaMalloc", 10, 5),
        span("cuda_runtime", "cudaMemcpyAsync", 30, 20, correlation=2),
        span("cuda_runtime", "cudaStreamSynchronize", 60, 20),
        kernel("ncclKernel_AllReduce", 10, 20, correlation=1),
        span("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 35, 10, pid=0, tid=7, device=0, stream=7, correlation=2),
    ]
    found = timeline_of(events)
    calls, work = lane(found, "calls"), lane(found, "stream")
    assert [calls.kinds[name] for name in calls.name] == ["launch", "memory", "wait", "wait"]
    assert [work.kinds[name] for name in work.name] == ["communication", "copy"]


def test_without_a_device_there_are_phases_and_operators() -> None:
    events = [
        step(1, 0, 100),
        span("user_annotation", FETCH, 0, 20),
        span("cpu_op", "aten::linear", 30, 40),
        span("cpu_op", "aten::addmm", 35, 20),
    ]
    found = timeline_of(events)
    assert [one.kind for one in found.lanes] == ["phases", "operators"]
    assert parts(lane(found, "operators")) == [("aten::linear", 30, 70)]


def test_without_steps_the_whole_window_is_shown_and_without_events_nothing() -> None:
    found = timeline_of([span("cpu_op", "aten::mm", 10, 5), span("cpu_op", "aten::mm", 20, 5)])
    assert (found.step, found.steps, found.duration_us) == ("whole window", 0, 15)
    assert timeline(linked_trace([])) is None
