"""Flame graphs: time by stack, of traces whose lines are written out, and against the slow and obvious way."""

import json
import random
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from recorded_traces import NAMES, recorded_trace
from tiny_traces import Json, linked_trace, random_calls, span, training_step

from lightning_gpuprof.trace.export.flame import Weight, folded_stacks, speedscope
from lightning_gpuprof.trace.intervals import covered_ns
from lightning_gpuprof.trace.linked import LinkedTrace


def folded(trace: LinkedTrace, weight: Weight = "host") -> dict[str, int]:
    lines = [line.rsplit(" ", 1) for line in folded_stacks(trace, weight=weight)]
    assert len({stack for stack, _ in lines}) == len(lines), "a stack has two lines"
    return {stack: int(time) for stack, time in lines}


def frame(name: str, ts: float, dur: float, **more: object) -> Json:
    return span("python_function", name, ts, dur, **more)


def launched(name: str, launch: float, start: float, dur: float, correlation: int, *, tid: int = 1) -> list[Json]:
    return [
        span("cuda_runtime", "cudaLaunchKernel", launch, 1, tid=tid, correlation=correlation),
        span("kernel", name, start, dur, pid=0, tid=7, device=0, stream=7, correlation=correlation),
    ]


def with_frames() -> list[Json]:
    """A step in µs: two frames around an operator in an operator, a frame inside of it; a backward on a thread of its
    own."""
    return [
        frame("train.py(1): main", 0, 100),
        frame("train.py(5): step", 10, 50),
        span("user_annotation", "ProfilerStep#3", 5, 70),
        span("cpu_op", "aten::linear", 20, 30),
        span("cpu_op", "aten::addmm", 22, 20),
        frame("hook.py(2): hook", 25, 5),
        span("cpu_op", "aten::linear", 52, 4),
        span("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 62, 20, tid=2),
        span("cpu_op", "AddmmBackward0", 63, 15, tid=2),
        *launched("gemm", 23, 30, 12, 1),
        *launched("gemm", 64, 70, 20, 2, tid=2),
        *launched("fill", 61, 95, 3, 3),
        span("kernel", "before", 1, 4, pid=0, tid=7, device=0, stream=7, correlation=99),
    ]


def test_host_stacks_are_frames_with_the_operators_they_run() -> None:
    step = "main thread 1/1;train.py(1): main;train.py(5): step"
    assert folded(linked_trace(with_frames())) == {
        "main thread 1/1;train.py(1): main": 50,
        step: 50 - 30 - 4,
        f"{step};aten::linear": 10 + 4,
        f"{step};aten::linear;aten::addmm": 15,
        f"{step};aten::linear;aten::addmm;hook.py(2): hook": 5,
        "thread 1/2;autograd::engine::evaluate_function: AddmmBackward0": 5,
        "thread 1/2;autograd::engine::evaluate_function: AddmmBackward0;AddmmBackward0": 15,
    }


def test_device_stacks_are_what_launched_the_work() -> None:
    backward = "autograd::engine::evaluate_function: AddmmBackward0;AddmmBackward0"
    assert folded(linked_trace(with_frames()), "device") == {
        "GPU 0;main thread 1/1;train.py(1): main;train.py(5): step;aten::linear;aten::addmm;gemm": 12,
        f"GPU 0;thread 1/2;{backward};gemm": 20,
        "GPU 0;main thread 1/1;train.py(1): main;fill": 3,
        "GPU 0;launch not in the trace;before": 4,
    }


def test_without_frames_named_ranges_take_their_place_and_steps_are_one() -> None:
    events = [
        *training_step(),
        span("user_annotation", "ProfilerStep#8", 100, 40),
        span("cpu_op", "aten::linear", 110, 10),
    ]
    trace = linked_trace(events)
    step = "main thread 1/1;ProfilerStep"
    assert folded(trace) == {
        step: 30 + 30,
        f"{step};enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__": 30,
        f"{step};aten::linear": 20 + 10,
        f"{step};aten::linear;aten::addmm": 20,
    }
    assert folded(trace, "device") == {
        "GPU 0;launch not in the trace;before the window": 5,
        f"GPU 0;{step};aten::linear;aten::addmm;gemm": 20,
        f"GPU 0;{step};aten::linear;aten::addmm;relu": 20,
        f"GPU 0;{step};aten::linear;Memcpy HtoD": 5,
    }


def test_work_that_was_launched_outside_of_everything_has_its_thread() -> None:
    trace = linked_trace(launched("gemm", 0, 5, 10, 1))
    assert folded(trace) == {}
    assert folded(trace, "device") == {"GPU 0;main thread 1/1;gemm": 10}


def test_calls_on_different_objects_of_one_kind_are_one() -> None:
    events = [
        frame("<built-in method run of Engine object at 0x7f00>", 0, 10),
        frame("<built-in method run of Engine object at 0x7FAB>", 10, 10),
    ]
    assert folded(linked_trace(events)) == {"thread 1/1;<built-in method run of Engine object>": 20}


def test_names_cannot_break_a_line_or_a_stack() -> None:
    trace = linked_trace([span("cpu_op", "a;b\nc 5", 0, 7)])
    assert list(folded_stacks(trace, weight="host")) == ["main thread 1/1;a:b c 5 7"]


def test_what_is_below_half_a_microsecond_has_no_line() -> None:
    trace = linked_trace([span("cpu_op", "short", 0, 0.499), span("cpu_op", "longer", 1, 0.5)])
    assert folded(trace) == {"main thread 1/1;longer": 1}


@pytest.mark.parametrize("weight", ["host", "device"])
def test_an_empty_trace_has_no_stacks(weight: Weight) -> None:
    trace = linked_trace([span("cpu_op", "empty", 5, 0)])
    assert folded(trace, weight) == {}
    assert speedscope(trace)["profiles"] == []


def test_a_deep_recursion_is_taken() -> None:
    events = [frame(f"a.py({number % 3}): f", number, 6000 - 2 * number) for number in range(2500)]
    lines = folded(linked_trace(events))
    assert len(lines) == 2500
    assert max(line.count(";") for line in lines) == 2500
    assert sum(lines.values()) == 6000


@pytest.mark.parametrize("seed", range(30))
def test_stacks_are_those_of_each_microsecond(seed: int) -> None:
    rng = random.Random(seed)
    spans = [(s, e, tid, rng.choice("abcd")) for tid in (1, 2) for s, e in random_calls(rng, 0, 60)]
    trace = linked_trace([span("cpu_op", name, start, end - start, tid=tid) for start, end, tid, name in spans])
    expected: Counter[str] = Counter()
    for moment in range(60):
        for tid in (1, 2):
            around = [
                (start, -end, row, name)
                for row, (start, end, thread, name) in enumerate(spans)
                if thread == tid and start <= moment < end
            ]
            if around:
                names = [name for *_, name in sorted(around)]
                expected[";".join([f"1/{tid}", *names])] += 1
    found = {stack.removeprefix("main ").removeprefix("thread "): time for stack, time in folded(trace).items()}
    assert found == dict(expected)


def stacks_of(profile: dict[str, Any], frames: list[dict[str, str]]) -> dict[str, float]:
    samples = zip(profile["samples"], profile["weights"], strict=True)
    return {";".join(frames[number]["name"] for number in sample): weight for sample, weight in samples}


def test_speedscope_gets_a_profile_for_each_thread_and_device() -> None:
    trace = linked_trace(with_frames())
    file: Any = json.loads(json.dumps(speedscope(trace)))
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert [one["name"] for one in file["profiles"]] == ["main thread 1/1", "thread 1/2", "GPU 0"]
    lines = defaultdict(dict)
    for weight in ("host", "device"):
        for stack, time in folded(trace, weight).items():
            root, _, rest = stack.partition(";")
            lines[root][rest] = time
    for profile in file["profiles"]:
        assert profile["type"] == "sampled"
        assert profile["unit"] == "microseconds"
        assert profile["startValue"] == 0
        assert profile["endValue"] == sum(profile["weights"])
        assert stacks_of(profile, file["shared"]["frames"]) == lines[profile["name"]]


def test_the_main_thread_is_first_even_if_another_one_waits_longer() -> None:
    events = [
        span("user_annotation", "ProfilerStep#1", 0, 10),
        span("cpu_op", "aten::mm", 1, 1),
        *(span("cpu_op", "wait", 0, 100 + tid, tid=tid) for tid in range(2, 9)),
    ]
    profiles: Any = speedscope(linked_trace(events), threads=3)["profiles"]
    assert [one["name"] for one in profiles] == ["main thread 1/1", "thread 1/8", "thread 1/7"]


def test_samples_that_begin_alike_are_neighbours() -> None:
    rng = random.Random(5)
    spans = [(s, e, rng.choice("abcd")) for s, e in random_calls(rng, 0, 400)]
    file: Any = speedscope(linked_trace([span("cpu_op", name, s, e - s) for s, e, name in spans]))
    (profile,) = file["profiles"]
    for length in range(1, 5):
        begins = [tuple(sample[:length]) for sample in profile["samples"] if len(sample) >= length]
        runs = [one for one, before in zip(begins, [None, *begins], strict=False) if one != before]
        assert len(runs) == len(set(runs))


@pytest.mark.parametrize("name", NAMES or ["none"])
def test_stacks_of_recorded_traces_sum_to_the_time_that_was_recorded(name: str) -> None:
    trace = recorded_trace(name).trace
    one = recorded_trace(name)
    host, device = folded(one), folded(one, "device")
    around = trace.python_function if len(trace.python_function) else trace.annotation
    covered = 0
    for thread in range(len(trace.threads)):
        of_thread = [part.where(part.thread == thread) for part in (around.spans, trace.cpu_op.spans)]
        covered += covered_ns(*(np.concatenate([getattr(p, f) for p in of_thread]) for f in ("start_ns", "end_ns")))
    file: Any = speedscope(one, threads=len(trace.threads))
    total_us = sum(profile["endValue"] for profile in file["profiles"])
    assert total_us == pytest.approx((covered + int(trace.device_work.duration_ns.sum())) / 1000, abs=0.01)
    stacks = sum(len(profile["samples"]) for profile in file["profiles"])
    assert abs(sum(host.values()) + sum(device.values()) - total_us) <= 0.5 * stacks + 0.5
