"""Tables as wide as the terminal: no number is cut, and a column without room is named below its table."""

import re
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import IO, cast, get_args

import msgspec
import pytest
import sample_report
import window_samples
from empty_structs import empty
from recorded_traces import recorded_analysis
from rich.console import Console

from lightning_gpuprof.model.report import Report
from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.sinks import (
    compile_tables,
    device_tables,
    host_tables,
    input_tables,
    memory_tables,
    method_tables,
    rank_tables,
    tables,
    time_tables,
)
from lightning_gpuprof.sinks.console import terminal_width
from lightning_gpuprof.sinks.tables import MS, Column, Table, bar
from lightning_gpuprof.sinks.terminal_table import draw
from lightning_gpuprof.sinks.trace_tables import CATALOGUE, Entry
from lightning_gpuprof.sinks.trace_terminal import render_tables

WIDTHS = (60, 80, 100, 160)


def number(index: int) -> Column[str]:
    return Column(f"number {index}", lambda _: 1230.0, MS)


TABLE = Table.of(
    "t",
    [f"a_kernel_of_a_long_name_{row}" for row in range(3)],
    Column("kernel", str),
    bar(lambda _: 0.5),
    *(number(index) for index in range(8)),
)


def drawn(table: Table, width: int) -> str:
    stream = StringIO()
    Console(file=stream, width=width, color_system=None).print(draw(table))
    return stream.getvalue()


def test_what_shows_the_other_columns_is_said_below_the_table() -> None:
    stream = StringIO()
    Console(file=stream, width=60, color_system=None).print(*render_tables([TABLE]))
    for shown, way_out in ((drawn(TABLE, 60), "a wider terminal"), (stream.getvalue(), "a wider terminal, or --csv")):
        assert " ".join(shown.split()).endswith(f"; use {way_out}")


def left_out(shown: str) -> list[str]:
    found = re.search(r"not shown: (.*); use ", " ".join(shown.split()))
    return [] if found is None else found[1].split(", ")


def assert_whole(table: Table, width: int) -> None:
    """Every line fits, every number of every column is there as it is, or the column is named."""
    shown = drawn(table, width)
    assert max(map(len, shown.splitlines())) <= width, shown
    named = left_out(shown)
    for index, column in enumerate(table.columns):
        heading = f"{column.title} {column.unit}".strip()
        if column.numeric and heading not in named:
            for row in table.rows:
                text = re.escape(row[index].text)
                assert re.search(rf"(?<!\S){text}(?!\S)", shown), (width, heading, row[index].text, shown)


def of_run(report: Report) -> list[Table]:
    found = [
        tables.wall_table(report),
        tables.phase_table(report),
        tables.callback_table(report, 10),
        tables.step_time_table(report),
        tables.device_table(report),
        tables.overhead_table(report),
        tables.window_table(report),
        tables.not_evaluated_table(report),
        time_tables.ledger_table(report, 8),
        time_tables.label_table(report),
        time_tables.speed_level_table(report),
        compile_tables.summary_table(report),
        input_tables.verdict_table(report),
        *input_tables.inner_tables(report),
        *device_tables.more_tables(report),
        *host_tables.tables_of(report),
        *memory_tables.memory_tables(report.memory),
        method_tables.level_table(report),
        method_tables.check_table(report),
    ]
    if report.ranks is not None:
        found.append(rank_tables.rank_table(report.ranks))
    return [table for table in found if table.rows]


@pytest.mark.parametrize("width", WIDTHS)
def test_no_number_of_a_run_is_cut(width: int) -> None:
    found = of_run(sample_report.full_report())
    assert len(found) > 20
    for table in found:
        assert_whole(table, width)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_number_of_a_made_trace_is_cut(width: int) -> None:
    found = [table for entry in CATALOGUE for table in entry.long_tables(window_samples.analysis()) if table.rows]
    assert len(found) > 20
    for table in found:
        assert_whole(table, width)


@pytest.mark.parametrize("suffix", [sample_report.HOSTILE, window_samples.HUGE])
def test_a_name_cannot_break_a_table_of_a_trace(suffix: str) -> None:
    analysis = window_samples.analysis(suffix)
    for table in (table for entry in CATALOGUE for table in entry.tables(analysis)):
        cells = [cell for row in table.rows for cell in row]
        assert all(text.isprintable() for text in (table.title, *(cell.text + cell.help for cell in cells)))
        assert max((len(cell.text) for cell in cells), default=0) <= 100
        assert max(map(len, drawn(table, 100).splitlines())) <= 100


KINDS = {field.name: get_args(field.type)[0] for field in msgspec.structs.fields(TraceAnalysis)}


COUNTS_OR_REASONS = ("health", "roofline")
"""Analyses that know a number or a reason of their own where there is nothing else."""


@pytest.mark.parametrize(
    "entry", [one for one in CATALOGUE if one.analysis not in COUNTS_OR_REASONS], ids=lambda one: one.name
)
def test_an_analysis_that_found_nothing_has_sentences_for_tables(entry: Entry) -> None:
    for table in entry.tables(TraceAnalysis(**{entry.analysis: empty(KINDS[entry.analysis])})):
        assert table.rows == ()
        assert table.absent.endswith(".")


@pytest.mark.parametrize("name", ["h100_bert_small", "a100_2rank_nccl_metadata"])
def test_no_number_of_a_recorded_trace_is_cut(shared: Path, name: str) -> None:
    analysis = recorded_analysis(f"{name}.json.gz")
    found = [table for entry in CATALOGUE for table in entry.tables(analysis) if table.rows]
    assert len(found) > 10
    for width in WIDTHS:
        for table in found:
            assert_whole(table, width)


@pytest.mark.parametrize("width", range(20, 161, 7))
def test_names_keep_both_ends_and_numbers_are_whole(width: int) -> None:
    shown = drawn(TABLE, width)
    assert_whole(TABLE, width)
    names = [line.split()[0] for line in shown.splitlines() if line.startswith("a_")]
    assert [name[-2:] for name in names] == ["_0", "_1", "_2"]
    assert all("…" in name or name.startswith("a_kernel_of_a_long_name") for name in names)
    assert width < 160 or left_out(shown) == []


def test_bars_go_first_then_numbers_from_the_right() -> None:
    shown = drawn(TABLE, 70)
    assert "█" not in shown
    assert left_out(shown) == [f"number {index} ms" for index in range(8 - len(left_out(shown)), 8)]
    assert "█" in drawn(TABLE, 160)
    assert "use a wider terminal" in shown


def test_text_of_several_words_wraps_between_them() -> None:
    one = Table.of("t", ["resnet50_of_a_rather_long_file_name.py(46): <module>"], Column("line", str))
    assert [line.strip() for line in drawn(one, 30).splitlines()[-2:]] == [
        "resnet50_of_a_r…e_name.py(46):",
        "<module>",
    ]


def test_a_wide_terminal_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = StringIO()
    assert terminal_width(stream) == 100
    assert terminal_width(cast(IO[str], SimpleNamespace(write=stream.write))) == 100
    monkeypatch.setenv("COLUMNS", "160")
    assert terminal_width(stream) == 160
    monkeypatch.setenv("COLUMNS", "20")
    assert terminal_width(stream) == 60
