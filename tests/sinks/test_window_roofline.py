"""Tables and figure of the roofline: what a reader sees, also where there is nothing."""

import json
import math
from typing import Any

import msgspec
import pytest

from lightning_gpuprof.model.trace.roofline import Ceiling, Rate, Resource, Roofline, RooflineRow
from lightning_gpuprof.sinks.tables import Table
from lightning_gpuprof.sinks.window_figures.roofline import roofline_figure
from lightning_gpuprof.sinks.window_tables.roofline import flops_table, roofline_table
from lightning_gpuprof.sinks.window_tables.short_names import flops

MM = RooflineRow(
    operator="aten::mm",
    input_shape="4096x4096, 4096x4096",
    dtype="bf16",
    kind="gemm",
    calls=10,
    flops_per_call=1.37e11,
    bytes_per_call=1e8,
    flops_per_byte=1370,
    device_us=2800,
    device_average_us=280,
    flops_per_s=4.9e14,
    bytes_per_s=3.6e11,
    ceiling_flops_per_s=9.9e14,
    ceiling_ratio=0.495,
    bound="compute",
)
ADD = msgspec.structs.replace(
    MM, operator="aten::add", kind="elementwise", flops_per_byte=0.083, flops_per_s=2e11, device_us=700, bound="memory"
)
COPY = msgspec.structs.replace(MM, operator="aten::copy_", kind="copy", flops_per_byte=0.0, flops_per_s=0.0)
RATE = Rate(seconds=0.01, flops=1.37e12, flops_per_s=1.37e14, mfu_ratio=0.138, measured_ratio=None)
FULL = Roofline(
    device="NVIDIA H100 80GB HBM3",
    devices=1,
    peak_source="NVIDIA H100 data sheet",
    ceilings=(Ceiling(dtype="bf16", flops_per_s=9.895e14, measured=False),),
    bytes_per_s=3.35e12,
    rows=(MM, ADD, COPY),
    flops_per_step=1.37e12,
    flops_by_dtype={"bf16": 1.37e12},
    steps=RATE,
    busy=msgspec.structs.replace(RATE, mfu_ratio=0.4),
    matrix_us=2800,
    coverage_ratio=0.9,
    faster_flops_ratio=0.0,
)
NOTHING = Roofline(reason="The window was recorded without input shapes (record_shapes).")


def values(table: Table) -> dict[str, str]:
    return {row[0].text: row[1].text for row in table.rows}


def test_flops_and_mfu_of_the_window() -> None:
    assert values(flops_table(FULL)) == {
        "FLOPs per step": "1.37 TFLOP",
        "of the window in bf16": "1.37 TFLOP",
        "TFLOP/s in steps": "137",
        "MFU in steps": "13.8 %",
        "TFLOP/s while busy": "137",
        "MFU while busy": "40.0 %",
        "matrix kernels with known FLOPs": "90.0 %",
        "device": "NVIDIA H100 80GB HBM3",
        "peak in bf16": "990 TFLOP/s",
        "memory bandwidth": "3,350 GB/s",
        "data sheet": "NVIDIA H100 data sheet",
    }


def test_what_cannot_be_right_is_said() -> None:
    wrong = msgspec.structs.replace(FULL, faster_flops_ratio=0.2, reduced_flops_ratio=0.3)
    assert values(flops_table(wrong))["FLOPs that cannot be right"] == "20.0 %"
    assert values(flops_table(wrong))["FLOPs of Winograd and FFT convolutions"] == "30.0 %"


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({}, "49.5 %"),
        ({"ceiling_ratio": None}, "-"),
        ({"ceiling_ratio": None, "faster_than": "compute"}, "impossible"),
        ({"ceiling_ratio": None, "faster_than": "memory"}, "cached"),
        ({"ceiling_ratio": None, "algorithm": "Winograd"}, "Winograd"),
    ],
)
def test_a_share_is_shown_only_if_it_is_one(change: dict[str, Any], shown: str) -> None:
    one = msgspec.structs.replace(FULL, rows=(msgspec.structs.replace(MM, **change),))
    (row,) = roofline_table(one).rows
    assert row[-1].text == shown
    assert bool(row[-1].help) == bool(set(change) - {"ceiling_ratio"})


def test_the_row_of_a_product() -> None:
    row = [cell.text for cell in roofline_table(FULL).rows[0]]
    assert row == ["aten::mm", "4096x4096, 4096x4096", "bf16", "2.80", "490", "360", "1,370", "compute", "49.5 %"]
    assert len(roofline_table(msgspec.structs.replace(FULL, rows=(MM,) * 25)).rows) == 20


@pytest.mark.parametrize(
    ("ratio", "bound", "measured_bytes", "call_us", "limit", "hover"),
    [
        (0.599, "memory", 1e8, 280, "latency", "nearer to memory"),
        (0.599, "memory", None, 9.9, "latency", "nearer to memory"),
        (0.599, "memory", None, 10, "memory", ""),
        (0.60, "memory", 1e8, 280, "memory", ""),
        (0.60, "compute", None, 9.9, "compute", ""),
        (None, "compute", 1e8, 9.9, "compute", ""),
        (None, None, None, 280, "-", ""),
    ],
)
def test_latency_is_the_limit_below_60_percent_of_both_peaks_of_measured_bytes_or_short_calls(
    ratio: float | None,
    bound: Resource | None,
    measured_bytes: float | None,
    call_us: float,
    limit: str,
    hover: str,
) -> None:
    row = msgspec.structs.replace(
        MM, ceiling_ratio=ratio, bound=bound, measured_bytes_per_call=measured_bytes, device_average_us=call_us
    )
    cell = roofline_table(msgspec.structs.replace(FULL, rows=(row,))).rows[0][-2]
    assert (cell.text, cell.help) == (limit, hover)


def test_without_rows_the_reason_stands_in_their_place() -> None:
    assert roofline_table(NOTHING).absent == NOTHING.reason
    assert flops_table(NOTHING).absent == NOTHING.reason
    assert flops_table(NOTHING).rows == ()
    assert roofline_figure(NOTHING) is None


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0, "0 FLOP"), (999, "999 FLOP"), (7.776e11, "778 GFLOP"), (5e18, "5,000 PFLOP")]
)
def test_flops_as_text(value: float | None, text: str) -> None:
    assert flops(value) == text


def drawn(roofline: Roofline) -> dict[str, Any]:
    figure = roofline_figure(roofline)
    assert figure is not None
    return json.loads(json.dumps(figure))  # type: ignore[no-any-return]


def test_the_figure_is_one_that_plotly_takes() -> None:
    go = pytest.importorskip("plotly.graph_objects")
    figure = go.Figure(drawn(FULL))
    assert [trace.name for trace in figure.data] == ["bf16: 990 TFLOP/s (data sheet)", "gemm", "elementwise"]
    assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == ("log", "log")


def test_the_ceiling_rises_with_the_bandwidth_to_the_peak() -> None:
    line = drawn(FULL)["data"][0]
    (left, ridge, right), (low, peak, top) = line["x"], line["y"]
    assert low == pytest.approx(left * 3.35e12)
    assert peak == top == 9.895e14
    assert ridge == pytest.approx(9.895e14 / 3.35e12)
    assert left < 0.083
    assert right > 1370


def test_area_of_a_marker_is_its_device_time_and_kinds_differ_in_shape() -> None:
    _, product, addition = drawn(FULL)["data"]
    ratio = product["marker"]["size"][0] / addition["marker"]["size"][0]
    assert ratio == pytest.approx(math.sqrt(2800 / 700), rel=0.01)
    assert product["marker"]["symbol"] != addition["marker"]["symbol"]
    assert product["marker"]["color"] != addition["marker"]["color"]


def test_a_measured_intensity_moves_the_marker_and_stands_beside_the_bound() -> None:
    measured = msgspec.structs.replace(MM, measured_bytes_per_call=5e8, measured_flops_per_byte=274.0)
    found = msgspec.structs.replace(FULL, rows=(measured, ADD))
    marker = drawn(found)["data"][1]
    assert marker["x"] == [274]
    assert "274 FLOP per byte as measured by ncu, 1,370 by the inputs" in marker["text"][0]
    table = roofline_table(found)
    titles = [column.title for column in table.columns]
    assert titles[titles.index("FLOP/B") + 1] == "FLOP/B (ncu)"
    assert [row[titles.index("FLOP/B (ncu)")].text for row in table.rows] == ["274", "-"]
    assert "FLOP/B (ncu)" not in [column.title for column in roofline_table(FULL).columns]


def test_what_has_no_share_is_hollow_and_copies_have_no_place() -> None:
    impossible = msgspec.structs.replace(MM, faster_than="compute", ceiling_ratio=None)
    data = drawn(msgspec.structs.replace(FULL, rows=(impossible, MM, COPY)))["data"]
    assert data[1]["marker"]["symbol"] == ["circle-open", "circle"]
    assert "cannot" not in data[1]["text"][1]
    assert "faster than the device can compute" in data[1]["text"][0]
    assert len(data) == 2


def test_without_peaks_there_are_markers_alone_and_without_a_type_s_peak_the_memory() -> None:
    unknown = msgspec.structs.replace(FULL, ceilings=(), bytes_per_s=None)
    assert [trace["mode"] for trace in drawn(unknown)["data"]] == ["markers", "markers"]
    memory = drawn(msgspec.structs.replace(FULL, ceilings=()))["data"]
    assert memory[0]["name"] == "memory: 3,350 GB/s"


def test_names_cannot_write_tags_into_the_figure() -> None:
    hostile = msgspec.structs.replace(MM, operator="<script>&\x1b", input_shape="<b>")
    (text,) = drawn(msgspec.structs.replace(FULL, rows=(hostile,)))["data"][1]["text"]
    assert "<script>" not in text
    assert "\x1b" not in text
    assert "&lt;script&gt;" in text


def test_rates_beyond_a_thousand_tera_have_a_prefix_too() -> None:
    layout: Any = (roofline_figure(FULL) or {})["layout"]
    named = dict(zip(layout["yaxis"]["tickvals"], layout["yaxis"]["ticktext"], strict=True))
    assert (named[1e0], named[1e5], named[1e14], named[1e15], named[1e18]) == ("1", "100k", "100T", "1P", "1E")
