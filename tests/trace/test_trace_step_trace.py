"""The step trace: hand-made steps whose phases are written out, and sums over recorded traces."""

from functools import cache

import pytest
from recorded_traces import recorded_trace
from tiny_traces import Json, linked_trace, span, step, training_step

from lightning_gpuprof.model.trace.step_trace import StepTrace
from lightning_gpuprof.trace.analyses.operators.step_trace import step_trace
from lightning_gpuprof.trace.intervals import union
from lightning_gpuprof.trace.linked import LinkedTrace

MAIN, AUTOGRAD = 1, 2


def steps(*events: Json) -> StepTrace:
    return step_trace(linked_trace(list(events)))


def named(name: str, ts: float, dur: float) -> Json:
    return span("user_annotation", name, ts, dur)


def op(name: str, ts: float, dur: float, tid: int = MAIN) -> Json:
    return span("cpu_op", name, ts, dur, tid=tid)


FETCH = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def test_the_innermost_range_that_names_a_phase_counts_and_the_rest_is_other() -> None:
    (row,) = steps(
        step(1, 0, 100),
        named(FETCH, 0, 20),
        named("[pl][profile][Strategy]SingleDeviceStrategy.optimizer_step", 30, 60),
        named("[pl][profile][Strategy]SingleDeviceStrategy.training_step", 35, 15),
        named("[pl][profile][Strategy]SingleDeviceStrategy.backward", 55, 25),
    ).steps
    assert row.phases_us == {"data_wait": 20, "forward": 15, "backward": 25, "optimizer": 20}
    assert (row.total_us, row.other_us) == (100, 20)


def test_autograd_on_its_thread_is_backward_while_the_training_thread_waits() -> None:
    (row,) = steps(
        step(1, 0, 100),
        op("aten::mm", 10, 10),
        # the main thread is silent from 20 to 70; autograd works there, with a pause
        op("MmBackward0", 30, 5, AUTOGRAD),
        op("AccumulateGradBackward0", 50, 10, AUTOGRAD),
        named("Optimizer.step#SGD.step", 70, 20),
    ).steps
    assert row.phases_us == {"forward": 10, "backward": 30, "optimizer": 20}
    assert row.other_us == 40


def test_a_backward_waits_for_ranks_while_gloo_works_and_no_operator_does() -> None:
    (row,) = steps(
        step(1, 0, 100),
        named("## backward ##", 10, 70),
        span("user_annotation", "gloo:all_reduce", 20, 40, tid=AUTOGRAD),
        span("user_annotation", "gloo:all_reduce", 30, 60, tid=3),
        op("aten::mm", 15, 15),  # 10 of it while gloo works
    ).steps
    assert row.waiting_for_ranks_us == 50
    assert row.phases_us == {"backward": 70}


def test_backward_inside_the_optimizer_s_closure_is_backward() -> None:
    (row,) = steps(
        step(1, 0, 100),
        named("Optimizer.step#LBFGS.step", 0, 100),
        op("aten::mm", 10, 10),
        op("MmBackward0", 30, 40, AUTOGRAD),
        op("aten::add_", 80, 10),
    ).steps
    assert row.phases_us == {"backward": 40, "optimizer": 60}


def test_autograd_beside_operators_of_the_training_thread_is_not_a_wait() -> None:
    (row,) = steps(
        step(1, 0, 100), named("## forward ##", 0, 50), op("aten::mm", 0, 50), op("MmBackward0", 10, 20, AUTOGRAD)
    ).steps
    assert row.phases_us == {"forward": 50}


def test_forward_goes_from_the_first_to_the_last_forward_operator_where_nothing_is_named() -> None:
    (row,) = steps(
        step(1, 0, 200),
        named(FETCH, 0, 20),
        op("aten::conv2d", 30, 10),
        op("aten::relu", 60, 10),
        op("ReluBackward0", 100, 50, AUTOGRAD),
        op("aten::item", 170, 10),
    ).steps
    assert row.phases_us == {"data_wait": 20, "forward": 40, "backward": 50}
    assert row.other_us == 90


def test_operators_that_only_upload_are_h2d() -> None:
    copy = span("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 40, 5, pid=0, tid=7, device=0, stream=7, correlation=4)
    (row,) = steps(
        step(1, 0, 100),
        op("aten::to", 20, 30),
        op("aten::copy_", 25, 20),
        span("cuda_runtime", "cudaMemcpyAsync", 30, 5, correlation=4),
        copy,
        op("aten::mm", 60, 10),
    ).steps
    assert row.phases_us == {"h2d": 30, "forward": 10}


def test_a_phase_of_one_step_is_zero_in_the_others_and_absent_if_it_is_nowhere() -> None:
    found = steps(step(1, 0, 10), step(2, 10, 10), named("## forward ##", 2, 5))
    assert [row.phases_us for row in found.steps] == [{"forward": 5}, {"forward": 0}]
    assert found.mean.phases_us == {"forward": 2.5}
    assert found.mean.other_us == 7.5


def test_device_times_are_unions_inside_the_step() -> None:
    (row,) = steps(*training_step()).steps
    (device,) = row.devices
    # kernels [5, 10), [50, 70), [60, 80), a copy [90, 95)
    assert (device.busy_us, device.idle_us) == (40, 60)
    assert (device.kernel_us, device.compute_us, device.memcpy_us) == (35, 35, 5)
    assert (device.communication_us, device.exposed_communication_us) == (0, 0)
    assert row.kernels_launched == 2  # the third was launched before the window
    assert row.phases_us["data_wait"] == 30


def test_communication_is_exposed_where_nothing_computes() -> None:
    def work(name: str, ts: float, dur: float, stream: int) -> Json:
        return span("kernel", name, ts, dur, pid=0, tid=stream, device=0, stream=stream)

    (row,) = steps(step(1, 0, 100), work("gemm", 10, 30, 7), work("ncclDevKernel_AllReduce", 30, 40, 9)).steps
    (device,) = row.devices
    assert (device.communication_us, device.exposed_communication_us) == (40, 30)
    assert (device.compute_us, device.kernel_us) == (30, 60)


def test_work_across_a_step_s_end_counts_in_both_as_far_as_it_is_in_them() -> None:
    events = [step(1, 0, 50), step(2, 50, 50), span("kernel", "k", 40, 30, pid=0, tid=7, device=0, stream=7)]
    first, second = steps(*events).steps
    assert (first.devices[0].busy_us, second.devices[0].busy_us) == (10, 20)


def test_without_steps_the_whole_window_is_the_one_row() -> None:
    found = steps(op("aten::mm", 10, 10), span("kernel", "k", 40, 30, pid=0, tid=7, device=0, stream=7))
    (row,) = found.steps
    assert (row.name, row.total_us, row.phases_us) == ("whole window", 60, {"forward": 10})
    assert (found.mean, found.has_steps) == (None, False)
    assert row.devices[0].idle_us == 30


@pytest.mark.parametrize("events", [[], [{"ph": "M", "name": "process_name", "pid": 0, "args": {}}]])
def test_a_trace_that_holds_nothing_has_no_rows(events: list[Json]) -> None:
    assert steps(*events) == StepTrace()


def test_the_slow_way_to_the_phases_finds_the_same() -> None:
    """Every microsecond of a step is asked for its innermost range."""
    ranges = [("## forward ##", 5, 40), ("## backward ##", 20, 10), (FETCH, 50, 17), ("Optimizer.step#A.step", 70, 25)]
    phases = ("forward", "backward", "data_wait", "optimizer")
    expected = dict.fromkeys(phases, 0)
    for at in range(100):
        around = [number for number, (_, start, lasting) in enumerate(ranges) if start <= at < start + lasting]
        if around:
            innermost = min(around, key=lambda number: ranges[number][2])
            expected[phases[innermost]] += 1
    (row,) = steps(step(1, 0, 100), *(named(*one) for one in ranges)).steps
    assert row.phases_us == expected
    assert row.other_us == 100 - sum(expected.values())


@cache
def recorded(name: str) -> tuple[LinkedTrace, StepTrace]:
    linked = recorded_trace(name)
    return linked, step_trace(linked)


def ns(us: float) -> int:
    return round(us * 1000)


def test_phases_sum_exactly_to_the_step(name: str) -> None:
    linked, found = recorded(name)
    for at, row in enumerate(found.steps):
        assert ns(row.total_us) == sum(map(ns, row.phases_us.values())) + ns(row.other_us)
        assert row.other_us >= 0
        assert min(row.phases_us.values(), default=0) >= 0
        if found.has_steps:
            assert ns(row.total_us) == int(linked.steps.end_ns[at] - linked.steps.start_ns[at])


def test_busy_and_idle_sum_exactly_to_the_step_and_parts_do_not_exceed_it(name: str) -> None:
    _, found = recorded(name)
    for row in found.steps:
        for device in row.devices:
            assert ns(device.busy_us) + ns(device.idle_us) == ns(row.total_us)
            assert 0 <= device.exposed_communication_us <= device.communication_us <= device.kernel_us
            assert max(device.kernel_us, device.memcpy_us) <= device.busy_us
            assert device.compute_us + device.exposed_communication_us == pytest.approx(device.kernel_us)


def test_busy_time_of_a_step_is_that_of_a_slow_sum(name: str) -> None:
    linked, found = recorded(name)
    if not found.has_steps:
        return
    for number, rows in linked.device_rows.items():
        starts, ends = union(linked.work.start_ns[rows], linked.work.end_ns[rows])
        for at, row in enumerate(found.steps):
            begin, end = int(linked.steps.start_ns[at]), int(linked.steps.end_ns[at])
            inside = [max(0, min(b, end) - max(a, begin)) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
            (device,) = (one for one in row.devices if one.device == linked.trace.devices[number])
            assert ns(device.busy_us) == sum(inside)


def test_the_loader_of_the_data_loader_bound_trace_is_two_fifths_of_each_step() -> None:
    _, found = recorded("v100_resnet50_dl0_2021.json.gz")
    assert len(found.steps) == 6
    for row in found.steps:
        assert 0.36 < row.phases_us["data_wait"] / row.total_us < 0.43
        assert set(row.phases_us) == {"data_wait", "h2d", "forward", "backward", "optimizer", "zero_grad"}
        assert row.other_us / row.total_us < 0.01
        assert row.kernels_launched == 1462
