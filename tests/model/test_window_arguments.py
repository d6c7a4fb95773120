"""Windows and caps as they are written in a script: what they mean, and which are refused."""

import pytest

from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.model.config import PlannedWindow, TraceConfig, parse_windows


@pytest.mark.parametrize(
    ("windows", "words"),
    [
        (-1, "windows must be optimizer steps, 0 or later"),
        ((5, 3), "windows must stop no earlier than they start"),
        ([5, (6, 9)], "windows must not overlap"),
        ((1, 2, 3), "windows must be pairs of a start and a stop"),
        ((10, 300), r"windows must be at most trace.max_steps \(200\) steps long.* TraceConfig\(max_steps=291\)"),
        (["x"], "windows must be optimizer steps"),
        (True, "windows must be optimizer steps"),
    ],
)
def test_windows_that_cannot_work_are_refused(windows: object, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        parse_windows(windows, 3)  # type: ignore[arg-type]


def test_a_longer_window_may_be_allowed() -> None:
    assert parse_windows((10, 300), 3, 291) == (PlannedWindow(start=10, stop=300),)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_steps": 0}, "trace.max_steps must be an integer of at least 1"),
        ({"max_s": 0}, "trace.max_s must be a number of seconds from 0.1 to 3600"),
        ({"active": 300}, r"trace.active must be at most trace.max_steps \(200\)"),
    ],
)
def test_caps_that_cannot_work_are_refused(options: dict[str, int], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        TraceConfig(**options)  # type: ignore[arg-type]
