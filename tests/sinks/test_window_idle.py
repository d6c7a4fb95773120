"""Idle time as people read it: causes, steps, longest gaps and the work around them."""

import io

import msgspec
import pytest
from rich.console import Console
from table_texts import texts

from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.model.trace.attribution import SourceLine
from lightning_gpuprof.model.trace.idle import (
    IDLE_CAUSE_TERMS,
    IDLE_CAUSES,
    DeviceIdle,
    HostTime,
    Idle,
    IdleGap,
    IdleShare,
    StepIdle,
)
from lightning_gpuprof.sinks import trace_tables
from lightning_gpuprof.sinks.tables import Table
from lightning_gpuprof.sinks.terminal_table import draw
from lightning_gpuprof.sinks.window_tables.idle import (
    cause_table,
    cause_word,
    host_table,
    longest_table,
    neighbour_table,
    step_table,
    unseen_sentence,
)

GAP = IdleGap(
    start_us=12_345.0,
    duration_us=62_000.0,
    cause="data",
    causes_us={"data": 60_000.0, "launch": 2_000.0},
    step="ProfilerStep#9",
    phase="data_wait",
    host="enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    host_ratio=0.75,
    operator="aten::copy_",
    before="void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::add>(int, float*)",
    after="Memcpy HtoD (Pageable -> Device)",
    launch_thread="25738/25799",
    line=SourceLine(frame="/home/someone/projects/vision/training/train_resnet.py(42): train", means="call"),
)

DEVICE = DeviceIdle(
    device="0",
    window_us=200_000.0,
    busy_us=100_000.0,
    idle_us=100_000.0,
    idle_ratio=0.5,
    gaps=4321,
    causes=(
        IdleShare(cause="data", idle_us=60_000.0, idle_ratio=0.6, window_ratio=0.3, gaps=2),
        IdleShare(cause="launch", idle_us=30_000.0, idle_ratio=0.3, window_ratio=0.15, gaps=4000),
        IdleShare(cause="host_sync", idle_us=10_000.0, idle_ratio=0.1, window_ratio=0.05, gaps=319),
    ),
    host=HostTime(calls_us=3_000.0, operators_us=18_000.0, elsewhere_us=9_000.0),
    steps=(
        StepIdle(
            step="ProfilerStep#9",
            start_us=-5.0,
            step_us=180_000.0,
            window_us=175_000.0,
            busy_us=75_000.0,
            idle_us=100_000.0,
            busy_ratio=75 / 175,
            causes_us={"data": 60_000.0, "host_sync": 10_000.0, "launch": 30_000.0},
        ),
    ),
    longest=(GAP,),
)

NEVER_IDLE = msgspec.structs.replace(
    DEVICE,
    idle_us=0.0,
    gaps=0,
    causes=(),
    host=HostTime(calls_us=0.0, operators_us=0.0, elsewhere_us=0.0),
    steps=(),
    longest=(),
)


def drawn(table: Table) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=100).print(draw(table))
    return stream.getvalue().splitlines()


def test_causes_stand_longest_first_above_their_sum() -> None:
    table = cause_table(DEVICE)
    assert table.title == "Why GPU 0 was idle"
    assert texts(table) == [
        ["data", "", "60", "60.0 %", "30.0 %", "2"],
        ["slow launches", "", "30", "30.0 %", "15.0 %", "4,000"],
        ["host sync", "", "10", "10.0 %", "5.0 %", "319"],
        ["all idle time", "", "100", "100.0 %", "50.0 %", "4,321"],
    ]
    assert [row[1].ratio for row in table.rows] == [1, 0.5, pytest.approx(1 / 6), 0]
    assert table.rows[1][0].help == IDLE_CAUSE_TERMS["launch"]


@pytest.mark.parametrize("cause", IDLE_CAUSES)
def test_each_cause_has_a_word_and_a_sentence(cause: str) -> None:
    assert "_" not in cause_word(cause)  # type: ignore[arg-type]
    assert len(IDLE_CAUSE_TERMS[cause]) > 20  # type: ignore[index]


def test_what_the_host_did_sums_to_slow_launches() -> None:
    assert texts(host_table(DEVICE)) == [
        ["CUDA or HIP calls", "", "3", "10.0 %"],
        ["operators", "", "18", "60.0 %"],
        ["Python and others", "", "9", "30.0 %"],
    ]


def test_without_operators_in_the_trace_the_host_has_no_row_for_them() -> None:
    host = HostTime(calls_us=3_000.0, operators_us=None, elsewhere_us=27_000.0)
    table = host_table(msgspec.structs.replace(DEVICE, host=host))
    assert texts(table) == [["CUDA or HIP calls", "", "3", "10.0 %"], ["anything else", "", "27", "90.0 %"]]


def test_steps_have_a_column_for_each_of_the_largest_causes() -> None:
    table = step_table(DEVICE)
    titles = [column.title for column in table.columns]
    assert titles == ["step", "length", "busy", "idle", "data", "slow launches", "host sync"]
    assert texts(table) == [["9", "180", "42.9 %", "100", "60", "30", "10"]]


def test_small_causes_of_steps_share_a_column() -> None:
    causes_us = dict(zip(IDLE_CAUSES, (9_000.0, 8_000.0, 7_000.0, 6_000.0, 2_000.0, 1_000.0), strict=False))
    step = msgspec.structs.replace(DEVICE.steps[0], causes_us=causes_us)
    table = step_table(msgspec.structs.replace(DEVICE, steps=(step,)))
    assert [column.title for column in table.columns][4:] == ["data", "checkpoint", "callbacks", "validation", "other"]
    assert texts(table)[0][4:] == ["9", "8", "7", "6", "3"]


def test_a_table_of_many_steps_says_that_it_shows_the_first() -> None:
    many = msgspec.structs.replace(DEVICE, steps=DEVICE.steps * 30)
    table = step_table(many)
    assert len(table.rows) == 20
    assert table.title == "Idle time in each step, inside the window of GPU 0 (first 20 of 30)"


def test_the_longest_gaps_say_where_the_host_was() -> None:
    table = longest_table(DEVICE)
    (row,) = texts(table)
    assert row[:5] == ["12.3", "62", "data", "9", "enumerate(DataLoader)"]
    assert row[5].startswith("...")
    assert row[5].endswith("train_resnet.py(42): train")
    cells = table.rows[0]
    assert cells[2].help == "data 60 ms, slow launches 2 ms"
    assert cells[4].help == "75.0 % of the time that the host was late"


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("aten::addmm", "aten::addmm"),
        ("<built-in function zoom_shift>", "zoom_shift (built-in)"),
        ("<built-in method conv2d of type object at 0x7ce6c2c1df60>", "conv2d (built-in)"),
        (
            "transformers/models/bert/modeling_bert.py(1001): forward",
            "transformers/models/bert/modeling_bert.py(1001): forward",
        ),
        ("x" * 60 + "/modeling_bert.py(1001): forward", "..." + "x" * 25 + "/modeling_bert.py(1001): forward"),
        ("Optimizer.step#SGD.step", "Optimizer.step"),
        (None, "waiting for data"),
    ],
)
def test_what_the_host_was_in_is_cut_where_it_tells_least(host: str | None, shown: str) -> None:
    gap = msgspec.structs.replace(GAP, host=host)
    assert texts(longest_table(msgspec.structs.replace(DEVICE, longest=(gap,))))[0][4] == shown


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (GAP.before, "vectorized_elementwise_kernel<4, add>"),
        ("Memcpy DtoH (Device -> Pinned)", "DtoH (Device -> Pinned)"),
        ("Memset (Device)", "Memset (Device)"),
        ("void cutlass::Kernel2<cutlass_80_wmma_s161616gemm>(cutlass::Params)", "cutlass_80_wmma_s161616gemm"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_Generic"),
        ("<odd>", "<odd>"),
    ],
)
def test_work_around_a_gap_has_the_part_of_its_name_that_tells_it(name: str, shown: str) -> None:
    gap = msgspec.structs.replace(GAP, before=name)
    cell = texts(neighbour_table(msgspec.structs.replace(DEVICE, longest=(gap,))))[0][2]
    assert cell == shown


def test_the_work_around_a_gap_has_its_operator_and_thread() -> None:
    (row,) = texts(neighbour_table(DEVICE))
    assert row[3:] == ["HtoD (Pageable -> Device)", "aten::copy_", "25799"]


def test_what_is_not_known_is_a_dash() -> None:
    gap = msgspec.structs.replace(
        GAP, step=None, phase=None, host=None, host_ratio=None, operator=None, launch_thread=None, line=None
    )
    unknown = msgspec.structs.replace(DEVICE, longest=(gap,))
    assert texts(longest_table(unknown))[0][3:] == ["-", "-", "-"]
    assert texts(neighbour_table(unknown))[0][4:] == ["-", "-"]


def idle_tables(device: DeviceIdle) -> list[Table]:
    """All tables of a device's idle time, as they are printed."""
    analysis = TraceAnalysis(idle=Idle(devices=(device,)))
    entries = [entry for entry in trace_tables.CATALOGUE if entry.name in {"idle", "idle_gaps"}]
    return [table for entry in entries for table in entry.tables(analysis)]


def test_a_device_that_was_never_idle_says_so_in_one_table() -> None:
    table, *others = idle_tables(NEVER_IDLE)
    assert table.rows == ()
    assert table.absent == "GPU 0 was never idle between its first and last kernel."
    assert all(other.rows == () for other in others)


def test_the_causes_that_a_trace_could_not_show_are_named() -> None:
    assert unseen_sentence(Idle(devices=(DEVICE,))) == ""
    sentence = unseen_sentence(Idle(devices=(DEVICE,), unseen=("data", "between_steps")))
    assert sentence.startswith("Not recorded: data, between steps.")
