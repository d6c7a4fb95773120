"""When one line says all of a run, and that line."""

from pathlib import Path

import msgspec
import pytest
import sample_report

from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import brief


def short() -> Report:
    report = sample_report.minimal_report()
    return msgspec.structs.replace(
        report,
        wall=msgspec.structs.replace(report.wall, total_s=0.25),
        steps=msgspec.structs.replace(report.steps, count=4),
        verdict=msgspec.structs.replace(report.verdict, kind="not-enough-data"),
    )


def test_a_few_steps_without_a_verdict_are_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert brief.is_enough(short())
    brief.print_lines(short(), Path("/runs/a"))
    line = (
        "gpuprof: Too short to judge (4 steps in 250 ms). Run at least 30. All numbers: gpuprof report /runs/a --all\n"
    )
    assert capsys.readouterr().out == line


def test_what_could_be_judged_took_long_has_a_window_or_a_warning_is_told_in_full() -> None:
    report, full = short(), sample_report.full_report()
    warning = tuple(finding for finding in full.findings if finding.severity == "warning")[:1]
    assert warning
    for fields in (
        {"verdict": full.verdict},
        {"wall": msgspec.structs.replace(report.wall, total_s=60.0)},
        {"windows": full.windows[:1]},
        {"findings": warning},
    ):
        assert not brief.is_enough(msgspec.structs.replace(report, **fields))


def test_a_run_without_a_step_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    report = short()
    brief.print_lines(
        msgspec.structs.replace(report, steps=msgspec.structs.replace(report.steps, count=0)), Path("/runs/a")
    )
    assert "No step of this fit was measured" in capsys.readouterr().out
