"""Health of a trace: what was lost is counted and said, and what is sound is not called a problem."""

import json
from pathlib import Path

import pytest
from recorded_traces import recorded_trace
from tiny_traces import Json, document, linked_trace, span, training_step, write

from lightning_gpuprof.model.trace.health import Health, Signal
from lightning_gpuprof.trace.analyses.health.health import can_start_work, health_of
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace


def health(events: list[Json], *, frames: bool = True, **tail: object) -> Health:
    return health_of(linked_trace(events, frames=frames, **tail))


def launch(correlation: int, ts: float, name: str = "cudaLaunchKernel") -> Json:
    return span("cuda_runtime", name, ts, 1, correlation=correlation)


def kernel(correlation: int, ts: float, dur: float = 5, *, stream: int = 7) -> Json:
    return span("kernel", "gemm", ts, dur, pid=0, tid=stream, device=0, stream=stream, correlation=correlation)


def pairs(*times: float) -> list[Json]:
    return [event for i, ts in enumerate(times) for event in (launch(10 + i, ts), kernel(10 + i, ts + 5))]


def signal(found: Health, name: str) -> Signal:
    return next(one for one in found.signals if one.name == name)


def test_a_sound_trace_has_no_problem() -> None:
    found = health(pairs(0, 10, 20))
    assert found.problems == ()
    assert (found.kernel_launches, found.kernel_launches_without_work) == (3, 0)
    assert (found.device_work, found.work_matched) == (3, 3)
    assert (found.window_us, found.host_window_us, found.device_window_us) == (30.0, 21.0, 25.0)


@pytest.mark.parametrize("in_pieces", [True, False])
def test_spans_without_a_time_or_that_end_before_they_start_are_a_problem(tmp_path: Path, in_pieces: bool) -> None:
    events = [*pairs(0, 10, 20), kernel(40, 50, dur=-5), {**kernel(41, 60), "ts": None}]
    text = json.dumps(document(events))
    trace = Trace.read(write(tmp_path / "t.json", text if in_pieces else text.replace("null", "NaN")))
    assert (trace.timeless, trace.backwards) == (1, 1)
    found = health_of(LinkedTrace(trace))
    (problem,) = [one for one in found.problems if "damaged" in one]
    assert "1 of 8 spans (12.5 %) have no time and are left out" in problem
    assert "1 of 8 spans (12.5 %) end before they start" in problem
    assert not any("all of its entries could be read" in one for one in found.problems)


def test_the_step_of_the_examples_is_counted() -> None:
    found = health(training_step())
    assert (found.steps, found.device_work, found.work_matched, found.work_launched_before) == (1, 4, 3, 1)
    assert [(one.name, one.count, one.without_work) for one in found.calls] == [
        ("cuLaunchKernel", 1, 0),
        ("cudaLaunchKernel", 1, 0),
        ("cudaMemcpyAsync", 1, 0),
    ]
    assert found.problems == ()


def test_launches_whose_kernel_was_dropped_are_a_problem() -> None:
    found = health([*pairs(0, 10, 40), launch(30, 20), launch(31, 30)])
    assert (found.kernel_launches, found.kernel_launches_without_work) == (5, 2)
    assert any("2 of 5 launches (40.0 %) are missing" in problem for problem in found.problems)


def test_launches_at_the_end_are_cut_off_and_not_dropped() -> None:
    found = health([*pairs(0, 10), launch(30, 20)])
    assert (found.kernel_launches_without_work, found.problems) == (1, ())
    assert any("last 1 launches" in note for note in found.notes)


def test_a_copy_of_no_bytes_starts_nothing_and_is_no_problem() -> None:
    found = health([*pairs(0, 30), launch(30, 10, "cudaMemsetAsync")])
    assert found.problems == ()
    assert [(one.name, one.without_work) for one in found.calls] == [("cudaLaunchKernel", 0), ("cudaMemsetAsync", 1)]


def test_launches_that_are_captured_into_a_graph_are_not_missed() -> None:
    capture = [
        launch(20, 10, "cudaStreamBeginCapture_v2"),
        launch(21, 12),
        launch(22, 14, "cudaStreamEndCapture"),
        launch(23, 20, "cudaGraphLaunch"),
        kernel(23, 25),
        kernel(23, 32),
    ]
    found = health([*capture, *pairs(50)])
    assert (found.kernel_launches, found.kernel_launches_without_work) == (2, 0)
    assert (found.work_matched, found.problems) == (3, ())


def test_launches_without_any_device_work_mean_that_nothing_was_traced() -> None:
    found = health([launch(1, 0), launch(2, 5)])
    assert any(problem.startswith("2 kernel launches, but no kernels") for problem in found.problems)
    assert not any("dropped" in problem for problem in found.problems)


@pytest.mark.parametrize(
    ("orphan", "before"),
    [
        (kernel(3, 2), True),  # older id, and before all matched work
        (kernel(3, 60), True),  # the id is older than every call: it waited long in its queue
        (kernel(11, 35), False),  # the id is younger than a call of the trace
        (kernel(-1, 35), False),  # no id, behind matched work of its stream
    ],
)
def test_work_launched_before_the_window_is_told_from_work_whose_launch_was_lost(orphan: Json, before: bool) -> None:
    events = [launch(10, 0), launch(12, 20), kernel(10, 15), kernel(12, 25), orphan]
    found = health(events)
    assert (found.work_launched_before, found.work_launch_lost) == (int(before), int(not before))
    assert any("The launches of 1 of 3" in problem for problem in found.problems) is not before
    assert any("launched before the window" in note for note in found.notes) is before


def test_device_work_of_a_trace_without_calls_is_not_called_lost() -> None:
    found = health([kernel(1, 0), kernel(2, 10)])
    assert (found.work_matched, found.work_launched_before, found.work_launch_lost) == (0, 0, 0)
    assert found.problems == ()
    assert signal(found, "runtime calls").present is False


def test_work_that_starts_before_its_launch_shows_clocks_that_do_not_agree() -> None:
    found = health([launch(1, 10), kernel(1, 7), launch(2, 20), kernel(2, 30)])
    assert (found.starts_before_launch, found.starts_before_launch_max_us) == (1, 3.0)
    assert any("by up to 3 µs" in problem for problem in found.problems)


def test_host_and_device_that_do_not_overlap_are_a_problem() -> None:
    found = health([launch(1, 0), kernel(1, 5_000)])
    assert any("4,999 µs apart" in problem for problem in found.problems)
    assert not any("lie between" in problem for problem in health([launch(1, 0), kernel(1, 70)]).problems)


def test_overlapping_work_of_one_stream_is_counted_and_of_two_streams_is_not() -> None:
    events = [
        launch(1, 0),
        launch(2, 1),
        launch(3, 2),
        kernel(1, 10, 10),
        kernel(2, 15, 10),
        kernel(3, 10, 30, stream=9),
    ]
    assert health(events).overlaps_in_stream == 1


def test_an_operator_that_ends_after_the_one_around_it_is_counted() -> None:
    events = [span("cpu_op", "outer", 0, 10), span("cpu_op", "crossing", 5, 10), span("cpu_op", "inner", 1, 2)]
    found = health(events)
    assert found.crossing_operators == 1
    assert any("1 operators end after" in problem for problem in found.problems)


def test_missing_and_repeated_steps_are_said() -> None:
    steps = [span("user_annotation", f"ProfilerStep#{n}", ts, 5) for n, ts in ((1, 0), (4, 10), (4, 20))]
    found = health(steps)
    assert found.steps == 3
    assert any("1 step ranges" in problem and "2 step numbers are missing" in problem for problem in found.problems)


def test_steps_of_two_profilers_are_said() -> None:
    one = [span("user_annotation", f"ProfilerStep#{n}", 10 * n, 10) for n in range(3)]
    assert health([*pairs(0, 10, 20), *one]).problems == ()
    other = [span("user_annotation", f"ProfilerStep#{n + 3}", 10 * n + 1, 8) for n in range(3)]
    (problem,) = health([*pairs(0, 10, 20), *one, *other]).problems
    assert problem.startswith("3 steps overlap others")


def test_calls_that_share_a_correlation_id_are_a_problem() -> None:
    second = [{**event, "pid": 2, "tid": 2} for event in (launch(10, 3), launch(11, 13))]
    (problem,) = health([*pairs(0, 10, 20), *second]).problems
    assert problem.startswith("4 launches share a correlation id")


def test_a_window_of_no_length_is_a_problem() -> None:
    found = health([span("cpu_op", "aten::add", 5, 0)])
    assert found.window_us == 0
    assert any("no length" in problem for problem in found.problems)


def test_a_trace_of_nothing_is_a_problem_and_no_error() -> None:
    found = health([])
    assert (found.window_us, found.device_window_us, found.resolution_ns) == (0.0, None, None)
    assert found.problems == ("The trace has neither host nor device activity.",)


def test_a_file_that_had_to_be_repaired_says_so(tmp_path: Path) -> None:
    text = json.dumps(document([*pairs(0, 10), span("cpu_op", "x", 0, 5)])).replace('"name": "x"', '"name": "x\x01"')
    found = health_of(LinkedTrace(Trace.read(write(tmp_path / "trace.json", text))))
    assert found.how == "repaired"
    assert any("not valid JSON" in problem for problem in found.problems)


@pytest.mark.parametrize(("shift", "resolution"), [(0.0, 1000), (0.5, 100), (0.25, 10), (0.123, 1)])
def test_the_resolution_of_times_is_found(shift: float, resolution: int) -> None:
    assert health([launch(1, 0), kernel(1, 5 + shift)]).resolution_ns == resolution


def test_what_the_profiler_spent_itself_is_said_where_it_is_much() -> None:
    found = health([*pairs(0, 100), span("overhead", "Buffer Flush", 20, 50)])
    assert found.profiler_overhead_us == 50.0
    assert any("50 µs" in note for note in found.notes)


def test_each_absent_signal_says_what_follows_and_how_to_record_it() -> None:
    found = health(pairs(0))
    for one in found.signals:
        assert bool(one.without and one.advice) is (one.present is False), one.name
    assert "record_shapes=True" in signal(found, "shapes").advice
    assert "with_stack=True" in signal(found, "stacks").advice


def test_signals_that_are_there_are_counted() -> None:
    operator = span("cpu_op", "aten::mm", 0, 5)
    operator["args"] = {"Input Dims": [[2, 3]], "Input type": ["float"], "Fwd thread id": 1, "Sequence number": 4}
    frames = [
        span("python_function", "nn.Module: Linear_0", 0, 5, Python_id=1),
        span("python_function", "train.py(3): f", 1, 2, Python_id=2),
    ]
    tail = {"profile_memory": 1, "baseTimeNanoseconds": 5}
    found = health([operator, *frames], **tail)
    counts = {one.name: one.count for one in found.signals if one.present}
    assert counts == {
        "operators": 1,
        "shapes": 1,
        "stacks": 2,
        "modules": 1,
        "forward-backward links": 1,
        "memory events": None,
        "device properties": 2,
        "absolute time": None,
    }


def test_frames_that_were_not_read_are_still_known_to_be_there() -> None:
    found = health([span("python_function", "train.py(3): f", 1, 2, Python_id=2)], frames=False)
    assert (signal(found, "stacks").present, signal(found, "stacks").count) == (True, 1)
    assert signal(found, "modules").present is None


@pytest.mark.parametrize(
    ("name", "starts"),
    [
        ("cudaLaunchKernel", True),
        ("cuLaunchKernelEx", True),
        ("hipExtModuleLaunchKernel", True),
        ("cudaGraphLaunch", True),
        ("hipMemcpyWithStream", True),
        ("cudaMemsetAsync", True),
        ("cudaLaunchHostFunc", False),
        ("cudaFuncSetAttribute", False),
        ("cudaDeviceSynchronize", False),
    ],
)
def test_calls_that_can_start_device_work(name: str, starts: bool) -> None:
    assert can_start_work(name) is starts


def test_real_traces_are_sound_and_agree_with_the_oracle(shared: Path) -> None:
    facts = json.loads((shared / "traces" / "FACTS.json").read_text())
    for file in sorted((shared / "traces").glob("*.json.gz")):
        found, truth = health_of(recorded_trace(file.name)), facts[file.name]
        assert found.problems == (), file.name
        assert (found.events, found.bytes_json) == (truth["n_events"], truth["bytes_json"])
        assert found.categories == truth["categories"]
        assert (found.work_matched, found.device_work - found.work_matched) == (
            truth["gpu_matched"],
            truth["gpu_unmatched"],
        )
        assert found.work_launched_before + found.work_launch_lost == truth["gpu_unmatched"]
        assert found.work_launch_lost == 0
        assert found.starts_before_launch == truth["negative_launch_latency"]
        assert found.kernel_launches_without_work == 0
        assert sum(one.with_work for one in found.calls) <= found.work_matched
        assert found.steps <= len(truth["steps"])
        assert (signal(found, "shapes").count or 0) <= truth["n_with_shapes"]
        assert (signal(found, "stacks").present or False) is bool(
            truth["n_python_function"] or (truth["n_call_stack_args"] and "callstack" not in file.name)
        )
