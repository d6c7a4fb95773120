"""The summary on the terminal."""

import io
import re

import msgspec
import pytest
import sample_report
from rich.cells import cell_len

from lightning_gpuprof.model.phases import words_of
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.rules import claims
from lightning_gpuprof.sinks import terminal
from lightning_gpuprof.sinks.console import print_to
from lightning_gpuprof.sinks.terminal_text import sentence_text

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
    assert lines.pop().strip() == "HTML: " + "x" * 300  # what is copied is one line
    assert max(cell_len(line) for line in lines) <= width


@pytest.mark.parametrize("name", REPORTS)
def test_what_is_no_terminal_gets_no_escape_sequence(name: str) -> None:
    assert "\x1b" not in printed(REPORTS[name](), WHERE)


@pytest.mark.parametrize(
    ("environ", "is_terminal", "coloured"),
    [
        ({"TERM": "xterm-256color"}, True, True),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, True, False),
        ({"TERM": "xterm-256color", "FORCE_COLOR": "1"}, False, True),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, False, True),
        ({"TERM": "xterm-256color", "FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
    ],
)
def test_a_terminal_or_force_color_gets_colours_unless_they_are_off(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], is_terminal: bool, coloured: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    stream = FakeTerminal() if is_terminal else io.StringIO()
    terminal.print_report(sample_report.full_report(), stream)
    assert ("\x1b[" in stream.getvalue()) is coloured
    assert coloured or "\x1b" not in stream.getvalue()


def test_numbers_stay_with_their_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    for width in range(60, 101, 5):
        stream = io.StringIO()
        print_to(stream, terminal.render(sample_report.full_report(), width=width), width=width)
        lines = stream.getvalue().splitlines()
        assert [line for line in lines if line.lstrip().startswith(("% ", "ms ", "samples/s"))] == []
        assert not any("\ue000" in line for line in lines)


@pytest.mark.parametrize("width", [20, 30, 40])
def test_a_separator_stays_with_what_it_follows(width: int) -> None:
    stream = io.StringIO()
    print_to(stream, sentence_text("steps 12 · median 3 ms · p95 12.5 ms · 1,200 samples/s · valid"), width=width)
    lines = stream.getvalue().splitlines()
    assert len(lines) > 1
    assert not any(line.startswith("·") for line in lines)
    assert " ".join(lines) == "steps 12 · median 3 ms · p95 12.5 ms · 1,200 samples/s · valid"


def test_a_command_in_a_sentence_is_on_one_line() -> None:
    text = (
        "The rank is slow: run gpuprof report runs/digits --rank 21 --all, then gpuprof try -- python train.py or more."
    )
    for width in range(60, 101):
        stream = io.StringIO()
        print_to(stream, sentence_text(text), width=width)
        printed = stream.getvalue()
        assert "gpuprof report runs/digits --rank 21 --all" in printed
        assert "gpuprof try -- python train.py" in printed
        assert " ".join(printed.split()) == text


def test_no_line_of_a_terminal_ends_with_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = FakeTerminal()
    terminal.print_report(sample_report.full_report(), stream)
    assert not re.search(r" (\x1b\[[0-9;]*m)*$", stream.getvalue(), re.MULTILINE)


def test_the_next_step_is_the_whole_advice_as_its_number_may_stand_in_any_sentence() -> None:
    report = sample_report.full_report()
    advice = "Look for waits in the dataset. Or set num_workers=9 (2 CPUs are usable): DataLoader(..., num_workers=9)."
    finding = msgspec.structs.replace(report.findings[0], advice=advice)
    shown = " ".join(printed(msgspec.structs.replace(report, findings=(finding,))).split())
    assert shown.endswith(f"Next step {advice}")
    assert f"do {advice}" in shown


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
        "✓ reliable (",
        "Verdict",
        "next largest cause",
        "Where every second went",
        "smaller",
        "unexplained",
        "sum",
        "Phases of the median step",
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


@pytest.mark.parametrize(
    "said",
    [
        # findings with evidence, advice and gain
        "data_wait share 43.4 % (limit 5.0 %)",
        "Set num_workers=4",
        "up to 1.77x (saves 11.8 ms/step)",
        "step-outliers",
        # why a window was opened and by how much its times are inflated
        "steps 200 to 205: slow step: 31 ms against 12 ms",
        "traced steps took 1.8x as long as normal ones",
        # how sure the numbers are and which steps are left out
        "median step 27.2 ms (95 % confidence interval 26.9 to 27.5, p95 31.6 ms)",
        "samples/s at the mean step of 27.7 ms (95 % confidence interval 2,310 to 2,390)",
        "Left out: 5 traced, 12 warm-up, 3 first of an epoch.",
        # rules that could not judge, in one line by reason
        "3 rules: main-thread CPU time was not measured (blocked-in-step)",
        "fewer than 2 epochs (worker-startup, epoch-boundary-idle)",
    ],
)
def test_a_full_report_says(said: str) -> None:
    text = " ".join(printed(sample_report.full_report()).split())
    assert said in text
    assert "no bound known" not in text


def test_the_sixth_finding_and_another_look_at_the_same_time_have_one_line_each() -> None:
    report = sample_report.full_report()
    model = report.findings[0]
    first = msgspec.structs.replace(model, explains=claims.WAIT_FOR_BATCHES)
    again = msgspec.structs.replace(first, rule="input-bound", gain=None, advice="Read faster.", summary="Long. " * 40)
    others = [msgspec.structs.replace(model, rule=f"r{i}", advice=f"Advice {i}.") for i in range(1, 7)]
    text = printed(msgspec.structs.replace(report, findings=(first, again, *others)))
    lines = [line.strip() for line in text.splitlines()]
    (at,) = (i for i, line in enumerate(lines) if line.startswith("2. critical input-bound · DataLoader of"))
    assert "(the same time as 1)" in lines[at]
    assert lines[at + 1].startswith("3. critical r1")
    assert "Read faster." not in text
    assert "Advice 4." in text
    assert "Advice 5." not in text
    assert sum(line.startswith(("7. critical r5", "8. critical r6")) for line in lines) == 2


def test_every_phase_with_time_has_its_row_and_the_others_are_named() -> None:
    report = sample_report.full_report()
    lines = printed(report).splitlines()
    for row in report.phases:
        if row.total_s > 0:
            assert any(line.strip().startswith(words_of(row.phase)) for line in lines)
    assert any(line.strip() == "no time in: gradient clipping, checkpoint, waiting for ranks" for line in lines)


def test_in_manual_optimization_no_time_is_claimed_of_what_is_inside_forward() -> None:
    full = sample_report.full_report()
    rows = tuple(msgspec.structs.replace(row, total_s=0.0) if row.phase == "zero_grad" else row for row in full.phases)
    manual = msgspec.structs.replace(full, phases=rows, run={**full.run, "model.automatic_optimization": False})
    lines = [line.strip() for line in printed(manual).splitlines()]
    assert "no time in: checkpoint, waiting for ranks" in lines
    assert "in manual optimization zero_grad and clipping are part of forward" in lines


def test_every_second_is_in_a_named_row_among_the_smaller_ones_or_unexplained() -> None:
    report = sample_report.full_report()
    text = printed(report)
    section = text[text.index("Where every second went") : text.index("Phases of the median step")]
    assert "fetch of the first batch" in section
    assert "SlowImageLogger.on_train_batch_end" in section
    assert "Logger0.log_metrics" not in section
    assert "14 smaller" in section
    assert "unexplained" in section
    assert "0.08 %" in section
    assert "100.0 %" in section
    nothing = msgspec.structs.replace(report.ledger[-1], total_s=0.0, share=0.0)
    exact = printed(msgspec.structs.replace(report, ledger=(*report.ledger[:-1], nothing)))
    assert any(line.split() == ["unexplained", "0", "0.00", "%"] for line in exact.splitlines())


def test_wall_and_cpu_time_of_a_phase_stand_side_by_side() -> None:
    lines = printed(sample_report.full_report()).splitlines()
    (head,) = [line for line in lines if "wall ms" in line]
    assert head.split()[:5] == ["phase", "wall", "ms", "CPU", "ms"]
    (row,) = [line for line in lines if line.strip().startswith("backward  ") and "█" in line]
    assert row.split()[2:5] == ["7.90", "4.74", "5.53"]
    report = sample_report.full_report()
    unknown = tuple(msgspec.structs.replace(row, cpu_ms=None) for row in report.phases)
    assert "CPU ms" not in printed(msgspec.structs.replace(report, phases=unknown))


def test_on_a_narrow_terminal_bars_give_way_before_the_phases_names() -> None:
    report = sample_report.full_report()
    stream = io.StringIO()
    print_to(stream, terminal.render(report, width=80), width=80)
    lines = [line.strip() for line in stream.getvalue().splitlines()]
    assert all(any(line.startswith(words_of(row.phase)) for line in lines) for row in report.phases if row.total_s > 0)


@pytest.mark.parametrize(("stage", "time"), [("validate", "validation"), ("test", "test"), ("predict", "prediction")])
def test_another_stage_is_not_called_training(stage: str, time: str) -> None:
    text = printed(sample_report.evaluation_report(stage))
    assert text.startswith(f"gpuprof: where the {time} time went\n")
    assert "optimizer steps" not in text
    assert f"{stage} ████" in text


def test_nothing_measured_is_never_shown_as_zero_or_as_fine() -> None:
    text = printed(sample_report.minimal_report())
    assert "0 of the 20 steady steps needed" in text
    assert "GPUs: not measured" in text
    assert "host: not measured" in text
    assert "No finding: the measurement is not valid." in text
    assert "0 %" not in text
