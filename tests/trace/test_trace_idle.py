"""Why a device was idle: hand-made gaps whose cause is written out, and the longest gaps' stories."""

import pytest
from tiny_traces import Json, linked_trace, span

from lightning_gpuprof.model.trace.idle import DeviceIdle, Idle
from lightning_gpuprof.sinks.window_tables.idle import chunk_table
from lightning_gpuprof.trace.analyses.idle.idle import idle_times

MAIN, AUTOGRAD, OTHER = 1, 2, 3


def work(
    launch: float | None,
    start: float,
    end: float,
    correlation: int,
    *,
    tid: int = MAIN,
    stream: int = 7,
    **more: object,
) -> list[Json]:
    """A kernel with its launch, which takes 5 µs; times in µs."""
    kernel = span("kernel", more.get("name", "gemm"), start, end - start, pid=0, tid=stream, device=0)
    kernel["args"] = {"device": more.get("device", 0), "stream": stream, "correlation": correlation}
    if launch is None:
        return [kernel]
    call = span("cuda_runtime", "cudaLaunchKernel", launch, more.get("held", 5), tid=tid, correlation=correlation)
    return [call, kernel]


def idle(events: list[Json], **options: int) -> Idle:
    return idle_times(linked_trace(events), **options)


def device(events: list[Json]) -> DeviceIdle:
    (one,) = idle(events).devices
    return one


def causes(one: DeviceIdle) -> dict[str, float]:
    return {row.cause: row.idle_us for row in one.causes}


def late(tid: int = MAIN) -> list[Json]:
    """A device that runs dry at 20, and gets its next launch at 50 and its work at 58."""
    return [*work(5, 10, 20, 11), *work(50, 58, 70, 12, tid=tid)]


def test_a_late_launch_is_the_host_s_until_the_call_and_latency_after_it() -> None:
    one = device(late())
    assert (one.window_us, one.busy_us, one.idle_us, one.gaps) == (60, 22, 38, 1)
    assert causes(one) == {"launch": 30, "launch_latency": 8}
    assert [row.cause for row in one.causes] == ["launch", "launch_latency"]
    assert one.causes[0].idle_ratio == pytest.approx(30 / 38)
    assert one.causes[0].window_ratio == pytest.approx(30 / 60)
    assert one.causes[0].gaps == 1


def test_work_launched_in_time_is_queued_or_back_to_back() -> None:
    events = [*work(0, 10, 20, 11), *work(6, 24, 30, 12), *work(12, 35, 40, 13)]
    assert causes(device(events)) == {"back_to_back": 4, "queued": 5}


@pytest.mark.parametrize(
    ("event", "cause"),
    [
        (span("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 25, 20), "data"),
        (span("cpu_op", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 25, 20), "data"),
        (span("user_annotation", "[pl][profile][Callback]Progress.on_train_batch_end", 25, 20), "callbacks"),
        (span("user_annotation", "[pl][profile][Strategy]SingleDevice.validation_step", 25, 20), "validation"),
        (span("user_annotation", "[pl][profile]save_checkpoint", 25, 20), "checkpoint"),
        (span("overhead", "Buffer Flush", 25, 20, pid=-1, tid=0), "profiler"),
        (span("python_function", "torch/profiler/profiler.py(700): step", 25, 20, Python_id=1), "profiler"),
        (span("cuda_runtime", "cudaMalloc", 25, 20), "allocator"),
        (span("cuda_runtime", "cudaFree", 25, 20), "allocator"),
        (span("cpu_op", "c10d::allreduce_", 25, 20), "communication"),
        (span("user_annotation", "nccl:all_reduce", 25, 20), "communication"),
        (span("cuda_runtime", "cudaStreamSynchronize", 25, 20), "host_sync"),
        (span("cpu_op", "aten::linear", 25, 20), "launch"),
    ],
)
def test_what_the_host_was_in_claims_that_part_of_the_gap(event: Json, cause: str) -> None:
    expected = {"launch": 10.0, "launch_latency": 8.0}
    expected[cause] = expected.get(cause, 0) + 20
    assert causes(device([*late(), event])) == expected


@pytest.mark.parametrize("name", ["enumerate(DataLoader)#x.__next__", "[pl][profile][Callback]P.on_fit_end"])
def test_the_main_thread_counts_also_when_autograd_launches(name: str) -> None:
    events = [*late(AUTOGRAD), span("user_annotation", name, 25, 20), span("cpu_op", "aten::relu", 0, 3)]
    found = causes(device(events))
    assert found["launch"] == 10
    assert found["launch_latency"] == 8
    assert len(found) == 3


def test_what_a_thread_does_that_launches_nothing_explains_no_gap() -> None:
    events = [
        *late(),
        span("user_annotation", "enumerate(DataLoader)#x.__next__", 25, 20, tid=OTHER),
        span("cuda_runtime", "cudaEventSynchronize", 25, 20, tid=OTHER),
        span("cuda_runtime", "cudaHostAlloc", 25, 20, tid=OTHER),
    ]
    assert causes(device(events)) == {"launch": 30, "launch_latency": 8}


def test_of_two_causes_at_one_moment_the_first_of_the_list_counts() -> None:
    events = [
        *late(),
        span("user_annotation", "[pl][profile][Callback]P.on_train_batch_end", 20, 30),
        span("user_annotation", "enumerate(DataLoader)#x.__next__", 25, 10),
        span("cuda_runtime", "cudaMalloc", 36, 4),
        span("cuda_runtime", "cudaDeviceSynchronize", 41, 4),
    ]
    assert causes(device(events)) == {"data": 10, "callbacks": 20, "launch_latency": 8}


def test_a_wait_costs_as_much_of_the_idle_time_after_it_as_the_host_had_waited() -> None:
    # the host waits from 15 to 105 for work that ends at 100, and launches at 300: 5 of the wait are idle, 85 not
    wait = span("cuda_runtime", "cudaStreamSynchronize", 15, 90)
    one = device([*work(5, 10, 100, 11), wait, *work(300, 308, 320, 12)])
    assert causes(one) == {"launch": 110, "host_sync": 90, "launch_latency": 8}


def test_a_wait_costs_no_more_than_the_idle_time_that_follows() -> None:
    wait = span("cuda_runtime", "cudaStreamSynchronize", 15, 90)
    one = device([*work(5, 10, 100, 11), wait, *work(150, 158, 170, 12), *work(400, 408, 420, 13)])
    assert causes(one) == {"launch": 230, "host_sync": 50, "launch_latency": 16}


def test_a_fetch_after_a_wait_is_data() -> None:
    events = [
        *work(5, 10, 100, 11),
        span("cuda_runtime", "cudaStreamSynchronize", 15, 90),
        span("user_annotation", "enumerate(DataLoader)#x.__next__", 105, 185),
        *work(300, 308, 320, 12),
    ]
    assert causes(device(events)) == {"data": 185, "launch": 10, "launch_latency": 8, "host_sync": 5}


def test_a_copy_to_pageable_memory_holds_the_host_as_a_wait_does() -> None:
    copy = span("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 20, 40, pid=0, tid=7, correlation=12)
    copy["args"] = {"device": 0, "stream": 7, "correlation": 12, "bytes": 4}
    call = span("cuda_runtime", "cudaMemcpyAsync", 11, 51, correlation=12)  # until 62; the copy ends at 60
    one = device([*work(5, 10, 20, 11), call, copy, *work(100, 108, 120, 13)])
    assert causes(one) == {"host_sync": 40, "launch_latency": 8}
    pinned = {**copy, "name": "Memcpy DtoH (Device -> Pinned)"}
    assert causes(device([*work(5, 10, 20, 11), call, pinned, *work(100, 108, 120, 13)])) == {
        "launch": 40,
        "launch_latency": 8,
    }


def test_a_host_that_launches_nothing_for_long_was_at_other_work() -> None:
    events = [*work(5, 10, 20, 11), *work(1020, 1028, 1030, 12), *work(2031, 2039, 2040, 13)]
    assert causes(device(events)) == {"host_work": 1001, "launch": 1000, "launch_latency": 16}


def test_a_launch_call_that_holds_the_host_for_long_is_other_work() -> None:
    events = [*work(5, 10, 20, 11), *work(50, 3060, 3070, 12, held=3000)]
    assert causes(device(events)) == {"host_work": 3030, "launch_latency": 10}


def test_a_gap_without_the_launch_of_its_work_is_unexplained() -> None:
    fetch = span("user_annotation", "enumerate(DataLoader)#x.__next__", 25, 20)
    assert causes(device([*work(5, 10, 20, 11), fetch, *work(None, 58, 70, 12)])) == {"unexplained": 38}


def test_work_before_another_of_its_stream_was_launched_before_it() -> None:
    lost = work(None, 58, 70, 12)
    assert causes(device([*work(5, 10, 20, 11), *lost, *work(15, 70, 80, 13)])) == {"queued": 38}
    of_other_stream = work(15, 70, 80, 13, stream=9)
    assert causes(device([*work(5, 10, 20, 11), *lost, *of_other_stream])) == {"unexplained": 38}


def test_work_of_any_stream_ends_a_gap_and_keeps_the_device_busy() -> None:
    events = [*work(0, 10, 50, 11), *work(5, 20, 60, 12, stream=9), *work(70, 80, 90, 13, stream=9)]
    one = device(events)
    assert (one.window_us, one.busy_us, one.idle_us) == (80, 60, 20)
    assert causes(one) == {"launch": 10, "launch_latency": 10}


def test_of_works_that_begin_together_the_one_launched_first_ends_the_gap() -> None:
    events = [*work(5, 10, 20, 11), *work(40, 58, 70, 12), *work(50, 58, 60, 13, stream=9)]
    assert causes(device(events)) == {"launch": 20, "launch_latency": 18}


def test_work_that_begins_before_its_launch_by_another_clock_has_no_latency() -> None:
    assert causes(device([*work(5, 10, 20, 11), *work(60, 58, 70, 12)])) == {"launch": 38}


def test_a_graph_s_kernels_have_one_launch() -> None:
    graph = [*work(5, 10, 20, 11), *work(None, 22, 30, 11), *work(None, 40, 50, 11)]
    assert causes(device(graph)) == {"back_to_back": 2, "queued": 10}


def test_each_device_has_its_own_gaps() -> None:
    second = [*work(0, 10, 20, 21, device=1, stream=3), *work(90, 100, 110, 22, device=1, stream=3)]
    found = idle([*late(), *second])
    assert [one.device for one in found.devices] == ["0", "1"]
    assert [causes(one)["launch"] for one in found.devices] == [30, 70]


def steps(*bounds: tuple[int, int]) -> list[Json]:
    return [span("user_annotation", f"ProfilerStep#{n}", a, b - a) for n, (a, b) in enumerate(bounds, 5)]


def test_idle_time_outside_of_steps_is_between_steps() -> None:
    # idle from 20 to 58 with a launch at 50; no step from 30 to 40
    one = device([*late(), *steps((0, 30), (40, 100))])
    assert causes(one) == {"launch": 20, "between_steps": 10, "launch_latency": 8}
    first, second = one.steps
    assert (first.step, first.start_us, first.step_us, first.window_us) == ("ProfilerStep#5", -10, 30, 20)
    assert (first.busy_us, first.idle_us, first.causes_us) == (10, 10, {"launch": 10})
    assert (second.step, second.start_us, second.step_us, second.window_us) == ("ProfilerStep#6", 30, 60, 30)
    assert (second.busy_us, second.idle_us) == (12, 18)
    assert second.causes_us == {"launch": 10, "launch_latency": 8}
    assert second.busy_ratio == pytest.approx(12 / 30)


def test_a_cause_is_counted_once_for_a_gap_that_lies_in_two_steps() -> None:
    one = device([*late(), *steps((0, 30), (30, 100))])
    assert {row.cause: row.gaps for row in one.causes} == {"launch": 1, "launch_latency": 1}


def test_other_work_is_told_by_the_whole_gap_not_by_its_part_in_a_step() -> None:
    one = device([*work(5, 10, 20, 11), *work(1420, 1428, 1430, 12), *steps((0, 700), (700, 2000))])
    assert [step.causes_us for step in one.steps] == [{"host_work": 680}, {"host_work": 720, "launch_latency": 8}]


def test_steps_that_lie_outside_of_the_device_s_window_are_left_out() -> None:
    one = device([*late(), *steps((0, 9), (9, 70), (80, 90))])
    assert [step.step for step in one.steps] == ["ProfilerStep#6"]


def test_where_the_host_was_while_it_launched_too_slowly() -> None:
    events = [
        *late(),
        span("cpu_op", "aten::linear", 25, 10),
        span("cpu_op", "aten::addmm", 27, 6),
        span("cuda_runtime", "cudaEventQuery", 28, 3),
        span("cuda_runtime", "cudaMalloc", 40, 2),
        span("user_annotation", "## forward ##", 0, 100),
    ]
    one = device(events)
    assert causes(one) == {"launch": 28, "launch_latency": 8, "allocator": 2}
    assert (one.host.calls_us, one.host.operators_us, one.host.elsewhere_us) == (3, 7, 18)


def test_a_trace_without_operators_does_not_say_how_long_the_host_was_in_them() -> None:
    one = device(late())
    assert (one.host.calls_us, one.host.operators_us, one.host.elsewhere_us) == (0, None, 30)


def test_a_trace_says_which_causes_it_has_no_record_of() -> None:
    assert idle(late()).unseen == ("data", "checkpoint", "callbacks", "validation", "between_steps")
    fetch = span("user_annotation", "enumerate(DataLoader)#x.__next__", 25, 20)
    assert idle([*late(), fetch, *steps((0, 100))]).unseen == ("checkpoint", "callbacks", "validation")
    nccl = work(12, 72, 80, 13, name="ncclKernel_AllReduce")
    assert "communication" in idle([*late(), *nccl]).unseen
    assert "host_sync" in idle(work(None, 1, 2, 1)).unseen


def test_the_story_of_the_longest_gap() -> None:
    stack = [
        ("train.py(3): <module>", 0, 100, 1),
        ("train.py(10): fit", 1, 98, 2),
        ("torch/nn/functional.py(7): linear", 24, 25, 3),
    ]
    events = [
        *work(5, 10, 20, 11, name="relu"),
        *work(50, 58, 70, 12, name="gemm"),
        *work(52, 72, 80, 13),
        *steps((0, 100)),
        span("user_annotation", "## forward ##", 21, 60),
        span("cpu_op", "aten::linear", 25, 40),
        span("cpu_op", "aten::addmm", 48, 10),
        *(span("python_function", name, ts, dur, Python_id=n) for name, ts, dur, n in stack),
    ]
    longest, other = device(events).longest
    assert (longest.start_us, longest.duration_us, longest.cause) == (10, 38, "launch")
    assert longest.causes_us == {"launch": 30, "launch_latency": 8}
    assert (longest.step, longest.phase) == ("ProfilerStep#5", "forward")
    assert (longest.before, longest.after, longest.operator) == ("relu", "gemm", "aten::addmm")
    assert longest.launch_thread == "1/1"
    assert (longest.host, longest.host_ratio) == ("torch/nn/functional.py(7): linear", pytest.approx(25 / 30))
    assert longest.line.frame == "train.py(10): fit"
    assert (other.start_us, other.duration_us, other.cause) == (60, 2, "back_to_back")
    assert (other.host, other.host_ratio, other.operator) == (None, None, "aten::addmm")


def test_the_host_was_mostly_in_the_range_around_many_short_operators() -> None:
    events = [
        *late(),
        *steps((0, 100)),
        span("user_annotation", "enumerate(DataLoader)#x.__next__", 22, 26),
        *(span("cpu_op", "aten::stack", ts, 3) for ts in range(23, 47, 4)),
    ]
    (gap,) = device(events).longest
    assert (gap.host, gap.host_ratio) == ("enumerate(DataLoader)#x.__next__", pytest.approx(26 / 30))
    assert (gap.phase, gap.cause, gap.line) == ("data_wait", "data", None)


def test_the_main_thread_tells_the_line_of_what_autograd_launches() -> None:
    events = [
        *late(AUTOGRAD),
        span("user_annotation", "ProfilerStep#5", 0, 100),
        span("python_function", "train.py(10): fit", 0, 100, Python_id=1),
        span("cpu_op", "autograd::engine::evaluate_function: ReluBackward0", 25, 30, tid=AUTOGRAD),
    ]
    (gap,) = device(events).longest
    assert gap.line.frame == "train.py(10): fit"
    assert (gap.phase, gap.launch_thread) == ("backward", "1/2")
    assert gap.host == "autograd::engine::evaluate_function: ReluBackward0"


def test_a_stack_of_the_operator_tells_the_line_in_older_traces() -> None:
    operator = span("cpu_op", "aten::linear", 48, 10)
    operator["args"] = {"Call stack": "torch/nn/functional.py(7): linear;train.py(12): step;train.py(3): <module>"}
    (gap,) = device([*late(), operator]).longest
    assert gap.line.frame == "train.py(12): step"


def test_gaps_are_told_of_longest_first_and_no_more_than_asked_for() -> None:
    events = [event for n in range(9) for event in work(100 * n, 100 * n + 10 + n % 3, 100 * n + 30, n + 1)]
    (one,) = idle(events, longest=4).devices
    assert [gap.duration_us for gap in one.longest] == [82, 82, 82, 81]
    assert [gap.start_us for gap in one.longest] == [120, 420, 720, 20]
    assert one.gaps == 8
    assert idle(events, longest=0).devices[0].longest == ()


def test_a_device_without_a_gap() -> None:
    one = device(work(5, 10, 20, 11))
    assert (one.window_us, one.idle_us, one.idle_ratio, one.gaps, one.causes, one.longest) == (10, 0, 0, 0, (), ())


def test_work_without_duration() -> None:
    one = device(work(5, 10, 10, 11))
    assert (one.window_us, one.idle_ratio) == (0, None)


@pytest.mark.parametrize(
    "events",
    [[], [span("cpu_op", "aten::relu", 0, 5)], [span("cuda_runtime", "cudaLaunchKernel", 0, 5, correlation=1)]],
)
def test_without_device_work_there_is_nothing_to_tell(events: list[Json]) -> None:
    found = idle(events)
    assert (found.devices, found.unseen) == ((), ())


def test_equal_parts_of_the_window_and_long_gaps() -> None:
    """Busy in the first 10 ms, idle for the next 980 ms, busy in the last 10."""
    one = device([*work(None, 0, 10_000, 1), *work(None, 990_000, 1_000_000, 2)])
    assert len(one.chunks) == 30
    assert one.chunks[0] == pytest.approx(0.3, abs=0.001)
    assert one.chunks[-1] == pytest.approx(0.3, abs=0.001)
    assert sum(one.chunks[1:-1]) == 0
    assert (one.long_gaps, one.long_gaps_us) == (1, 980_000.0)
    assert "1 gap of 500 ms or more, together 980 ms" in chunk_table(one).title
