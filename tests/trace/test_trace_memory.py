"""Allocations of a window: by operator and module, the curve, and what was held at the peak."""

import random
from pathlib import Path

import pytest
import torch
from operator_events import MAIN, op
from tiny_traces import Json, linked_trace, span
from torch import nn
from torch.profiler import ProfilerActivity, profile

from lightning_gpuprof.model.trace.memory import DeviceMemoryUse, WindowMemory
from lightning_gpuprof.sinks.trace_html import render_trace_html
from lightning_gpuprof.sinks.trace_tables import CATALOGUE
from lightning_gpuprof.trace.analyses.operators.memory import CURVE_POINTS, PIECES, memory
from lightning_gpuprof.trace.analysis import analyse
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace

MIB = 1 << 20


def moment(ts: float, address: int, changed: int, *, held: int | None = None, gpu: int | None = None) -> Json:
    args: dict[str, object] = {"Total Reserved": 0, "Bytes": changed, "Addr": address, "Ev Idx": 0}
    args |= {"Device Id": -1, "Device Type": 0} if gpu is None else {"Device Id": gpu, "Device Type": 1}
    if held is not None:
        args["Total Allocated"] = held
    return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": MAIN, "ts": ts} | {
        "args": args
    }


def host(events: list[Json], **tail: object) -> DeviceMemoryUse:
    (use,) = memory(linked_trace(events, **tail)).devices
    return use


TWO_OPERATORS = [
    op("aten::linear", 10, 40),
    op("aten::addmm", 20, 20),
    op("aten::relu", 60, 20),
    moment(15, 1, 100),
    moment(25, 2, 1000),
    moment(30, 2, -1000),
    moment(65, 3, 500),
    moment(70, 1, -100),
    moment(90, 4, 7),
]


def test_bytes_belong_to_the_innermost_operator_and_to_those_around_it() -> None:
    use = host(TWO_OPERATORS)
    rows = {row.operator: (row.allocations, row.self_bytes, row.total_bytes, row.peak_bytes) for row in use.operators}
    assert rows == {
        "aten::addmm": (1, 1000, 1000, 1000),
        "aten::relu": (1, 500, 500, 0),
        "aten::linear": (1, 100, 1100, 100),
        "": (1, 7, 7, 0),
    }
    assert [row.operator for row in use.operators] == ["aten::addmm", "aten::relu", "aten::linear", ""]


def test_the_peak_is_where_most_was_held() -> None:
    use = host(TWO_OPERATORS)
    assert (use.peak_bytes, use.peak_us, use.older_bytes) == (1100, 10, 0)
    assert (use.begin_bytes, use.end_bytes) == (0, 507)
    assert (use.allocations, use.allocated_bytes, use.freed_bytes) == (4, 1607, 1100)
    assert [(one.size_bytes, one.operator, one.age_us) for one in use.pieces] == [
        (1000, "aten::addmm", 0),
        (100, "aten::linear", 10),
    ]
    assert use.curve_us == (0, 10, 15, 50, 55, 75)
    assert use.curve_bytes == (100, 1100, 100, 600, 500, 507)


def test_a_gpu_counts_what_it_held_before_the_window() -> None:
    found = memory(
        linked_trace(
            [
                op("aten::mm", 0, 100),
                moment(10, 1, 512, held=4096 + 512, gpu=1),
                moment(20, 9, -1024, held=3584, gpu=1),
                moment(30, 1, 64),
            ]
        )
    )
    on_host, gpu = found.devices
    assert (on_host.device, on_host.peak_bytes) == (None, 64)
    assert (gpu.device, gpu.begin_bytes, gpu.peak_bytes, gpu.older_bytes, gpu.end_bytes) == (1, 4096, 4608, 4096, 3584)


def test_a_window_that_begins_with_frees_has_its_peak_at_the_start() -> None:
    use = host([moment(1, 9, -1000), moment(2, 8, -500), moment(3, 1, 64)])
    assert (use.begin_bytes, use.peak_bytes, use.older_bytes, use.end_bytes) == (1500, 1500, 1500, 64)
    assert use.pieces == ()


def test_pages_and_tables_show_it() -> None:
    analysis = analyse(linked_trace(TWO_OPERATORS))
    page = render_trace_html(analysis, name="trace")
    assert "Memory held, host" in page
    for entry in CATALOGUE:
        if entry.analysis == "memory":
            assert all(table.rows for table in (*entry.tables(analysis), *entry.long_tables(analysis))) or (
                entry.name in ("memory_modules", "memory_lines")
            )


def test_an_address_that_is_used_again_is_another_piece() -> None:
    events = [moment(1, 5, 10), moment(2, 5, -10), moment(3, 5, 30), moment(4, 6, 1), moment(5, 5, -30)]
    use = host(events)
    assert [one.size_bytes for one in use.pieces] == [30, 1]
    assert use.peak_bytes == 31


def test_memory_of_modules_holds_those_inside() -> None:
    events = [
        op("nn.Module: net", 0, 100),
        op("nn.Module: net.0", 10, 30),
        op("aten::mm", 15, 10),
        op("aten::add", 60, 10),
        moment(16, 1, 100),
        moment(61, 2, 20),
        moment(62, 1, -100),
    ]
    use = host(events)
    assert [(one.path, one.allocated_bytes, one.self_bytes, one.peak_bytes) for one in use.modules] == [
        (("net",), 120, 20, 120),
        (("net", "0"), 100, 100, 100),
    ]
    assert [one.module for one in use.pieces] == ["net.0", "net"]


def test_memory_of_a_line_holds_that_of_its_backward() -> None:
    stack = "net.py(7): forward;train.py(3): <module>"
    events = [
        span("cpu_op", "aten::mm", 0, 20, Call_stack=stack, Sequence_number=1, Fwd_thread_id=0),
        span("cpu_op", "aten::add", 30, 10, Call_stack="net.py(9): forward"),
        span("cpu_op", "MmBackward0", 50, 20, tid=2, Sequence_number=1, Fwd_thread_id=1),
        moment(5, 1, 100),
        moment(35, 2, 20),
        moment(36, 2, -20),
        moment(55, 3, 300) | {"tid": 2},
    ]
    use = host(events)
    assert [(one.line.frame, one.allocations, one.allocated_bytes, one.peak_bytes) for one in use.lines] == [
        ("net.py(7): forward", 2, 400, 400),
        ("net.py(9): forward", 1, 20, 0),
    ]


def test_curves_and_pieces_are_bounded_and_lose_no_peak() -> None:
    draw = random.Random(3)
    events, held, most = [], 0, 0
    for number in range(3000):
        size = draw.randint(1, 10_000)
        events.append(moment(2 * number, number, size))
        held += size
        most = max(most, held)
        if draw.random() < 0.6:
            events.append(moment(2 * number + 1, number, -size))
            held -= size
    use = host(events)
    assert len(use.curve_us) == len(use.curve_bytes) <= CURVE_POINTS
    assert max(use.curve_bytes) == use.peak_bytes == most
    assert len(use.pieces) == PIECES
    assert use.pieces_count > PIECES


def test_moments_of_other_names_and_windows_without_memory() -> None:
    other = moment(1, 1, 1) | {"name": "PyTorch Profiler (0)"}
    assert memory(linked_trace([op("aten::mm", 0, 1), other])) == WindowMemory()
    assert memory(linked_trace([])) == WindowMemory()


def test_a_file_of_another_writer_is_read_alike() -> None:
    odd = op("aten::mm", 0, 100) | {"cat": "Operator"}  # a spelling that the fast reading does not know
    fast, slow = host([op("aten::mm", 0, 100), *TWO_OPERATORS]), host([odd, *TWO_OPERATORS])
    assert fast == slow


def test_memory_events_are_a_signal_with_a_count() -> None:
    health = analyse(linked_trace(TWO_OPERATORS), only=["health"]).health
    assert health is not None
    (signal,) = (one for one in health.signals if one.name == "memory events")
    assert (signal.present, signal.count) == (True, 6)
    assert "cpu_instant_event" not in health.categories


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(256, 1024)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.layer(rows).relu().sum()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> LinkedTrace:
    net, rows = Net(), torch.ones(512, 256)
    net(rows).backward()
    path: Path = tmp_path_factory.mktemp("memory") / "cpu.pt.trace.json"
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, with_stack=True) as profiler:
        net.zero_grad(set_to_none=True)
        net(rows).backward()
    profiler.export_chrome_trace(str(path))
    return LinkedTrace(Trace.read(path))


def test_what_torch_records_is_known_to_the_byte(recorded: LinkedTrace) -> None:
    (use,) = memory(recorded).devices
    rows = {(row.operator, row.phase): row for row in use.operators}
    activations = 512 * 1024 * 4  # of the layer, and as much of relu
    assert rows["aten::addmm", "forward"].self_bytes == activations
    assert rows["aten::linear", "forward"].total_bytes == activations
    assert use.peak_bytes >= 2 * activations
    forward = [one for one in use.pieces if one.phase == "forward"]
    assert {one.size_bytes for one in forward} >= {activations}
    assert any(one.line is not None and "test_trace_memory.py" in one.line.frame for one in forward)
    assert "Net_0" in {one.module for one in forward}


def test_the_sums_agree_with_torch(recorded: LinkedTrace) -> None:
    (use,) = memory(recorded).devices
    events = recorded.trace.memory
    assert use.allocated_bytes - use.freed_bytes == use.end_bytes == int(events.changed_bytes.sum())
    assert sum(row.self_bytes for row in use.operators) == use.allocated_bytes
    assert sum(one.size_bytes for one in use.pieces) + use.older_bytes == use.peak_bytes
