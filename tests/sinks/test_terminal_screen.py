"""The first screen on the terminal: at most 25 lines, at most 10 of a healthy run, the answer last."""

import html
import io
import re
from pathlib import Path

import msgspec
import pytest
import sample_report
from rich.cells import cell_len

from lightning_gpuprof.model.finding import Gain
from lightning_gpuprof.model.line_times import FunctionTimes, TimedLine
from lightning_gpuprof.model.method import Cost
from lightning_gpuprof.model.report import Checks, PhaseRow, Report, Validity
from lightning_gpuprof.sinks import json_report, terminal
from lightning_gpuprof.sinks.console import print_to
from lightning_gpuprof.sinks.first_screen import first_screen
from lightning_gpuprof.sinks.gauges import gauges
from lightning_gpuprof.sinks.html import render_html
from lightning_gpuprof.sinks.tensorboard_text import markdown
from lightning_gpuprof.sinks.terminal_screen import _short, render
from lightning_gpuprof.sinks.views.first import render as first_view

DIGITS = Path(__file__).resolve().parents[2] / "docs/tools/digits-report.json"
WHERE = {"JSON": "runs/digits/version_0/gpuprof/report.json", "HTML": "runs/digits/version_0/gpuprof/report.html"}
WHERE["TensorBoard"] = "tensorboard --logdir runs/digits/version_0"


def digits() -> Report:
    return json_report.read(DIGITS)


def healthy() -> Report:
    passed = Checks(passed=("single-process-loading", "gc-pauses"), not_applicable=())
    return msgspec.structs.replace(digits(), findings=(), not_evaluated=(), checks=passed)


def beside_others() -> Report:
    """A run as a user had it: nothing is found, and other programs ran."""
    words = (
        "Compute-bound: 91 % of the step is computation and waiting for a CPU (mostly backward and forward); "
        "other programs had the CPU for 19 % of the step."
    )
    report = healthy()
    validity = msgspec.structs.replace(
        report.validity, conditional=True, caveats=("other programs used 1.5 of 2 CPUs",)
    )
    verdict = msgspec.structs.replace(report.verdict, kind="compute-bound", summary=words, runner_up="")
    return msgspec.structs.replace(report, validity=validity, verdict=verdict)


def short() -> Report:
    few = msgspec.structs.replace(digits().steps, count=10, steady_count=3)
    verdict = msgspec.structs.replace(digits().verdict, kind="not-enough-data")
    return msgspec.structs.replace(digits(), findings=(), steps=few, verdict=verdict)


def crowded() -> Report:
    why = (
        "other programs used 1.5 of 2 CPUs; the main thread waited for a CPU in 51 % of the step, so steps can be "
        "much longer than on a quiet machine"
    )
    report, first = digits(), digits().findings[0]
    unknown = msgspec.structs.replace(first, expected=None)
    validity = msgspec.structs.replace(report.validity, conditional=True, caveats=(why,))
    return msgspec.structs.replace(report, findings=(unknown, *report.findings), validity=validity)


def tried() -> Report:
    """The gain and the headline take two lines each on 80 columns."""
    tried_rule = msgspec.structs.replace(digits().findings[0], rule="input-bound")
    return msgspec.structs.replace(
        digits(), findings=(tried_rule, *digits().findings[1:]), trial=sample_report.full_report().trial
    )


REPORTS = {
    "crowded": crowded,
    "tried": tried,
    "digits": digits,
    "full": sample_report.full_report,
    "hostile": sample_report.hostile_report,
    "minimal": sample_report.minimal_report,
    "healthy": healthy,
    "beside others": beside_others,
    "short": short,
}


def drawn(report: Report, width: int = 100, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    print_to(stream, render(report, Path("runs/digits/version_0/gpuprof"), width=width, where=WHERE), width)
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252"])
@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("name", REPORTS)
def test_at_most_25_lines_that_fit(name: str, width: int, encoding: str) -> None:
    lines = drawn(REPORTS[name](), width, encoding).splitlines()
    assert len(lines) <= 25
    assert max(cell_len(line) for line in lines) <= width
    assert not set("\x1b\x07\u202e\u2028") & set("".join(lines))


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("name", ["crowded", "tried", "digits", "full"])
def test_the_rule_of_the_leading_finding_can_always_be_explained(name: str, width: int) -> None:
    report = REPORTS[name]()
    assert f"  why: gpuprof explain {report.findings[0].rule}" in drawn(report, width).splitlines()


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("name", ["healthy", "beside others", "short"])
def test_at_most_10_whole_lines_without_a_finding(name: str, width: int) -> None:
    lines = drawn(REPORTS[name](), width).splitlines()
    assert len(lines) <= 10
    assert not any(line.endswith(("...", "…")) for line in lines)


def test_why_numbers_are_conditional_is_said_whole_or_not_at_all() -> None:
    wide, narrow = drawn(crowded()), drawn(crowded(), 80)
    assert "can be much longer than on a quiet machine" in " ".join(wide.split())
    assert "~ less reliable: other programs ran (" in narrow
    assert "so steps" not in narrow


def test_a_measurement_that_is_not_valid_is_not_ok_beside_no_finding() -> None:
    validity = Validity(ok=False, caveats=("3 s of 9 s are unaccounted for: a part was not recorded",))
    text = drawn(msgspec.structs.replace(healthy(), validity=validity))
    assert " NOT RELIABLE   Part of the run was not recorded: no conclusion can be drawn." in text
    assert "3 s of 9 s are unaccounted for" in text
    ascii_text = drawn(msgspec.structs.replace(healthy(), validity=validity), encoding="ascii")
    assert "x not reliable: incomplete recording (" in ascii_text


def test_workers_reach_a_bound_from_steps_beside_other_programs_on_free_cpus_only() -> None:
    text = drawn(crowded())
    first, *others = crowded().findings
    lock = msgspec.structs.replace(first, change=None)
    assert "free CPUs" not in drawn(msgspec.structs.replace(crowded(), findings=(lock, *others)))
    assert re.search(r"could be up to \S+ faster on free CPUs\.", text)
    assert "on free CPUs" not in drawn(digits())


def test_the_verdict_the_change_and_the_gain_come_last() -> None:
    text = drawn(digits())
    order = ["median step", "waiting for data", " CRITICAL ", "change:", "num_workers:", "gain:", "verify:", "all:"]
    places = [text.index(word) for word in order]
    assert places == sorted(places)
    assert "gpuprof compare runs/digits/version_0 runs/digits/version_1" in text
    assert "gpuprof report runs/digits/version_0 --all" in text


def test_bars_are_shares_of_the_step() -> None:
    lines = [line for line in drawn(digits()).splitlines() if "█" in line]
    widths = {line.split()[0]: line.count("█") for line in lines}
    assert widths["waiting"] / widths["backward"] == pytest.approx(159.2 / 38.0, rel=0.1)


def test_a_healthy_run_says_what_was_checked() -> None:
    text = drawn(healthy())
    assert " OK   Healthy: no potential speedup above 3 %." in text or " CONDITIONAL   No finding" in text
    assert "2 checks passed" in text


def test_a_short_run_says_how_long_to_run() -> None:
    text = drawn(short())
    assert " TOO SHORT " in text
    assert "Too short to judge (10 steps). Run at least 30." in text


def test_a_run_that_goes_on_is_still_warming_up_and_not_blamed_for_it() -> None:
    text = drawn(msgspec.structs.replace(short(), run={**short().run, "status": "unfinished"}))
    assert " WARMING UP   Still warming up: 10 steps so far." in text
    assert "!" not in text
    assert "Too short" not in text


def test_advice_without_lines_of_code_is_no_change() -> None:
    first = msgspec.structs.replace(digits().findings[0], change=None, advice="No setting helps: use 3 CPUs.")
    text = drawn(msgspec.structs.replace(digits(), findings=(first,)))
    assert "\n  do: No setting helps: use 3 CPUs.\n" in text
    assert "change:" not in text


def test_how_ranks_ended_is_said_whole() -> None:
    said = (
        "rank 1 on node1 failed first, with ValueError at package/training/program.py:23 training_step after 30 batches"
    )
    text = drawn(msgspec.structs.replace(digits(), rank_ends=(said,)))
    assert said in " ".join(text.split())
    assert len(text.splitlines()) <= 25


ENDS = {
    "interrupted: ValueError": "Ended by ValueError at train.py:6 training_step after 10 steps.",
    "unfinished": "No end was recorded: the run was killed or is still running.",
}


@pytest.mark.parametrize("status", ENDS)
def test_a_run_that_did_not_finish_says_so_and_is_not_called_healthy(status: str) -> None:
    run = {**healthy().run, "status": status, **({"ended_at": "train.py:6 training_step"} if ":" in status else {})}
    steps = msgspec.structs.replace(healthy().steps, count=10)
    text = drawn(msgspec.structs.replace(healthy(), run=run, steps=steps))
    assert f"! {ENDS[status]}" in text.splitlines()[2]
    assert "Healthy" not in text


def test_many_findings_are_counted_and_the_same_time_is_not_promised_twice() -> None:
    first = msgspec.structs.replace(digits().findings[0], gain=Gain(saved_ms_per_step=60.0, speedup_max=1.2))
    others = tuple(msgspec.structs.replace(first, gain=None, subject=f"part {n}") for n in range(9))
    text = drawn(msgspec.structs.replace(digits(), findings=(first, *others)))
    title = "Batches are loaded in the main process"
    assert f"Also, same cause: {title} and 8 more" in " ".join(text.split())
    assert len(text.splitlines()) <= 25


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("runs/a/lightning_logs/version_0/gpuprof", "…/a/lightning_logs/version_0"),
        ("lightning_logs/version_3", "lightning_logs/version_3"),
        ("/logs/digits/version_1", "…/digits/version_1"),
    ],
)
def test_the_run_has_the_names_that_tell_it_from_others(
    folder: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    assert first_screen(sample_report.full_report(), Path(folder)).meta[0] == name


def test_a_hint_leaves_a_healthy_run_short_and_its_checks_said_once() -> None:
    hint = msgspec.structs.replace(digits().findings[0], gain=None, expected=None, explains=None, severity="info")
    text = drawn(msgspec.structs.replace(healthy(), findings=(hint,)))
    assert text.count(hint.title) == 1
    assert f"why: gpuprof explain {hint.rule}" in text
    assert text.count("checks passed") == 1
    assert len(text.splitlines()) <= 10


def test_a_long_text_ends_where_a_thought_ends() -> None:
    text = "Make it cheaper: decode once before the run, keep samples in memory, or augment whole batches on the GPU."
    assert _short(text, 60, 2) == "Make it cheaper: decode once before the run, keep samples in memory."
    assert _short("One thing is that. Another one (a; b) is long, long, long.", 51, 1) == "One thing is that."
    assert _short("word " * 30, 40, 1).endswith("word ...")


def test_the_segments_of_a_step_sum_to_it_without_a_rest_that_medians_leave() -> None:
    """Phases that take turns in being long have medians that miss the step; the one of a finding keeps its own."""
    rows = {"data_wait": (20.0, 20.0), "forward": (10.0, 40.0), "backward": (10.0, 36.0), "optimizer": (4.0, 4.0)}
    phases = tuple(
        PhaseRow(phase=phase, median_ms=median, p95_ms=None, total_s=1.0, share=0.25, ordinary_ms=ordinary)
        for phase, (median, ordinary) in rows.items()
    )
    full = sample_report.full_report()
    assert full.steps.period_ms is not None
    period = msgspec.structs.replace(full.steps.period_ms, median=100.0)
    steps = msgspec.structs.replace(full.steps, period_ms=period)
    bar = first_screen(msgspec.structs.replace(full, steps=steps, phases=phases)).today
    times = {segment.key: segment.ms for segment in bar.segments}
    assert sum(times.values()) == pytest.approx(bar.ms)
    assert times == pytest.approx({"data_wait": 20.0, "forward": 40.0, "backward": 36.0, "optimizer": 4.0})


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        ("latency", r"latency: median [\d.]+ ms, p95 [\d.]+ ms, p99 [\d.]+ ms, max [\d.]+ ms"),
        ("memory", r"memory: peak [\d.]+ \wi?B on the GPU"),
        ("cost", r"cost: [\d.]+ GPU-hours per epoch"),
    ],
)
@pytest.mark.parametrize("width", [80, 100])
def test_the_numbers_of_the_users_goal_come_first(goal: str, said: str, width: int) -> None:
    full = sample_report.full_report()
    cost = Cost(gpu_hours_per_epoch=0.5)
    run = {**full.run, "gpuprof.goal": goal, "trainer.num_training_batches": 100}
    report = msgspec.structs.replace(full, run=run, cost=cost)
    assert re.fullmatch(rf"gpuprof .+\n  {said}", "\n".join(drawn(report, width).splitlines()[:2]))
    screen = first_screen(report)
    assert f">{screen.goal}" in first_view(screen)
    assert screen.goal in markdown(report).replace("\\", "")
    in_hours = [one.saved for one in screen.opportunities if "GPU-hours per epoch" in one.saved]
    assert bool(in_hours) == (goal == "cost")
    assert first_screen(full).goal == ""


@pytest.mark.parametrize(
    ("goal", "said"),
    [("latency", "not known"), ("memory", "not known"), ("cost", "not known, as no GPU was used")],
)
def test_what_was_not_measured_of_the_goal_is_said_to_be_unknown(goal: str, said: str) -> None:
    empty = sample_report.minimal_report()
    report = msgspec.structs.replace(empty, run={**empty.run, "gpuprof.goal": goal})
    assert drawn(report).splitlines()[1] == f"  {goal}: {said}"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("full", "✓ reliable ("),
        ("timed lines", "~ less reliable: lines= slows"),
        ("noisy", "~ less reliable: noisy"),
        ("crowded", "~ less reliable: other programs ran"),
        ("not valid", "✗ not reliable: incomplete recording ("),
        ("minimal", "… 0 of the 20 steady steps needed"),
    ],
)
def test_all_outputs_say_the_same_of_whether_numbers_can_be_relied_on(name: str, words: str) -> None:
    full = sample_report.full_report()
    noisy = msgspec.structs.replace(full.steps, period_median_interval_ms=(1.0, 1e3))
    lines = FunctionTimes(name="step", file="train.py", lines=(TimedLine(line=3, total_s=1.0),))
    report = {
        "timed lines": lambda: msgspec.structs.replace(full, line_times=(lines,)),
        "not valid": lambda: msgspec.structs.replace(full, validity=Validity(ok=False, conditional=True)),
        "noisy": lambda: msgspec.structs.replace(full, steps=noisy),
        **REPORTS,
    }[name]()
    known = first_screen(report).reliability
    said = f"{known.mark} {known.words}"
    assert said.startswith(words)
    everything = io.StringIO()
    terminal.print_report(report, everything)
    for text in (drawn(report), everything.getvalue(), render_html(report), markdown(report)):
        plain_text = " ".join(html.unescape(text).replace("\\", "").split())
        assert said in plain_text
        assert "Reliable numbers" not in plain_text
    reliable = next(gauge for gauge in gauges(report) if gauge.name == "gpuprof_reliable")
    assert reliable.rows == [({"kind": known.kind}, known.kind == "ok")]
