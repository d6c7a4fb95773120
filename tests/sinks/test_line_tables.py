"""Lines that another profiler timed beside ours: whose rows belong to the same file."""

import io

import msgspec
import pytest
import sample_report
from parsed_page import Page

from lightning_gpuprof.model.line_times import FunctionTimes, TimedLine
from lightning_gpuprof.model.report import LineRow
from lightning_gpuprof.sinks import terminal
from lightning_gpuprof.sinks.html import render_html
from lightning_gpuprof.sinks.line_tables import timed_tables


def sampled(place: str, share: float) -> LineRow:
    return LineRow(place=f"{place} step", phase="forward", total_s=1.0, share=share, looks=10)


def shown(file: str, *places: str) -> list[str]:
    """The column ``sampled``: the first place has 10 % of the steps, the second 20 %."""
    function = FunctionTimes(name="step", file=file, lines=(TimedLine(line=3, total_s=1.0),))
    rows = [sampled(place, 0.1 * number) for number, place in enumerate(places, 1)]
    (table,) = timed_tables([function], rows)
    at = [number for number, column in enumerate(table.columns) if column.title == "sampled"]
    return [row[number].text for row in table.rows for number in at]


@pytest.mark.parametrize(
    ("file", "place"),
    [
        ("/home/me/src/train.py", "src/train.py:3"),
        ("src/train.py", "/home/me/src/train.py:3"),
        ("train.py", "/home/me/src/train.py:3"),
        ("./train.py", "train.py:3"),
        ("../src/train.py", "/home/me/src/train.py:3"),
        ("/home/me/src/train.py", "/home/me/src/train.py:3"),
    ],
)
def test_a_file_is_the_same_by_its_absolute_and_its_relative_name(file: str, place: str) -> None:
    assert shown(file, place) == ["10.0 %"]


def test_files_of_other_folders_are_others() -> None:
    assert shown("/home/me/src/train.py", "other/train.py:3") == []
    assert shown("/home/me/src/train.py", "train.py:3", "src/train.py:3") == ["20.0 %"]
    assert shown("train.py", "a/train.py:3", "b/train.py:3") == []
    assert shown("", "a/train.py:3") == []


@pytest.mark.parametrize(("device", "said"), [("cuda", True), ("cpu", False)])
def test_on_a_gpu_the_tables_say_that_a_line_that_waits_has_the_gpu_s_time(device: str, said: bool) -> None:
    function = FunctionTimes(name="step", file="train.py", lines=(TimedLine(line=3, total_s=1.0),))
    report = sample_report.full_report()
    run = {**report.run, "device.type": device}
    report = msgspec.structs.replace(report, run=run, line_times=(function,))
    stream = io.StringIO()
    terminal.print_report(report, stream)
    on_page = Page(render_html(report)).text
    for shown in (" ".join(stream.getvalue().split()), on_page):
        assert "Lines of step in train.py" in shown
        assert ("a line that waits for the GPU gets the GPU's time" in shown) == said
