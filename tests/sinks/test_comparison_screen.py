"""The first screen of a comparison: did it work, as promised, what next; never more than 25 lines."""

import io
import json
import re
from pathlib import Path

import msgspec
import pytest
import sample_report
from rich.cells import cell_len

from lightning_gpuprof.analyze.compare import compare
from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.comparison import Comparison
from lightning_gpuprof.model.finding import Expected, Finding
from lightning_gpuprof.model.host import HostUse, Level, MachineUse, ProcessUse
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import comparison_html, comparison_text, json_report
from lightning_gpuprof.sinks.comparison_answer import answer, run_names
from lightning_gpuprof.sinks.comparison_screen import render
from lightning_gpuprof.sinks.console import print_to

DIGITS = Path(__file__).resolve().parents[2] / "docs/tools/digits-report.json"


def scaled(report: Report, factor: float) -> Report:
    """The run with steps and a fit that take so many times as long."""
    period = report.steps.period_ms
    times = msgspec.structs.replace(period, **{key: factor * getattr(period, key) for key in period.__struct_fields__})
    rate = (report.steps.samples_per_s or 0.0) / factor
    steps = msgspec.structs.replace(
        report.steps,
        period_ms=times,
        samples_per_s=rate,
        samples_per_s_interval=(0.99 * rate, 1.01 * rate),
        period_mean_interval_ms=(0.99 * times.mean, 1.01 * times.mean),
        period_median_interval_ms=(0.99 * times.median, 1.01 * times.median),
    )
    phases = tuple(
        msgspec.structs.replace(row, median_ms=None if row.median_ms is None else factor * row.median_ms)
        for row in report.phases
    )
    wall = msgspec.structs.replace(report.wall, total_s=factor * report.wall.total_s)
    run = {**report.run, "loader.num_workers": 4, "loader.pin_memory": True}
    return msgspec.structs.replace(report, steps=steps, wall=wall, phases=phases, run=run)


def drawn(before: Report, after: Report, width: int = 100, encoding: str = "utf-8", **options: object) -> str:
    comparison = compare(before, after, before_name="runs/a", after_name="runs/b", **options)  # type: ignore[arg-type]
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    print_to(stream, render(comparison, width=width), width)
    return raw.getvalue().decode(encoding)


def everything(comparison: Comparison) -> str:
    stream = io.StringIO()
    print_to(stream, comparison_text.render(comparison, width=200), 200)
    return stream.getvalue()


def digits() -> Report:
    return json_report.read(DIGITS)


def test_what_the_noise_hides_is_not_called_nothing() -> None:
    text = " ".join(drawn(digits(), scaled(digits(), 0.999)).split())
    assert "WITHIN NOISE" in text
    assert re.search(r"achieved: not known, hidden by noise; promised: [\d.]+ ms per step", text)
    assert "none of the promised" in " ".join(drawn(digits(), scaled(digits(), 1.5)).split())


@pytest.mark.parametrize(
    ("most", "words"),
    [
        (
            1.5,
            r"([\d.]+) ms per step, more than the promised (?!\1 )[\d.]+ ms: something else changed, too",
        ),
        (1.999, r"all of the promised [\d.]+ ms per step and a little more: something else changed, too"),
        (2.2, r"[\d.]+ of the promised [\d.]+ ms per step \(9\d %\)"),
    ],
)
def test_two_equal_numbers_are_not_one_more_than_the_other(most: float, words: str) -> None:
    report = with_promise(digits(), most)
    after = scaled(report, 0.5)
    rate = (after.steps.samples_per_s or 0.0, after.steps.samples_per_s or 0.0)
    after = msgspec.structs.replace(after, steps=msgspec.structs.replace(after.steps, samples_per_s_interval=rate))
    assert re.search(f"achieved: {words}", " ".join(drawn(report, after).split()))


def with_promise(report: Report, speedup: float) -> Report:
    assert report.combined is not None
    bound = msgspec.structs.replace(report.combined, step_speedup_max=speedup, run_speedup_max=speedup)
    return msgspec.structs.replace(report, combined=bound)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252"])
@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("make", [sample_report.full_report, sample_report.hostile_report, digits])
def test_at_most_25_lines_that_fit(make: object, factor: float, width: int, encoding: str) -> None:
    report = make() if callable(make) else None
    assert isinstance(report, Report)
    lines = drawn(report, scaled(report, factor), width, encoding).splitlines()
    assert len(lines) <= (25 if width >= 80 else 32)
    assert max(cell_len(line) for line in lines) <= width
    assert not {line for line in lines if "?" in line and encoding == "utf-8"}


def test_the_first_sentence_says_whether_it_worked_and_as_promised() -> None:
    report = with_promise(digits(), 2.0)
    first = drawn(report, scaled(report, 0.55)).splitlines()[2]
    assert first.startswith(" IMPROVED ")
    assert re.search(
        r"Mean step \S+ -> \S+ ms: 1\.82x faster \(95 % CI: 1\.\d+x to 1\.\d+x\), promised up to 2x\.", first
    )


def test_a_bar_and_the_promise_stand_on_one_scale() -> None:
    report = with_promise(digits(), 4.0)
    text = drawn(report, scaled(report, 0.5))
    before, after = (line for line in text.splitlines() if line.startswith(("  before ", "  after ")))
    assert after.count("█") / before.count("█") == pytest.approx(0.5, abs=0.02)
    (marked,) = [line for line in text.splitlines() if "▲" in line]
    start = before.index("█")
    assert (marked.index("▲") - start + 1) / before.count("█") == pytest.approx(0.25, abs=0.02)
    assert "67 %" in text  # half of the step of at most three quarters


EXPECTED = Expected(whole_ms=100.0, step_ms=55.0, lower_ms=50.0, upper_ms=60.0)
WORKERS = Change(call="DataLoader", arguments={"num_workers": 4, "pin_memory": True})


def with_expectation(report: Report, change: Change = WORKERS) -> Report:
    first = msgspec.structs.replace(report.findings[0], expected=EXPECTED, change=change)
    return msgspec.structs.replace(report, findings=(first, *report.findings[1:]))


@pytest.mark.parametrize(
    ("factor", "words"),
    [(0.55, "1.82x: in the expected range"), (0.8, "1.25x: less than expected"), (0.41, "2.44x: more than expected")],
)
def test_what_came_of_a_change_stands_beside_what_was_expected_of_it(factor: float, words: str) -> None:
    report = with_expectation(digits())
    text = drawn(report, scaled(report, factor))
    assert f"  expected: about 1.82x (1.67 to 2), got {words}\n" in text
    assert f"), {words.partition(': ')[2]}.\n" in text.splitlines(keepends=True)[2]
    assert not re.search("promised(:| up to)", text)
    comparison = compare(report, scaled(report, factor))
    assert f"about 1.82x (1.67 to 2), got {words}<" in comparison_html.render_html(comparison)
    assert json.loads(msgspec.json.encode(comparison))["expectation"]["standing"] == words.partition(": ")[2]


def test_what_came_as_expected_is_not_also_more_than_promised() -> None:
    report = with_promise(with_expectation(digits()), 1.2)
    for factor, above in ((0.55, False), (0.41, True)):
        comparison = compare(report, scaled(report, factor))
        assert comparison.above_bound is above
        assert any("more was gained" in note for note in comparison.notes) is above
        assert not any(change.above_bound for change in comparison.findings)


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("runs/a/lightning_logs/version_0", "runs/b/lightning_logs/version_0/gpuprof", ("a", "b")),
        ("lightning_logs/version_0", "lightning_logs/version_1", ("version_0", "version_1")),
        ("old/report.json", "lightning_logs/version_1", ("old", "lightning_logs/version_1")),
        ("runs/a", "runs/a", ("runs/a", "runs/a")),
        ("before", "this run", ("before", "this run")),
        ("report.json", "this run", ("report.json", "this run")),
        ("gpuprof", "this run", ("gpuprof", "this run")),
        ("/r/v0", "/r/v0/gpuprof", ("/r/v0", "/r/v0/gpuprof")),
    ],
)
def test_runs_are_named_by_what_tells_them_apart(before: str, after: str, shown: tuple[str, str]) -> None:
    comparison = compare(digits(), digits(), before_name=before, after_name=after)
    assert run_names(comparison) == shown
    assert f"<title>gpuprof {shown[0]} -&gt; {shown[1]}: " in comparison_html.render_html(comparison)


def test_a_bar_and_the_expected_step_stand_on_one_scale() -> None:
    report = with_expectation(digits())
    text = drawn(report, scaled(report, 0.5))
    (before,) = (line for line in text.splitlines() if line.startswith("  before "))
    (marked,) = [line for line in text.splitlines() if "▲" in line]
    assert (marked.index("▲") - before.index("█") + 1) / before.count("█") == pytest.approx(0.55, abs=0.02)
    assert re.search(r"expected: about \S+ ms \(\S+ to \S+\)", marked)


def test_nothing_is_expected_of_another_change_than_the_advised_one() -> None:
    report = with_expectation(digits(), Change(call="DataLoader", arguments={"num_workers": 2}))
    text = drawn(with_promise(report, 2.0), scaled(report, 0.55))
    assert "expected" not in text
    assert "promised up to 2x." in text


def test_of_a_larger_finding_without_an_expectation_that_is_gone_too_the_smaller_one_takes_no_credit() -> None:
    report = with_expectation(digits())
    drift = msgspec.structs.replace(report.findings[0], rule="step-drift", expected=None, change=None)
    gain = msgspec.structs.replace(drift.gain, saved_ms_per_step=60.0)
    both = msgspec.structs.replace(report, findings=(msgspec.structs.replace(drift, gain=gain), *report.findings))
    assert "in the expected range" in drawn(report, scaled(digits(), 0.55))
    assert "expected" not in drawn(both, scaled(digits(), 0.55))


def test_of_several_loaders_the_change_of_the_slowest_counts() -> None:
    def of(report: Report, workers: int) -> Report:
        facts = {"loader.1.kind": "DataLoader", "loader.1.num_workers": workers, "loader.num_workers": 8}
        return msgspec.structs.replace(
            report, run={**report.run, **facts}, input=msgspec.structs.replace(report.input, slowest=1)
        )

    before, after = of(with_expectation(digits()), 0), scaled(digits(), 0.55)
    assert "in the expected range" in drawn(before, of(after, 4))
    assert "expected" not in drawn(before, of(after, 2))


def test_a_slower_run_names_the_phase_that_grew_and_the_change() -> None:
    text = " ".join(drawn(digits(), scaled(digits(), 2.0)).split())
    assert "REGRESSED Mean step" in text
    assert "2x slower" in text
    assert "loader.num_workers 0 -> 4" in text
    assert "next: revert the change; waiting for data grew most" in text


def test_a_reason_is_told_once() -> None:
    other = msgspec.structs.replace(scaled(digits(), 0.5), run={**digits().run, "device.name": "Another GPU"})
    before = msgspec.structs.replace(digits(), run={**digits().run, "device.name": "A GPU"})
    text = " ".join(drawn(before, other).split())
    assert " NOT COMPARABLE " in text
    assert "█" not in text
    moved = r"not comparable; most of it in waiting for data: \S+ -> \S+ ms"
    assert re.search(rf"measured: mean step time \S+ -> \S+ ms, {moved}", text)
    assert text.count("the hardware differs") + text.count("The hardware differs") == 1
    assert "--allow hardware" in text


def with_facts(report: Report, **facts: str | int) -> Report:
    return msgspec.structs.replace(report, run={**report.run, **{k.replace("__", "."): v for k, v in facts.items()}})


def test_a_long_reason_is_whole_has_separators_and_wraps_beside_its_mark() -> None:
    before = with_facts(digits(), model__parameters=301_066, device__name="A GPU", loader__batch_size=32)
    after = with_facts(digits(), model__parameters=1_323_018, device__name="Another GPU", loader__batch_size=64)
    lines = drawn(before, after).splitlines()
    start = next(number for number, line in enumerate(lines) if "NOT COMPARABLE" in line)
    said = lines[start : lines.index("", start)]
    assert len(said) > 1
    assert all(line.startswith(" " * 18) for line in said[1:])
    text = " ".join(" ".join(said).split())
    assert "model.parameters: 301,066 -> 1,323,018" in text
    assert text.endswith("loader.batch_size: 32 -> 64)")
    assert "..." not in text
    assert "changed: device.name A GPU -> Another GPU; model.parameters 301,066 -> 1,323,018" in "\n".join(lines)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("unfinished", "the later run was killed or is still running"),
        ("interrupted: RuntimeError", "the later run was ended by RuntimeError"),
    ],
)
def test_a_run_that_did_not_finish_is_said_in_words(status: str, words: str) -> None:
    text = " ".join(drawn(with_facts(digits(), status="finished"), with_facts(digits(), status=status)).split())
    assert f"ended: {words}: only its completed steps are compared" in text
    assert f"finished -> {status}" not in text


def of_few_steps(report: Report) -> Report:
    return msgspec.structs.replace(report, steps=msgspec.structs.replace(report.steps, steady_count=12))


def too_noisy(report: Report) -> Report:
    steps = msgspec.structs.replace(report.steps, period_mean_interval_ms=(1.0, 1000.0))
    return msgspec.structs.replace(report, steps=steps)


def incomplete(report: Report) -> Report:
    return msgspec.structs.replace(report, validity=msgspec.structs.replace(report.validity, ok=False))


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (with_facts(digits(), stage="test"), "compare two runs of the same stage"),
        (
            with_facts(digits(), device__name="Another GPU", loader__batch_size=64),
            "run both with the same hardware and batch; if that is the change under test: gpuprof compare A B --allow "
            "hardware,batch",
        ),
        (sample_report.minimal_report(), "repeat the later run with at least 30 steps"),
        (incomplete(digits()), "repeat the later run, as its recording is incomplete"),
        (incomplete(of_few_steps(digits())), "repeat the later run with at least 30 steps"),
        (too_noisy(digits()), "run both for more steps, with nothing else on the machine"),
    ],
)
@pytest.mark.parametrize("findings", [(), digits().findings])
def test_runs_that_are_not_comparable_come_with_what_makes_them_so(
    after: Report, words: str, findings: tuple[Finding, ...]
) -> None:
    before = with_facts(digits(), device__name="A GPU", loader__batch_size=32)
    comparison = compare(before, msgspec.structs.replace(after, findings=findings))
    assert comparison.outcome == "not comparable"
    assert dict(answer(comparison).facts)["next"] == words
    text = " ".join(everything(comparison).split())
    assert f"next {words}" in text
    assert "training, training" not in text
    assert "Training, training" not in comparison_html.render_html(comparison)


@pytest.mark.parametrize(("others", "words"), [(1.2, "run both on a quiet machine: "), (0.1, "nothing: ")])
def test_what_other_programs_hide_is_not_nothing_to_do(others: float, words: str) -> None:
    wait, used = Level(mean=0.3, max=0.3), Level(mean=others, max=others)
    host = HostUse(process=ProcessUse(run_delay_ratio=wait), machine=MachineUse(cpu_others_cpus=used))
    run = msgspec.structs.replace(digits(), host=host, findings=())
    comparison = compare(run, run)
    assert comparison.outcome == "within noise"
    assert dict(answer(comparison).facts)["next"].startswith(words)


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("wall", "train both to the end, for the same number of steps"),
        ("p95", "judge by another measure: leave out --metric"),
    ],
)
def test_so_do_runs_whose_measure_was_asked_for(metric: str, words: str) -> None:
    later = digits()
    if metric == "wall":
        later = with_facts(later, status="unfinished")
    comparison = compare(digits(), later, metrics=(metric,))
    assert comparison.outcome == "not comparable"
    assert comparison.way_out == words


def test_a_run_without_steps_has_no_bars_but_a_reason() -> None:
    text = drawn(sample_report.minimal_report(), digits())
    assert "NOT COMPARABLE   The measurement of the earlier run" in text
    assert "█" not in text


def test_what_was_asked_for_is_what_the_verdict_is_about() -> None:
    text = " ".join(drawn(digits(), scaled(digits(), 2.0), metrics=("wall", "step_time")).split())
    assert "REGRESSED By wall, step_time." in text
    assert "median step time:" in text


def test_a_bound_is_never_rounded_up() -> None:
    from lightning_gpuprof.sinks.comparison_answer import _rounded_down

    assert [_rounded_down(x) for x in (0.568, 1.319, 9.999, 32.456, 345.9, 0.0)] == [
        "0.56",
        "1.31",
        "9.99",
        "32.4",
        "345",
        "0",
    ]


def with_code(report: Report, **sources: str) -> Report:
    return msgspec.structs.replace(report, sources={f"{name}.py": text for name, text in sources.items()})


def test_the_lines_of_code_that_changed_are_shown_where_they_are_few() -> None:
    before = with_code(digits(), train="def step():\n    load()\n    run(1)\n    end()", model="a", gone="x")
    after = with_code(scaled(digits(), 0.5), train="def step():\n    load()\n    run(2)\n    end()", model="a", new="y")
    text = drawn(before, after)
    assert "changed: train.py (1 line added, 1 removed);" in text
    assert re.search(r"\n +- run\(1\)\n +\+ run\(2\)\n", text)
    assert len(text.splitlines()) <= 25
    assert "load()" in everything(compare(before, after))
    assert '<span class="minus">-    run(1)</span>' in comparison_html.render_html(compare(before, after))


def test_many_changed_lines_are_counted_and_all_of_them_are_under_all() -> None:
    before, after = with_code(digits(), train="a\nb\nc\nd"), with_code(digits(), train="a2\nb2\nc2\nd2")
    assert "changed: train.py (4 lines added, 4 removed)\n" in drawn(before, after)
    assert "- a" not in drawn(before, after)
    assert "+d2" in everything(compare(before, after))


def test_what_is_known_of_the_code_is_said_where_nothing_changed() -> None:
    known = with_code(digits(), train="a")
    assert "changed: no known condition, and no line of the code that both runs have" in drawn(known, known)
    unknown = with_code(digits(), other="a")
    assert "changed: none of the known conditions; code was not compared" in drawn(known, unknown)
