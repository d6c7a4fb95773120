"""What joins the tables of a trace."""

import pytest
from tiny_traces import Json, linked_trace, span, training_step

from lightning_gpuprof.trace.linked import LinkedTrace


def names(of: LinkedTrace, rows: list[int], table: str) -> list[str | None]:
    spans = getattr(of.trace, table)
    return [of.trace.names[int(spans.name[row])] if row >= 0 else None for row in rows]


def test_work_is_joined_to_its_launch_and_the_innermost_operator_around_that() -> None:
    found = linked_trace(training_step())
    assert names(found, found.launch.tolist(), "runtime") == [
        None, "cudaLaunchKernel", "cuLaunchKernel", "cudaMemcpyAsync",
    ]  # fmt: skip
    assert names(found, found.operator.tolist(), "cpu_op") == [None, "aten::addmm", "aten::addmm", "aten::linear"]
    assert found.launched.tolist() == [False, True, True, True]
    assert found.launch_start_ns.tolist() == [5_000, 40_000, 46_000, 60_000]
    assert found.launch_thread.tolist()[0] == -1
    assert found.is_kernel.tolist() == [True, True, True, False]


def test_many_kernels_of_one_graph_launch_are_all_joined_to_it() -> None:
    events = [span("cuda_runtime", "cudaGraphLaunch", 0, 5, correlation=4)]
    events += [span("kernel", f"k{n}", 10 + n, 1, device=0, stream=7, correlation=4) for n in range(30)]
    assert linked_trace(events).launch.tolist() == [0] * 30


def test_a_call_outside_of_operators_finds_its_own_by_external_id() -> None:
    op = span("cpu_op", "aten::mm", 10, 10, tid=1, External_id=7)
    inside = span("cuda_runtime", "cudaLaunchKernel", 12, 2, tid=2, correlation=1, External_id=7)
    later = span("cuda_runtime", "cudaLaunchKernel", 30, 2, tid=2, correlation=2, External_id=7)
    found = linked_trace([op, inside, later])
    assert names(found, found.operator_of_call.tolist(), "cpu_op") == ["aten::mm", None]


OPERATORS = [span("cpu_op", "aten::mm", n, 1, tid=4) for n in range(5)]
AT_WORK = span("cpu_op", "aten::add", 6, 1, tid=3)


@pytest.mark.parametrize(
    ("events", "thread"),
    [
        ([span("user_annotation", "ProfilerStep#1", 0, 9, tid=3), AT_WORK, *OPERATORS], "1/3"),
        ([span("cpu_op", "ProfilerStep#1", 0, 9, tid=3), AT_WORK, *OPERATORS], "1/3"),
        ([span("user_annotation", "ProfilerStep#1", 0, 9, tid=3), *OPERATORS], "1/4"),  # it only names the steps
        ([span("cpu_op", "ProfilerStep#1", 0, 9, tid=3), *OPERATORS], "1/4"),
        ([span("user_annotation", "ProfilerStep#1", 0, 9, tid=3)], "1/3"),
        ([span("user_annotation", "## forward ##", 0, 9, tid=3), *OPERATORS], "1/3"),
        ([span("user_annotation", "nccl:all_reduce", 0, 9, tid=3), *OPERATORS], "1/4"),
        ([span("cuda_runtime", "cudaLaunchKernel", 0, 9, tid=5)], "1/5"),
    ],
)
def test_the_thread_of_the_training_loop(events: list[Json], thread: str) -> None:
    found = linked_trace(events)
    assert found.main_thread is not None
    assert found.trace.threads[found.main_thread] == thread


def test_a_trace_of_nothing_is_joined_to_nothing() -> None:
    found = linked_trace([])
    assert found.main_thread is None
    assert len(found.steps) == 0
    assert found.launch.tolist() == found.operator.tolist() == found.operator_of_call.tolist() == []
    assert found.device_rows == {}


def test_a_step_that_is_annotation_and_operator_is_one() -> None:
    events = [
        span("user_annotation", "ProfilerStep#1", 0, 9),
        span("cpu_op", "ProfilerStep#1", 1, 9),
        span("user_annotation", "ProfilerStep#2", 20, 5),
    ]
    steps = linked_trace(events).steps
    assert steps.names == ("ProfilerStep#1", "ProfilerStep#2")
    assert steps.start_ns.tolist() == [0, 20_000]
    assert steps.end_ns.tolist() == [10_000, 25_000]
    assert steps.at(steps.end_ns).tolist() == [-1, -1]
    assert steps.at(steps.start_ns).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("others", "left_out"),
    [
        ([(10, 80), (110, 80), (210, 80)], 3),  # each inside one of the first profiler's
        ([(-5, 310)], 1),  # around all of them
        ([(50, 100), (150, 100)], 2),  # across
        ([(97, 6)], 1),
        ([(300, 50)], 0),
    ],
)
def test_of_the_steps_of_two_profilers_those_of_one_stay(others: list[tuple[int, int]], left_out: int) -> None:
    events = [span("user_annotation", f"ProfilerStep#{n}", 100 * n, 100) for n in range(3)]
    events += [span("user_annotation", f"ProfilerStep#{7 + n}", at, dur) for n, (at, dur) in enumerate(others)]
    steps = linked_trace(events).steps
    assert {"ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"} <= set(steps.names)
    assert steps.left_out == left_out
    assert len(steps) == 3 + len(others) - left_out


def test_steps_that_overlap_by_rounding_all_stay() -> None:
    events = [span("user_annotation", f"ProfilerStep#{n}", 100 * n, 101) for n in range(4)]
    assert linked_trace(events).steps.left_out == 0
