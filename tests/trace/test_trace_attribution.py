"""Device time goes to the operator, module, line and phase that launched it, also through the backward pass."""

import random
from functools import cache

import numpy as np
import pytest
from recorded_traces import NAMES, recorded_trace
from tiny_traces import Json, linked_trace, span

from lightning_gpuprof.model.trace.attribution import Attribution, LineTime
from lightning_gpuprof.trace.analyses.code.attribution import attribution
from lightning_gpuprof.trace.analyses.joins.call_places import CallPlaces
from lightning_gpuprof.trace.linked import LinkedTrace

needs_traces = pytest.mark.skipif(not NAMES, reason="no recorded traces beside the repository (../shared/traces)")


@cache
def real(name: str) -> tuple[LinkedTrace, Attribution]:
    linked = recorded_trace(name)
    return linked, attribution(linked)


def call(name: str, ts: float, dur: float, tid: int = 1) -> Json:
    return span("python_function", name, ts, dur, tid=tid)


def launch(correlation: int, ts: float, device_ts: float, device_dur: float, *, tid: int = 1) -> list[Json]:
    return [
        span("cuda_runtime", "cudaLaunchKernel", ts, 1, tid=tid, correlation=correlation),
        span("kernel", f"kernel {correlation}", device_ts, device_dur, pid=0, tid=7, stream=7, correlation=correlation),
    ]


def training() -> list[Json]:
    """Two linears in a net, the backward of both on its own thread, the reduction of a gradient, an optimizer step.

    The profiler began in line 9 of ``main``; times in µs, kernels of 1, 2, 4, 8, 16, 32 µs.
    """
    return [
        call("train.py(9): main", 0, 400),
        call("torch/profiler/profiler.py(821): step", 1, 2),
        call("train.py(20): train_step", 10, 380),
        call("nn.Module: Net_0", 20, 80),
        call("net.py(5): forward", 22, 76),
        call("nn.Module: Linear_0", 25, 30),
        call("torch/nn/modules/linear.py(124): forward", 26, 28),
        span("cpu_op", "aten::relu_ of something older", 23, 1, Sequence_number=7, Fwd_thread_id=0),
        span("cpu_op", "aten::linear", 30, 20, Sequence_number=7, Fwd_thread_id=0),
        span("cpu_op", "aten::addmm", 32, 16, Sequence_number=7, Fwd_thread_id=0),
        *launch(1, 35, 40, 1),
        call("nn.Module: Linear_1", 60, 30),
        span("cpu_op", "aten::linear", 65, 20, Sequence_number=8, Fwd_thread_id=0),
        *launch(2, 70, 75, 2),
        call("torch/_tensor.py(570): backward", 110, 200),
        call("<built-in method run_backward of torch._C._EngineBase object at 0x7f>", 112, 190),
        span("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 120, 30, tid=2, Sequence_number=8,
             Fwd_thread_id=1),
        span("cpu_op", "AddmmBackward0", 121, 28, tid=2, Sequence_number=8, Fwd_thread_id=1),
        *launch(4, 125, 130, 4, tid=2),
        span("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 160, 30, tid=2, Sequence_number=7,
             Fwd_thread_id=1),
        *launch(8, 165, 170, 8, tid=2),
        span("cpu_op", "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 200, 30, tid=2),
        *launch(16, 205, 210, 16, tid=2),
        span("user_annotation", "Optimizer.step#SGD.step", 320, 40),
        *launch(32, 330, 340, 32),
    ]  # fmt: skip


def line_of(result: Attribution, frame: str) -> LineTime:
    return next(one for one in result.lines if one.line.frame == frame)


def test_a_backward_kernel_belongs_to_the_line_and_module_of_its_forward() -> None:
    result = attribution(linked_trace(training()))
    forward = line_of(result, "net.py(5): forward")
    assert forward.device_us == 1 + 2 + 4 + 8
    assert forward.backward_us == 4 + 8
    by_path = {module.path: module for module in result.modules}
    assert by_path["Net_0", "Linear_0"].device_us == 1 + 8
    assert by_path["Net_0", "Linear_1"].device_us == 2 + 4
    assert by_path["Net_0", "Linear_1"].backward_us == 4
    assert (by_path["Net_0",].device_us, by_path["Net_0",].own_us) == (15, 0)


def test_gradients_that_are_accumulated_belong_to_the_line_that_waits_for_backward() -> None:
    result = attribution(linked_trace(training()))
    step = line_of(result, "train.py(20): train_step")
    assert step.device_us == 16 + 32
    assert step.backward_us == 16
    assert step.device_ratio == 48 / 63
    assert result.levels[1].level == "module"
    reasons = {one.reason: one.device_us for one in result.levels[1].rest}
    assert reasons == {"outside": 32, "forward_unknown": 16}


def test_phases_come_from_ranges_modules_and_autograd() -> None:
    result = attribution(linked_trace(training()))
    assert {one.phase: one.device_us for one in result.phases} == {
        "optimizer": 32,
        "backward": 4 + 8 + 16,
        "forward": 1 + 2,
    }


def test_host_time_of_a_line_leaves_out_calls_of_other_user_code() -> None:
    result = attribution(linked_trace(training()))
    assert line_of(result, "train.py(9): main").host_us == 400 - 380
    assert line_of(result, "train.py(20): train_step").host_us == 380 - 76
    assert line_of(result, "net.py(5): forward").host_us == 76


def test_hits_are_operators_that_a_line_called_itself() -> None:
    result = attribution(linked_trace(training()))
    assert line_of(result, "net.py(5): forward").hits == 3  # relu_, linear, linear; not addmm, not the backward


def test_the_line_of_a_function_that_ran_before_the_recording_is_told_apart() -> None:
    result = attribution(linked_trace(training()))
    assert line_of(result, "train.py(9): main").line.means == "when the recording began"
    assert line_of(result, "net.py(5): forward").line.means == "definition"


def test_a_backward_on_the_thread_of_the_loop_belongs_to_its_forward_unless_a_hook_launches() -> None:
    linked = linked_trace(
        [
            call("train.py(20): train_step", 0, 400),
            call("net.py(5): forward", 10, 50),
            span("cpu_op", "aten::mul", 20, 20, Sequence_number=1, Fwd_thread_id=0),
            *launch(1, 22, 23, 1),
            span("cpu_op", "MulBackward0", 100, 100, Sequence_number=1, Fwd_thread_id=1),
            span("cpu_op", "aten::mul", 105, 20),
            *launch(2, 110, 111, 2),
            call("hooks.py(3): clip", 150, 20),
            *launch(3, 155, 156, 4),
        ]
    )
    result = attribution(linked)
    assert {one.line.frame: one.device_us for one in result.lines if one.device_us} == {
        "net.py(5): forward": 1 + 2,
        "hooks.py(3): clip": 4,
    }
    assert line_of(result, "train.py(20): train_step").hits == 0


def test_a_line_has_the_bytes_that_its_copies_moved() -> None:
    def copied(number: int, at: float, kind: str, size: int) -> list[Json]:
        return [
            span("cuda_runtime", "cudaMemcpyAsync", at, 1, correlation=number),
            span(kind, kind, at + 2, 2, pid=0, tid=7, stream=7, correlation=number, bytes=size),
        ]

    linked = linked_trace(
        [
            call("train.py(20): train_step", 0, 200),
            *copied(1, 10, "gpu_memcpy", 4096),
            *copied(2, 20, "gpu_memcpy", 1024),
            *copied(3, 30, "gpu_memset", 512),
            *launch(4, 40, 41, 5),
        ]
    )
    (line,) = attribution(linked).lines
    assert (line.copied_bytes, line.kernels) == (4096 + 1024, 4)


def test_stacks_of_operators_name_the_line_that_called() -> None:
    stack = (
        "/opt/lib/python3.7/site-packages/torch/nn/functional.py(10): linear;net.py(7): forward;train.py(3): <module>"
    )
    linked = linked_trace(
        [
            span("cpu_op", "ProfilerStep#1", 0, 100, Call_stack="train.py(99): <module>"),
            span("cpu_op", "aten::linear", 10, 20, Call_stack=stack, Sequence_number=1, Fwd_thread_id=0),
            span("cpu_op", "aten::addmm", 12, 10),
            *launch(1, 13, 14, 1),
            span("cpu_op", "AddmmBackward", 50, 20, tid=2, Sequence_number=1, Fwd_thread_id=1),
            *launch(2, 52, 53, 2, tid=2),
        ]
    )
    result = attribution(linked)
    (line,) = result.lines
    assert (line.line.frame, line.line.means) == ("net.py(7): forward", "call")
    assert (line.device_us, line.backward_us, line.hits, line.host_us) == (3, 2, 1, 20)
    assert result.stacks == "operators"
    assert {one.level: [r.reason for r in one.rest] for one in result.levels}["module"] == ["not_recorded"]


def test_a_module_that_is_recomputed_in_backward_keeps_its_path() -> None:
    linked = linked_trace(
        [
            call("nn.Module: Net_0", 0, 50),
            call("nn.Module: Block_0", 5, 40),
            span("cpu_op", "aten::mul", 10, 20, Sequence_number=1, Fwd_thread_id=0),
            *launch(1, 12, 13, 1),
            span("cpu_op", "MulBackward0", 100, 50, tid=2, Sequence_number=1, Fwd_thread_id=1),
            call("nn.Module: Block_0", 110, 20, tid=2),
            *launch(2, 112, 113, 2, tid=2),
        ]
    )
    assert [(one.path, one.device_us) for one in attribution(linked).modules] == [
        (("Net_0",), 3),
        (("Net_0", "Block_0"), 3),
    ]


def ranges_of_modules() -> list[Json]:
    """A step of 200 µs: an encoder with a layer in it and a head, on a CPU; the backward of the layer takes 30 µs."""
    return [
        span("user_annotation", "ProfilerStep#7", 0, 200),
        span("cpu_op", "nn.Module: encoder", 10, 60),
        span("cpu_op", "nn.Module: encoder.layers.0", 20, 40),
        span("cpu_op", "aten::mm", 30, 20, Sequence_number=1, Fwd_thread_id=0),
        span("cpu_op", "nn.Module: head", 80, 10),
        span("cpu_op", "MmBackward0", 100, 30, Sequence_number=1, Fwd_thread_id=1),
        span("cpu_op", "aten::mm", 105, 20),
    ]


def test_ranges_of_modules_give_their_time_on_the_host_forward_and_backward() -> None:
    modules = attribution(linked_trace(ranges_of_modules())).modules
    assert [(one.path, one.calls, one.host_us, one.own_host_us, one.backward_host_us) for one in modules] == [
        (("encoder",), 1, 60, 20, 30),
        (("encoder", "layers.0"), 1, 40, 40, 30),
        (("head",), 1, 10, 10, 0),
    ]
    assert [one.host_ratio for one in modules] == [90 / 200, 70 / 200, 10 / 200]


def test_ranges_of_modules_count_before_the_names_that_stacks_have() -> None:
    stacks = [
        call("nn.Module: Encoder_0", 9, 62),
        call("nn.Module: Linear_0", 19, 42),
        call("nn.Module: Linear_1", 79, 12),
    ]
    modules = attribution(linked_trace([*ranges_of_modules(), *stacks])).modules
    assert [one.path for one in modules] == [("encoder",), ("encoder", "layers.0"), ("head",)]


def test_ranges_of_modules_are_no_operators() -> None:
    trace = linked_trace(ranges_of_modules()).trace
    assert [trace.names[name] for name in trace.cpu_op.name.tolist()] == ["aten::mm", "MmBackward0", "aten::mm"]
    assert len(trace.module_range) == 3


def test_ranges_of_modules_give_device_time_as_stacks_do() -> None:
    events = [*ranges_of_modules(), *launch(4, 35, 300, 4), *launch(8, 110, 310, 8), *launch(1, 85, 320, 1)]
    modules = {one.path: one for one in attribution(linked_trace(events)).modules}
    assert (modules["encoder",].device_us, modules["encoder",].own_us, modules["encoder",].backward_us) == (12, 0, 8)
    assert modules["encoder", "layers.0"].own_us == 12
    assert modules["head",].device_us == 1


def test_work_without_a_launch_in_the_trace_is_attributed_to_nothing() -> None:
    orphan = span("kernel", "before the window", 5, 5, pid=0, tid=7, stream=7, correlation=3)
    result = attribution(linked_trace([*training(), orphan]))
    for level in result.levels:
        assert {one.reason: one.device_us for one in level.rest}["launch_unknown"] == 5


def test_launches_into_a_full_queue_count_as_blocked() -> None:
    events = [call("train.py(1): main", 0, 100_000)]
    events += [span("cuda_runtime", "cudaLaunchKernel", -1000, 900, correlation=9999)]  # slow, but nothing is queued
    events += [span("kernel", "k", 69_000, 10, pid=0, tid=7, stream=7, correlation=9999)]
    for number in range(1200):
        slow = 500 if number >= 1100 else 1
        begin = number * 2 if number < 1100 else 2200 + (number - 1100) * 600
        events += [
            span("cuda_runtime", "cudaLaunchKernel", begin, slow, correlation=number),
            span("kernel", "k", 70_000 + number * 10, 10, pid=0, tid=7, stream=7, correlation=number),
        ]
    result = attribution(linked_trace(events))
    assert result.full_queue_us == 100 * 500
    assert result.lines[0].blocked_us == 100 * 500


@pytest.mark.parametrize("events", [[], [span("cpu_op", "aten::add", 0, 5)], launch(1, 0, 1, 5)])
def test_traces_without_most_things_give_empty_tables(events: list[Json]) -> None:
    result = attribution(linked_trace(events))
    assert (result.lines, result.modules, result.phases) == ((), (), ())
    assert [one.ratio for one in result.levels] == ([0.0] * 4 if result.device_us else [None] * 4)


@needs_traces
@pytest.mark.parametrize("name", NAMES)
def test_the_parts_of_device_time_sum_to_it(name: str) -> None:
    linked, result = real(name)

    def ns(values_us: list[float]) -> int:
        return sum(round(value * 1000) for value in values_us)

    total_ns = int(linked.work.duration_ns.sum())
    levels = {one.level: one for one in result.levels}
    for level in result.levels:
        assert ns([level.device_us, *(one.device_us for one in level.rest)]) == total_ns
    assert ns([one.device_us for one in result.lines]) == ns([levels["line"].device_us])
    assert ns([one.device_us for one in result.phases]) == ns([levels["phase"].device_us])
    assert ns([one.own_us for one in result.modules]) == ns([levels["module"].device_us])
    assert ns([one.device_us for one in result.modules if len(one.path) == 1]) == ns([levels["module"].device_us])
    assert all(one.backward_us <= one.device_us for one in (*result.lines, *result.modules))
    assert ns([one.blocked_us for one in result.lines]) <= ns([result.blocked_us])


@needs_traces
def test_the_calls_of_a_script_are_found_in_its_trace() -> None:
    _, result = real("v100_resnet50_dl0_2021.json.gz")
    assert [line.line.frame for line in result.lines[:2]] == [
        "resnet50_profiler_api.py(46): <module>",  # outputs = model(inputs), with its backward
        "resnet50_profiler_api.py(44): <module>",  # inputs to the device
    ]
    assert result.lines[0].backward_us > 0.6 * result.lines[0].device_us


@needs_traces
@pytest.mark.parametrize("name", ["mi300_8rank_rank0_resnet_ckpt.json.gz", "h100_bert_small.json.gz"])
def test_the_line_of_a_launch_is_that_of_a_climb_through_its_frames(name: str) -> None:
    linked, _ = real(name)
    places = CallPlaces(linked)
    frames, parent = linked.trace.python_function, linked.frames.parent
    lines = {line.frame: number for number, line in enumerate(places.lines)}
    calls = linked.trace.runtime
    own = np.flatnonzero(~places.in_backward)
    for row in random.Random(0).sample(own.tolist(), min(200, len(own))):
        frame = int(linked.frames.innermost(calls.start_ns[[row]], calls.thread[[row]])[0])
        while frame >= 0 and linked.trace.names[frames.name[frame]] not in lines:
            frame = int(parent[frame])
        expected = lines[linked.trace.names[frames.name[frame]]] if frame >= 0 else -1
        assert places.line[row] == expected
