"""Two traces compared per step: what changed, appeared and vanished, and why a comparison may not hold."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from recorded_traces import recorded_trace
from tiny_traces import Json, linked_trace, span, training_step

from lightning_gpuprof.model.trace.differences import Change, Differences
from lightning_gpuprof.trace.analyses.comparison import differences
from lightning_gpuprof.trace.analyses.comparison.differences import differences_of

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def steps(count: int, kernels: Sequence[tuple[str, float]], *, period: float = 100, host: float = 20) -> list[Json]:
    """Steps of 100 us; in each one an operator of so many us launches kernels that run one after the other."""
    events: list[Json] = []
    for number in range(count):
        begin = number * period
        events.append(span("user_annotation", f"ProfilerStep#{number + 5}", begin, period))
        events.append(span("cpu_op", "aten::linear", begin + 1, host))
        at = begin + 10
        for index, (name, dur) in enumerate(kernels):
            correlation = 1 + number * 100 + index
            events.append(span("cuda_runtime", "cudaLaunchKernel", begin + 2 + index, 1, correlation=correlation))
            where = {"pid": 0, "tid": 7, "device": 0, "stream": 7, "correlation": correlation}
            events.append(span("kernel", name, at, dur, **where))
            at += dur
    return events


def by_name(changes: Sequence[Change]) -> dict[str, Change]:
    return {one.name: one for one in changes}


def sums_fit(found: Differences) -> None:
    for rows in (found.kernels, found.kernel_classes):
        assert sum(one.before_us for one in rows) == pytest.approx(found.kernel_total.before_us)
        assert sum(one.after_us for one in rows) == pytest.approx(found.kernel_total.after_us)
        assert sum(one.change_us for one in rows) == pytest.approx(found.kernel_total.change_us)


def test_totals_are_divided_by_the_steps_of_each_trace() -> None:
    before = linked_trace(steps(2, [("gemm", 10), ("relu", 5)]))
    after = linked_trace(steps(4, [("gemm", 16), ("relu", 5)]))
    found = differences_of(before, after)
    assert (found.unit, found.before.units, found.after.units) == ("step", 2, 4)
    changes = by_name(found.kernels)
    gemm = changes["gemm"]
    assert (gemm.before_us, gemm.after_us, gemm.change_us, gemm.status) == (10.0, 16.0, 6.0, "slower")
    assert (gemm.before_count, gemm.after_count) == (1.0, 1.0)
    assert changes["relu"].status == "same"
    assert found.period_change_us == 0.0
    sums_fit(found)


def test_what_appeared_and_vanished_is_named_and_its_class_stays() -> None:
    before = linked_trace(steps(3, [("volta_sgemm_128x64_nt", 10)]))
    after = linked_trace(steps(3, [("volta_sgemm_64x64_nt", 14)]))
    found = differences_of(before, after)
    changes = by_name(found.kernels)
    assert changes["volta_sgemm_128x64_nt"].status == "vanished"
    assert changes["volta_sgemm_64x64_nt"].status == "appeared"
    (gemm,) = found.kernel_classes
    assert (gemm.name, gemm.before_us, gemm.after_us, gemm.status) == ("gemm", 10.0, 14.0, "slower")
    sums_fit(found)


def test_rows_come_by_absolute_change_and_those_left_out_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "MAX_ROWS", 2)
    before = linked_trace(steps(3, [("a", 10), ("b", 20), ("c", 5)]))
    after = linked_trace(steps(3, [("a", 11), ("b", 10), ("c", 9)]))
    found = differences_of(before, after)
    assert [one.name for one in found.kernels] == ["b", "c"]
    assert found.kernels_left_out == 1
    assert [one.status for one in found.kernels] == ["faster", "slower"]


def test_a_change_of_less_than_two_percent_is_called_the_same() -> None:
    found = differences_of(linked_trace(steps(3, [("a", 50)])), linked_trace(steps(3, [("a", 50.9)])))
    assert found.kernels[0].status == "same"
    assert found.kernels[0].change_us == pytest.approx(0.9)


def test_work_that_was_launched_outside_of_the_steps_does_not_count() -> None:
    events = steps(1, [("gemm", 10)])
    where = {"pid": 0, "tid": 7, "device": 0, "stream": 7}
    events += [
        span("kernel", "launched before", 3, 5, correlation=-3, **where),
        span("cuda_runtime", "cudaLaunchKernel", 150, 5, correlation=77),
        span("kernel", "launched after", 160, 5, correlation=77, **where),
    ]
    found = differences_of(linked_trace(events), linked_trace(events))
    assert [one.name for one in found.kernels] == ["gemm"]


def test_busy_idle_and_communication_of_a_device_are_per_step() -> None:
    before = linked_trace(steps(2, [("gemm", 30)]))
    after = linked_trace(steps(2, [("gemm", 30), (ALL_REDUCE, 20)]))
    (device,) = differences_of(before, after).devices
    assert (device.before.busy_us, device.before.idle_us, device.before.communication_us) == (30.0, 70.0, 0.0)
    assert (device.after.busy_us, device.after.idle_us, device.after.communication_us) == (50.0, 50.0, 20.0)
    assert (device.after.computation_us, device.after.exposed_us) == (30.0, 20.0)


def test_operators_are_compared_by_own_host_time_and_launched_device_time() -> None:
    before = linked_trace(steps(3, [("gemm", 10)], host=20))
    after = linked_trace(steps(3, [("gemm", 14)], host=30))
    (operator,) = differences_of(before, after).operators
    assert (operator.host.name, operator.host.before_us, operator.host.after_us) == ("aten::linear", 20.0, 30.0)
    assert (operator.device.before_us, operator.device.after_us) == (10.0, 14.0)


def test_phases_with_the_rest_sum_to_the_period() -> None:
    before = linked_trace(training_step())
    slower = [*training_step(), span("user_annotation", "Optimizer.step#SGD.step", 80, 15)]
    found = differences_of(before, linked_trace(slower))
    phases = by_name(found.phases)
    assert (phases["data_wait"].before_us, phases["data_wait"].status) == (30.0, "same")
    assert (phases["optimizer"].after_us, phases["optimizer"].status) == (15.0, "appeared")
    assert phases["forward"].before_us == 40.0  # the operators that nothing else tells of
    assert (phases["none"].before_us, phases["none"].after_us) == (30.0, 15.0)
    assert sum(one.before_us for one in found.phases) == found.before.period_us == 100.0
    assert sum(one.after_us for one in found.phases) == found.after.period_us


def test_the_backward_of_autograds_thread_counts_while_the_main_thread_tells_no_phase() -> None:
    events = [
        span("user_annotation", "ProfilerStep#1", 0, 100),
        span("user_annotation", "## forward ##", 0, 30),
        span("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 30, 30, tid=2),
        span("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 70, 20, tid=3),
    ]
    found = by_name(differences_of(linked_trace(events), linked_trace(events)).phases)
    assert {name: one.before_us for name, one in found.items()} == {"forward": 30, "backward": 30, "none": 40}


def test_without_steps_values_are_per_window_and_this_is_said() -> None:
    before = linked_trace(steps(3, [("gemm", 10)]))
    after = linked_trace([event for event in steps(3, [("gemm", 10)]) if event["cat"] != "user_annotation"])
    found = differences_of(before, after, names=("old.json", "new.json"))
    assert (found.unit, found.kernels[0].before_us, found.kernels[0].after_us) == ("window", 30.0, 30.0)
    assert any(caveat.startswith("new.json has no steps") for caveat in found.caveats)


def test_phases_without_steps_are_those_of_the_table_of_steps() -> None:
    stepped = training_step()
    bare = [event for event in stepped if not event["name"].startswith("ProfilerStep")]
    found = by_name(differences_of(linked_trace(stepped), linked_trace(bare)).phases)
    assert {name: one.before_us for name, one in found.items()} == {"data_wait": 30, "forward": 40, "none": 30}
    assert (found["data_wait"].after_us, found["forward"].after_us) == (30, 40)


def test_different_gpus_ranks_and_recordings_are_caveats() -> None:
    v100 = {"deviceProperties": [{"id": 0, "name": "V100"}], "distributedInfo": {"rank": 0, "world_size": 2}}
    h100 = {"deviceProperties": [{"id": 0, "name": "H100"}], "distributedInfo": {"rank": 1, "world_size": 8}}
    stacks = span("python_function", "train.py(3): f", 1, 2, Python_id=2)
    before = linked_trace(steps(3, [("gemm", 10)]), **v100)
    after = linked_trace([*steps(3, [("gemm", 10)]), stacks], **h100)
    caveats = " ".join(differences_of(before, after).caveats)
    for expected in ("V100 in before, H100 in after", "2 in before, 8 in after", "0 in before, 1 in after", "stacks"):
        assert expected in caveats
    same = differences_of(before, before)
    assert same.caveats == ()
    assert (same.before.gpu, same.before.rank, same.before.world_size) == ("V100", 0, 2)


def test_a_trace_without_gpu_is_compared_as_far_as_it_goes() -> None:
    before = linked_trace([span("cpu_op", "aten::mm", 0, 10)])
    after = linked_trace(steps(1, [("gemm", 10)]))
    found = differences_of(before, after)
    assert any("before has no device activity" in caveat for caveat in found.caveats)
    assert found.devices[0].before is None
    assert all(one.device is None for one in found.operators)


def test_empty_traces_differ_in_nothing() -> None:
    found = differences_of(linked_trace([]), linked_trace([]))
    assert (found.kernels, found.operators, found.phases, found.devices) == ((), (), (), ())
    assert found.before.period_us == 0.0


def test_a_real_trace_does_not_differ_from_itself(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "MAX_ROWS", 10**6)
    for file in sorted((shared / "traces").glob("*.json.gz")):
        trace = recorded_trace(file.name)
        found = differences_of(trace, trace)
        assert found.period_change_us == 0
        assert {one.status for one in (*found.kernels, *found.kernel_classes, *found.phases)} <= {"same"}, file.name
        assert all(one.host.change_us == 0 for one in found.operators)
        sums_fit(found)
        if found.phases:
            assert sum(one.before_us for one in found.phases) == pytest.approx(found.before.period_us)
        for device in found.devices:
            assert device.before == device.after
            assert device.before.busy_us + device.before.idle_us == pytest.approx(found.before.period_us)
            assert 0 <= device.before.exposed_us <= device.before.communication_us <= device.before.busy_us


def test_two_real_traces_of_one_model_differ_as_their_facts_say(shared: Path) -> None:
    names = ("v100_resnet50_dl0_2021", "v100_resnet50_dl0_preschema")
    before, after = (recorded_trace(f"{name}.json.gz") for name in names)
    found = differences_of(before, after, names=names)
    assert found.period_change_us == pytest.approx(38948.2, abs=0.1)
    assert found.kernel_total.status == "same"  # the same network: other names, as much work
    assert {"appeared", "vanished"} <= {one.status for one in found.kernels}
    assert {one.status for one in found.kernel_classes} <= {"slower", "faster", "same"}
