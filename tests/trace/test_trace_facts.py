"""The facts of a window on traces small enough to do by hand."""

from pathlib import Path

import pytest
from tiny_traces import Json, document, span, training_step, write

from lightning_gpuprof.model.phases import FETCH_RANGE
from lightning_gpuprof.model.window import OperatorRow, WindowFacts
from lightning_gpuprof.trace.facts import TOP_ROWS, window_facts
from lightning_gpuprof.trace.reader import Trace


@pytest.fixture
def facts_of(tmp_path: Path):
    def compute(events: list[Json]) -> WindowFacts:
        trace = Trace.read(write(tmp_path / "t.json", document(events)))
        return window_facts(trace, start_step=3, stop_step=5)

    return compute


def test_facts_of_one_step_by_hand(facts_of) -> None:
    facts = facts_of(training_step())
    assert (facts.start_step, facts.stop_step) == (3, 5)
    assert (facts.problem, facts.events) == ("", 14)
    assert facts.bytes_json > 1000
    assert (facts.steps_us, facts.dataloader_us, facts.kernels) == ((100.0,), 30.0, 3)
    assert (facts.launches_matched, facts.launches_unmatched) == (3, 1)
    (device,) = facts.devices
    assert (device.device, device.kernels) == ("0", 3)
    assert device.window_us == 90.0  # from 5 to 95
    assert device.busy_us == 40.0  # [5, 10), [50, 80) on two streams, [90, 95)
    assert device.idle_us == 50.0
    assert facts.top_operators == (
        OperatorRow(name="aten::addmm", count=1, total_us=20.0),
        OperatorRow(name="aten::linear", count=1, total_us=20.0),
    )
    assert [row.name for row in facts.top_kernels] == ["gemm", "relu", "before the window"]
    assert facts.stop_cost_ms is None


def test_a_trace_of_nothing_has_empty_facts(facts_of) -> None:
    facts = facts_of([])
    assert facts.devices == facts.steps_us == facts.top_operators == facts.top_kernels == ()
    assert (facts.kernels, facts.launches_matched, facts.launches_unmatched, facts.dataloader_us) == (0, 0, 0, 0.0)


def test_a_trace_without_gpu_has_steps_and_operators_and_one_of_only_device_work_has_all_of_it_unmatched(
    facts_of,
) -> None:
    facts = facts_of([event for event in training_step() if event.get("cat") in ("cpu_op", "user_annotation")])
    assert (facts.devices, facts.steps_us, len(facts.top_operators)) == ((), (100.0,), 2)
    facts = facts_of([event for event in training_step() if event.get("cat") in ("kernel", "gpu_memcpy")])
    assert (facts.launches_matched, facts.launches_unmatched) == (0, 4)
    assert facts.devices[0].busy_us == 40.0


def test_kernels_of_one_graph_launch_are_matched_and_work_without_a_correlation_is_not(facts_of) -> None:
    """Even if a launch has none either."""
    kernels = [span("kernel", "k", 10 * i, 5, device=0, stream=7, correlation=4) for i in range(1, 41)]
    lost = [span("kernel", "k", 0, 1, device=0), span("cuda_runtime", "cudaGraphLaunch", 0, 1)]
    facts = facts_of([span("cuda_runtime", "cudaGraphLaunch", 0, 1, correlation=4), *kernels, *lost])
    assert (facts.launches_matched, facts.launches_unmatched) == (40, 1)


def test_devices_are_apart_and_in_order(facts_of) -> None:
    events = [span("kernel", "k", 100 * device, 10 + device, device=device, stream=7) for device in (10, 2, 0)]
    events.append(span("gpu_memset", "Memset", 230, 5, device=2, stream=7))
    facts = facts_of(events)
    assert [d.device for d in facts.devices] == ["0", "2", "10"]
    assert [d.kernels for d in facts.devices] == [1, 1, 1]
    assert [d.busy_us for d in facts.devices] == [10.0, 17.0, 20.0]
    assert [d.idle_us for d in facts.devices] == [0.0, 18.0, 0.0]


@pytest.mark.parametrize("cat", ["user_annotation", "cpu_op", "Operator"])
def test_steps_are_found_in_either_category_and_in_order_of_time(facts_of, cat: str) -> None:
    facts = facts_of([span(cat, "ProfilerStep#9", 50, 7.5), span(cat, "ProfilerStep#8", 0, 50)])
    assert facts.steps_us == (50.0, 7.5)


def test_a_step_in_both_categories_is_one_step_and_one_on_the_row_of_the_device_none(facts_of) -> None:
    steps = {
        "cpu_op": span("cpu_op", "ProfilerStep#8", 1, 48),
        "user_annotation": span("user_annotation", "ProfilerStep#8", 0, 50),
        "gpu_user_annotation": span("gpu_user_annotation", "ProfilerStep#9", 60, 50),
    }
    facts = facts_of([*steps.values(), span("cpu_op", "aten::mm", 10, 5)])
    assert facts.steps_us == (50.0,)
    assert [row.name for row in facts.top_operators] == ["aten::mm"]


def test_a_fetch_in_both_categories_or_nested_counts_once(facts_of) -> None:
    own = "enumerate(DataLoader)#gpuprof.__next__"
    torchs = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    facts = facts_of(
        [
            span("cpu_op", own, 0, 40),
            span("user_annotation", torchs, 5, 30),
            span("cpu_op", torchs, 5, 30),
            span("user_annotation", torchs, 100, 10),
        ]
    )
    assert facts.dataloader_us == 50.0


def test_our_own_name_of_a_fetch_is_shown_to_nobody(facts_of) -> None:
    facts = facts_of([span("cpu_op", FETCH_RANGE, 0, 40), span("cpu_op", "aten::mm", 50, 5)])
    assert [row.name for row in facts.top_operators] == ["DataLoader.__next__", "aten::mm"]
    assert facts.dataloader_us == 40.0


@pytest.mark.parametrize(
    ("name", "fetched_us"),
    [
        ("enumerate(DataLoader)#x.__next__", 80.0),  # of two threads
        ("DataLoader.__init__", 0.0),
        ("MyIter.__next__", 0.0),
        ("dataloader __next__", 0.0),
    ],
)
def test_fetches_of_two_threads_add_up_and_other_names_are_none(facts_of, name: str, fetched_us: float) -> None:
    assert facts_of([span("cpu_op", name, 0, 40), span("cpu_op", name, 20, 40, tid=2)]).dataloader_us == fetched_us


def test_top_tables_hold_the_largest_in_order(facts_of) -> None:
    operators = [span("cpu_op", f"op{i:02d}", 100 * i, i) for i in range(1, 31)]
    kernels = [span("kernel", f"k{i:02d}", 100 * i, i, device=0) for i in range(1, 31)]
    facts = facts_of(operators + kernels + [span("kernel", "k01", 5000, 100, device=0)])
    assert len(facts.top_operators) == len(facts.top_kernels) == TOP_ROWS
    assert [row.name for row in facts.top_operators] == [f"op{i:02d}" for i in range(30, 10, -1)]
    assert facts.top_kernels[0] == OperatorRow(name="k01", count=2, total_us=101.0)


def test_entries_that_are_no_events_are_told(facts_of) -> None:
    facts = facts_of([*training_step(), 7])
    assert "1 of 15" in facts.problem
    assert facts.kernels == 3


@pytest.mark.parametrize("factor", [3, 1000])
def test_stretching_time_stretches_every_time(facts_of, factor: int) -> None:
    before = facts_of(training_step())
    stretched = [
        {**e, "ts": e["ts"] * factor, "dur": e["dur"] * factor} if e["ph"] == "X" else e for e in training_step()
    ]
    after = facts_of(stretched)
    assert after.devices[0].busy_us == pytest.approx(before.devices[0].busy_us * factor)
    assert after.devices[0].idle_us == pytest.approx(before.devices[0].idle_us * factor)
    assert after.dataloader_us == pytest.approx(before.dataloader_us * factor)
    assert after.launches_matched == before.launches_matched


def test_of_a_fetch_the_part_beside_the_device_is_told(facts_of) -> None:
    """The window of the device is [5, 95): a fetch before it tells nothing of what the device did."""
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    events = [span("user_annotation", name, 95, 30), *training_step()]
    facts = facts_of(events)
    assert (facts.dataloader_us, facts.dataloader_beside_device_us) == (60.0, 25.0)
    assert facts_of([span("user_annotation", name, 0, 30)]).dataloader_beside_device_us is None
