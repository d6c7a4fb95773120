"""A comparison on the terminal."""

from __future__ import annotations

import io

import msgspec
import pytest
import sample_report
from rich.cells import cell_len

from lightning_gpuprof.analyze.compare import compare
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks.comparison_text import print_comparison


def printed(before: Report, after: Report) -> str:
    stream = io.StringIO()
    print_comparison(compare(before, after, before_name="A", after_name="B"), stream)
    return stream.getvalue()


def faster(report: Report) -> Report:
    period = sample_report.distribution(15.0)
    steps = msgspec.structs.replace(report.steps, period_ms=period, samples_per_s=64 / 15.0 * 1e3)
    wall = msgspec.structs.replace(report.wall, total_s=report.wall.total_s * 0.6)
    run = {**report.run, "loader.num_workers": 4}
    return msgspec.structs.replace(report, steps=steps, wall=wall, findings=report.findings[1:], run=run)


def test_outcome_speedups_and_prediction_stand_together() -> None:
    before = sample_report.full_report()
    text = printed(before, faster(before))
    assert "\nimproved\n" in text
    assert "training, samples/s" in text
    assert "1.81x (95 %:" in text
    assert "at most 1.77x (single-process-loading: gone)" in text
    assert "loader.num_workers  0 -> 4" in text
    assert "-44.9 %" in text


@pytest.mark.parametrize(
    "make", [sample_report.full_report, sample_report.minimal_report, sample_report.hostile_report]
)
def test_lines_fit_and_hold_no_escape_sequence(make: object) -> None:
    report = make() if callable(make) else None
    assert isinstance(report, Report)
    text = printed(report, sample_report.full_report())
    assert max(cell_len(line) for line in text.splitlines()) <= 100
    assert not set("\x1b\x07\u202e\u2028") & set(text)


def test_what_cannot_be_compared_says_why() -> None:
    text = printed(sample_report.minimal_report(), sample_report.full_report())
    assert "not comparable: the measurement of the earlier run is not valid" in " ".join(text.split())
