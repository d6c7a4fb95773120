"""Tables of operators: what a reader sees, also where there is nothing."""

import msgspec
import pytest
from table_texts import texts

from lightning_gpuprof.model.trace.operators import OperatorDetail, Operators, OperatorShapes, OperatorType
from lightning_gpuprof.sinks.window_tables import operators as window_operators
from lightning_gpuprof.sinks.window_tables.operators import (
    operator_types_by_device_time,
    operator_types_by_host_time,
    operators_by_device_time,
    operators_by_host_time,
    operators_by_shape,
)


def kind(name: str, device_us: float | None, host_us: float, occurrences: int = 10) -> OperatorType:
    return OperatorType(
        type=name,
        occurrences=occurrences,
        host_self_us=host_us,
        host_average_us=host_us / occurrences,
        host_ratio=host_us / 10_000,
        device_self_us=device_us,
        device_average_us=None if device_us is None else device_us / occurrences,
        device_ratio=None if device_us is None else device_us / 10_000,
    )


def detail(name: str, device_us: float | None, host_us: float) -> OperatorDetail:
    return OperatorDetail(
        operator=name,
        phase="forward",
        occurrences=10,
        host_total_us=2 * host_us,
        host_self_us=host_us,
        host_average_us=host_us / 5,
        device_total_us=device_us,
        device_self_us=device_us,
        device_average_us=None if device_us is None else device_us / 10,
        device_work=0 if device_us is None else 12,
    )


SHAPES = OperatorShapes(
    operator="aten::mm",
    phase="forward",
    input_shape="64x64, 64x64",
    dtype="float32",
    occurrences=10,
    host_total_us=500,
    host_self_us=500,
    host_average_us=50,
    device_total_us=2000,
    device_self_us=2000,
    device_average_us=200,
    flops_per_call=524288,
    flops_per_s=2.6e9,
)
FULL = Operators(
    calls=30,
    host_self_us=10_000,
    device_us=10_000,
    attributed_device_us=9_000,
    types=(kind("mm", 6000, 1000), kind("add_", 3000, 2000), kind("view", 0, 7000)),
    operators=(detail("aten::mm", 6000, 1000), detail("aten::add_", 3000, 2000), detail("aten::view", 0, 7000)),
    shapes=(SHAPES,),
)
ON_HOST = Operators(
    calls=10,
    host_self_us=10_000,
    device_us=None,
    attributed_device_us=None,
    types=(kind("mm", None, 10_000),),
    operators=(detail("aten::mm", None, 10_000),),
)
NOTHING = Operators(calls=0, host_self_us=0, device_us=None, attributed_device_us=None)


def test_types_by_device_time_say_what_was_launched_outside_of_operators() -> None:
    assert texts(operator_types_by_device_time(FULL)) == [
        ["mm", "", "10", "6", "600", "60.0 %"],
        ["add_", "", "10", "3", "300", "30.0 %"],
        ["outside operators", "", "-", "1", "-", "10.0 %"],
    ]


def test_types_beyond_the_limit_are_one_row_so_that_the_shares_still_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_operators, "TOP", 1)
    rows = texts(operator_types_by_host_time(FULL))
    assert rows == [["view", "", "10", "7", "700", "70.0 %"], ["2 more", "", "20", "3", "-", "30.0 %"]]
    assert texts(operator_types_by_device_time(FULL))[1] == ["1 more", "", "10", "3", "-", "30.0 %"]


def test_operators_are_in_order_of_the_time_that_the_table_is_about() -> None:
    assert [row[0] for row in texts(operators_by_device_time(FULL))] == ["aten::mm", "aten::add_"]
    assert [row[0] for row in texts(operators_by_host_time(FULL))] == ["aten::view", "aten::add_", "aten::mm"]
    assert texts(operators_by_device_time(FULL))[0] == ["aten::mm", "forward", "10", "6", "6", "600", "60.0 %", "12"]


def test_operators_have_their_module_where_one_is_known() -> None:
    mm = msgspec.structs.replace(FULL.operators[0], module="encoder.layers.0", other_modules=11)
    known = msgspec.structs.replace(FULL, operators=(mm, *FULL.operators[1:]))
    for table in (operators_by_device_time(known), operators_by_host_time(known)):
        assert {row[0].text: row[-1].text for row in table.rows}["aten::mm"] == "encoder.layers.0 +11"
        assert {row[0].text: row[-1].text for row in table.rows}["aten::add_"] == "-"
    assert "module" not in [column.title for column in operators_by_device_time(FULL).columns]


def test_host_times_are_said_to_be_inflated() -> None:
    (own,) = (column for column in operators_by_host_time(FULL).columns if column.title == "self")
    assert "inflated by tracing" in own.help


def test_shapes_show_flops_and_the_side_that_they_are_sorted_by() -> None:
    table = operators_by_shape(FULL)
    assert "device time" in table.title
    assert texts(table) == [["aten::mm", "64x64, 64x64", "float32", "forward", "10", "2", "2", "200", "0.00260"]]
    assert "host time" in operators_by_shape(ON_HOST).title


def test_an_empty_table_says_why() -> None:
    assert operator_types_by_device_time(ON_HOST).absent == "No operator of the window launched anything on the device."
    assert operators_by_device_time(ON_HOST).rows == ()
    assert operators_by_shape(ON_HOST).absent == "The shapes of inputs were not recorded (record_shapes)."
    for table in (
        operator_types_by_device_time(NOTHING),
        operator_types_by_host_time(NOTHING),
        operators_by_device_time(NOTHING),
        operators_by_host_time(NOTHING),
        operators_by_shape(NOTHING),
    ):
        assert table.rows == ()
        assert table.absent == "The window has no operators."


def test_a_filter_that_fits_nothing_is_named() -> None:
    nothing = Operators(filter="zzz", calls=5, host_self_us=1, device_us=1, attributed_device_us=1, shapes=())
    assert operators_by_host_time(nothing).absent == "No operator whose name matches 'zzz' is in the window."
    assert (
        operators_by_device_time(nothing).absent
        == "No operator whose name matches 'zzz' launched anything on the device."
    )
    assert operators_by_shape(nothing).absent == "No operator whose name matches 'zzz' has recorded inputs."
