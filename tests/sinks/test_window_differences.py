"""Tables of the differences between two traces."""

import msgspec
from table_texts import texts

from lightning_gpuprof.model.trace.differences import (
    Change,
    ComparedTrace,
    DeviceChange,
    DeviceTimes,
    Differences,
    OperatorChange,
    Status,
)
from lightning_gpuprof.sinks.window_tables import differences as tables


def change(name: str, before_us: float, after_us: float, status: Status) -> Change:
    return Change(
        name=name,
        before_us=before_us,
        after_us=after_us,
        change_us=after_us - before_us,
        before_count=2.0 if before_us else 0.0,
        after_count=2.5 if after_us else 0.0,
        status=status,
    )


def trace(name: str, period_us: float) -> ComparedTrace:
    return ComparedTrace(
        name=name,
        gpu="NVIDIA H100 80GB HBM3",
        rank=1,
        world_size=8,
        steps=3,
        units=3,
        period_us=period_us,
        period_min_us=period_us,
        period_max_us=period_us,
    )


GEMM = change("gemm", 1000.0, 1500.0, "slower")
TIMES = DeviceTimes(busy_us=6000.0, idle_us=4000.0, computation_us=5000.0, communication_us=2000.0, exposed_us=1000.0)
FOUND = Differences(
    unit="step",
    before=trace("old.json", 10_000.0),
    after=trace("new.json", 12_000.0),
    period_change_us=2000.0,
    devices=(
        DeviceChange(device="0", before=TIMES, after=msgspec.structs.replace(TIMES, idle_us=6000.0)),
        DeviceChange(device="1", before=None, after=TIMES),
    ),
    phases=(change("data_wait", 100.0, 50.0, "faster"), change("none", 900.0, 900.0, "same")),
    kernel_classes=(GEMM,),
    kernel_total=change("all", 1000.0, 1500.0, "slower"),
    kernels=(
        change("void at::native::elementwise_kernel<2>(int)", 0.0, 500.0, "appeared"),
        change("gone", 20.0, 0.0, "vanished"),
    ),
    kernels_left_out=4,
    operators=(OperatorChange(host=change("aten::mm", 30.0, 60.0, "slower"), device=None),),
    operators_left_out=0,
    caveats=("Few steps.",),
)


def test_both_traces_are_shown_with_their_period() -> None:
    assert texts(tables.compared_trace_table(FOUND)) == [
        ["before", "old.json", "NVIDIA H100 80GB HBM3", "1 of 8", "3", "10", "10", "10"],
        ["after", "new.json", "NVIDIA H100 80GB HBM3", "1 of 8", "3", "12", "12", "12"],
    ]


def test_devices_show_their_change_and_a_missing_side_is_a_dash() -> None:
    rows = texts(tables.device_change_table(FOUND))
    assert rows[1] == ["0", "idle", "4", "6", "+2", "+50.0 %"]
    assert rows[0] == ["0", "busy", "6", "6", "0", "0 %"]
    assert rows[5] == ["1", "busy", "-", "6", "-", "-"]


def test_changes_have_a_sign_a_share_and_a_word() -> None:
    assert texts(tables.phase_change_table(FOUND))[0] == [
        "waiting for data",
        "0.100",
        "0.0500",
        "-0.0500",
        "-50.0 %",
        "2 to 2.50",
        "faster",
    ]
    assert texts(tables.kernel_class_change_table(FOUND))[-1][0] == "all"


def test_kernels_that_appeared_have_a_short_name_and_no_share() -> None:
    table = tables.kernel_change_table(FOUND)
    assert table.title == "Kernels per step (4 more)"
    appeared, vanished = texts(table)
    assert appeared == ["elementwise_kernel<2>", "0", "0.500", "+0.500", "-", "0 to 2.50", "appeared"]
    assert vanished[-2:] == ["2 to 0", "vanished"]


def test_operators_without_device_times_have_dashes() -> None:
    assert texts(tables.operator_change_table(FOUND)) == [["aten::mm", "0.0300", "0.0600", "+0.0300", "-", "-", "-"]]


def test_caveats_are_shown_and_their_absence_is_said() -> None:
    assert texts(tables.caveat_table(FOUND)) == [["Few steps."]]
    assert tables.caveat_table(msgspec.structs.replace(FOUND, caveats=())).absent.startswith("No caveats")


def test_empty_comparisons_are_sentences() -> None:
    empty = msgspec.structs.replace(FOUND, devices=(), phases=(), kernel_classes=(), kernels=(), operators=())
    for make in (
        tables.device_change_table,
        tables.phase_change_table,
        tables.kernel_class_change_table,
        tables.kernel_change_table,
        tables.operator_change_table,
    ):
        assert make(empty).rows == ()
        assert make(empty).absent.endswith(".")
