"""A comparison on the terminal."""

import io
import re

import msgspec
import pytest
import sample_report
from rich.cells import cell_len

from lightning_gpuprof.analyze.compare import compare
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.rules import claims
from lightning_gpuprof.sinks.comparison_text import print_comparison, render
from lightning_gpuprof.sinks.console import print_to


def printed(before: Report, after: Report) -> str:
    stream = io.StringIO()
    print_comparison(compare(before, after, before_name="A", after_name="B"), stream, everything=True)
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
    assert "1.81x (95 % CI:" in text
    assert re.search(r"up to 1\.77x, \S+ ms/step \(single-process-loading: gone\)", text)
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


@pytest.mark.parametrize("width", [60, 72, 100])
def test_a_narrow_terminal_loses_columns_but_no_line_is_too_long(width: int) -> None:
    full = sample_report.full_report()
    comparison = compare(full, faster(full))
    stream = io.StringIO()
    print_to(stream, render(comparison, width=width), width)
    assert max(cell_len(line) for line in stream.getvalue().splitlines()) <= width
    assert "waiting for data" in stream.getvalue()


def test_memory_gpus_host_operators_and_what_judges_are_there() -> None:
    report = sample_report.full_report()
    text = printed(report, report)
    for title in ("Memory, peaks", "GPUs, medians", "Host, means", "Operators on the host per traced step"):
        assert f"\n{title}" in text
    assert "gpu0 power" in text
    assert "throughput, wall; below 3.0 % is noise" in text
    assert "both runs: 95 % confidence intervals in the report" in text


def test_what_was_promised_stands_beside_what_was_achieved() -> None:
    before = sample_report.full_report()
    loading = msgspec.structs.replace(before.findings[0], explains=claims.WAIT_FOR_BATCHES)
    before = msgspec.structs.replace(before, findings=(loading, *before.findings[1:]))
    after = faster(before)
    rows = tuple(
        msgspec.structs.replace(row, median_ms=0.2) if row.phase == "data_wait" else row for row in after.phases
    )
    text = " ".join(printed(before, msgspec.structs.replace(after, phases=rows)).split())
    assert "up to 1.77x, 11.8 ms/step; achieved 11.6 ms/step in waiting for data" in text


def test_what_cannot_be_compared_says_why() -> None:
    text = printed(sample_report.minimal_report(), sample_report.full_report())
    assert "not comparable: the measurement of the earlier run is not valid" in " ".join(text.split())


def test_a_phase_that_moved_much_and_is_not_judged_does_not_look_like_noise() -> None:
    before = sample_report.full_report()
    rows = tuple(
        msgspec.structs.replace(row, median_ms=60.0, p95_ms=None) if row.phase == "forward" else row
        for row in before.phases
    )
    text = printed(before, msgspec.structs.replace(before, phases=rows))
    (line,) = [line for line in text.splitlines() if line.strip().startswith("forward ")]
    assert line.rstrip().endswith("not judged")
    assert "not judged: its uncertainty is known from journals only" in " ".join(text.split())


def test_conditions_known_of_one_run_do_not_hide_the_one_that_differs() -> None:
    before = sample_report.full_report()
    unknown = {f"package.p{number:02}": "1.0" for number in range(30)}
    after = msgspec.structs.replace(before, run={**before.run, "loader.num_workers": 7, **unknown})
    text = printed(before, after)
    assert "loader.num_workers  0 -> 7" in text
    assert "known for one run only: 30 (package.p00, package.p01, package.p02, ...; see --json)" in text
    assert "not known" not in text
    told = compare(before, after).conditions
    assert (len(told), told[0].name) == (31, "loader.num_workers")


def test_only_unknown_conditions_are_no_difference() -> None:
    before = sample_report.full_report()
    text = printed(before, msgspec.structs.replace(before, run={**before.run, "package.other": "1.0"}))
    assert "what is known of both runs is the same" in text
    assert "known for one run only: 1 (package.other; see --json)" in text
