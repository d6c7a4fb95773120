"""The summary on the terminal."""

from __future__ import annotations

import io

import msgspec
import pytest
import sample_report
from rich.cells import cell_len

from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import terminal
from lightning_gpuprof.sinks.console import print_to

REPORTS = {
    "full": sample_report.full_report,
    "minimal": sample_report.minimal_report,
    "hostile": sample_report.hostile_report,
}
WHERE = {"HTML": "runs/report.html", "TensorBoard": "tensorboard --logdir runs"}


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"


def printed(report: Report, where: dict[str, str] | None = None) -> str:
    stream = io.StringIO()
    terminal.print_report(report, stream, where=where)
    return stream.getvalue()


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_line_is_longer_than_the_width(name: str, width: int) -> None:
    stream = io.StringIO()
    print_to(stream, terminal.render(REPORTS[name](), width=width, where={"HTML": "x" * 300}), width=100)
    lines = stream.getvalue().splitlines()
    assert max(cell_len(line) for line in lines) <= width
    assert lines


@pytest.mark.parametrize("name", REPORTS)
def test_what_is_no_terminal_gets_no_escape_sequence(name: str) -> None:
    assert "\x1b" not in printed(REPORTS[name](), WHERE)


def test_no_color_leaves_out_every_escape_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = FakeTerminal()
    terminal.print_report(sample_report.full_report(), stream)
    assert "\x1b" not in stream.getvalue()


def test_a_terminal_gets_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = FakeTerminal()
    terminal.print_report(sample_report.full_report(), stream)
    assert "\x1b[" in stream.getvalue()


def test_a_hostile_name_cannot_write_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = FakeTerminal()
    terminal.print_report(sample_report.hostile_report(), stream)
    assert not set("\x1b\x07\u202e\u2028") & set(stream.getvalue())


def test_brackets_in_names_are_text_and_no_markup() -> None:
    report = msgspec.structs.replace(
        sample_report.full_report(),
        verdict=msgspec.structs.replace(sample_report.full_report().verdict, summary="[bold]x[/]"),
    )
    assert "[bold]x[/]" in printed(report)


def test_an_ascii_stream_is_written_without_an_error() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    terminal.print_report(sample_report.full_report(), stream, where=WHERE)
    text = raw.getvalue().decode("ascii")
    assert "####" in text
    assert "input-bound" in text


def test_sections_stand_in_the_order_of_the_method() -> None:
    text = printed(sample_report.full_report(), WHERE)
    order = [
        "Measurement valid with 2 caveats",
        "Verdict",
        "runner-up",
        "Wall time",
        "Phases of a step",
        "Top callbacks",
        "GPU and host",
        "Trace windows",
        "Findings",
        "not evaluated",
        "cost of the profiler",
        "Next step",
        "TensorBoard:",
    ]
    places = [text.index(words) for words in order]
    assert places == sorted(places)


def test_findings_show_evidence_advice_and_gain() -> None:
    text = printed(sample_report.full_report())
    assert "data_wait share 43.4 % (limit 5.0 %)" in text
    assert "Set num_workers=4" in text
    assert "up to 1.77x (saves 11.8 ms/step)" in text


def test_every_phase_with_time_has_its_row_and_the_others_are_named() -> None:
    report = sample_report.full_report()
    lines = printed(report).splitlines()
    for row in report.phases:
        if row.total_s > 0:
            assert any(line.strip().startswith(row.phase) for line in lines)
    assert any(line.strip() == "no time in: clip, checkpoint, sync" for line in lines)


def test_nothing_measured_is_never_shown_as_zero_or_as_fine() -> None:
    text = printed(sample_report.minimal_report())
    assert "Measurement not valid" in text
    assert "GPUs: not measured" in text
    assert "host: not measured" in text
    assert "No finding, because the measurement is not valid." in text
    assert "0 %" not in text


def test_rules_that_could_not_judge_stand_in_one_line_by_reason() -> None:
    text = " ".join(printed(sample_report.full_report()).split())
    assert "3 rules: main-thread CPU time was not measured (blocked-in-step)" in text
    assert "fewer than 2 epochs (worker-startup, epoch-boundary-idle)" in text
