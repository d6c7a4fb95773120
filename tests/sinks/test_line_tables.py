"""Lines that another profiler timed beside ours: whose rows belong to the same file."""

import pytest

from lightning_gpuprof.model.line_times import FunctionTimes, TimedLine
from lightning_gpuprof.model.report import LineRow
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
