"""The numbers behind the page's figure."""

import math
import re

import msgspec
import pytest
import sample_report

from lightning_gpuprof.sinks import figures
from lightning_gpuprof.sinks.curve_figure import curve_figure
from lightning_gpuprof.sinks.drawings import heat_html
from lightning_gpuprof.sinks.figures import spread_figure, step_figure
from lightning_gpuprof.sinks.rank_tables import heat_figure
from lightning_gpuprof.sinks.views import over_run


def test_phases_of_the_figure_sum_to_its_period() -> None:
    figure = step_figure(sample_report.full_report())
    for i, period in enumerate(figure.period_ms):
        assert period is not None
        assert math.isclose(sum(curve.ms[i] or 0.0 for curve in figure.phases), period, rel_tol=0.01)


def test_a_thinned_figure_keeps_the_longest_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "MAX_POINTS", 100)
    report = sample_report.full_report(steps=5000)
    figure = step_figure(report)
    assert len(figure.batch) <= 100
    assert len(figure.batch) == len(figure.period_ms) == len(figure.phases[0].ms)
    assert max(p for p in figure.period_ms if p is not None) == pytest.approx(max(report.series["period_ms"]), rel=1e-3)
    assert figure.batch == sorted(figure.batch)


def test_the_longest_steps_are_drawn_also_where_they_stand_side_by_side() -> None:
    report = sample_report.full_report(steps=20_000)
    period = list(report.series["period_ms"])
    period[9_000:9_050] = [500.0 + i for i in range(50)]
    long = msgspec.structs.replace(report, series={**report.series, "period_ms": period})
    figure = step_figure(long)
    assert set(range(9_000, 9_050)) <= set(figure.batch)
    assert figure.t_s is not None
    assert figure.t_s == sorted(figure.t_s)


def test_a_report_of_a_version_without_times_has_a_figure_over_batches_alone() -> None:
    report = sample_report.full_report()
    series = {name: values for name, values in report.series.items() if name != "t_s"}
    figure = step_figure(msgspec.structs.replace(report, series=series))
    assert figure.t_s is None


def test_the_spread_of_phases_leaves_out_what_took_no_time_or_was_not_measured() -> None:
    report = sample_report.full_report()
    figure = spread_figure(report)
    assert [row.phase for row in figure.rows] == [p for p, ms in sample_report.MEDIANS_MS.items() if ms]
    assert all(row.p05 <= row.median <= row.p95 for row in figure.rows)
    old = tuple(msgspec.structs.replace(row, p05_ms=None) for row in report.phases)
    assert spread_figure(msgspec.structs.replace(report, phases=old)) is None


def test_curves_are_in_the_unit_of_their_panel_and_side_by_side_where_they_have_one() -> None:
    figure = curve_figure(sample_report.full_report())
    panels = {panel.title: panel for panel in figure.panels}
    assert panels["GPU memory"].unit == "GiB"
    assert [line.name for line in panels["GPU memory"].lines] == [
        "gpu0 used",
        "gpu0 allocated by torch",
        "gpu0 reserved by torch",
    ]
    assert 4 < (panels["GPU memory"].lines[0].values[0] or 0) < 5.5  # 5e9 B
    assert panels["GPU utilization"].unit == "%"
    assert 0 < (panels["GPU utilization"].lines[0].values[0] or 0) < 150
    assert figure.limits[0] == 0
    assert curve_figure(sample_report.minimal_report()) is None


def test_ranks_are_held_against_the_median_rank() -> None:
    figure = heat_figure(sample_report.ranks(3))
    wait = figure.columns.index("waiting for data")
    assert [row[wait] for row in figure.ms] == [2.0, 2.0, 8.0]
    assert [row[wait] for row in figure.apart_ms] == [0.0, 0.0, 6.0]


def test_memory_and_speed_of_each_rank_stand_beside_its_phases() -> None:
    found = sample_report.ranks(3)
    assert heat_figure(found).others == {}
    rows = tuple(
        msgspec.structs.replace(row, samples_per_s=100.0, peak_memory_bytes=bytes)
        for row, bytes in zip(found.rows, (2**31, 2**31, 2**33), strict=True)
    )
    figure = heat_figure(msgspec.structs.replace(found, rows=rows))
    assert figure.others == {"samples/s": [100, 100, 100], "peak memory GiB": [2, 2, 8]}
    cells = re.findall(r"var\(--(\w+)\) (\d+)%, transparent\)\">([^<]+)</td>", heat_html(figure))
    assert [cells[at] for at in range(len(cells)) if at % (len(cells) // 3) == len(cells) // 3 - 1] == [
        ("less", "0", "2"),
        ("less", "0", "2"),
        ("more", "100", "8"),
    ]
    unknown = (*rows[:2], msgspec.structs.replace(rows[2], peak_memory_bytes=None))
    assert heat_figure(msgspec.structs.replace(found, rows=unknown)).others["peak memory GiB"] == [2, 2, None]
    many = sample_report.ranks(64, per_host=8)
    rows = tuple(msgspec.structs.replace(row, peak_memory_bytes=row.rank * 2.0**30) for row in many.rows)
    of_hosts = heat_figure(msgspec.structs.replace(many, rows=rows))
    assert of_hosts.others["peak memory GiB"][of_hosts.ranks.index("node1, 8 ranks")] == 11.5


def test_many_ranks_are_the_latest_ones_and_hosts() -> None:
    figure = heat_figure(sample_report.ranks(1024, per_host=8))
    wait = figure.columns.index("waiting for data")
    assert len(figure.ranks) == 32
    assert figure.ranks[0] == "rank 1023, node127"
    assert figure.apart_ms[0][wait] == 6.0
    assert figure.ranks[-1].endswith(", 8 ranks")
    assert sum(name.startswith("rank ") for name in figure.ranks) == 12


def test_many_ranks_without_company_are_the_latest_ones() -> None:
    figure = heat_figure(sample_report.ranks(200, per_host=1))
    assert len(figure.ranks) == 32
    assert all(name.startswith("rank ") for name in figure.ranks)


@pytest.mark.parametrize(("number", "rows"), [(4, 4), (32, 32), (1024, 32)])
def test_the_section_of_the_ranks_is_a_screen_or_two(number: int, rows: int) -> None:
    report = msgspec.structs.replace(sample_report.full_report(), ranks=sample_report.ranks(number, per_host=8))
    open_part = over_run.ranks(report).split("<details")[0]
    assert rows < open_part.count("<tr>") <= 2 * rows + 2
    assert "data-figure" not in open_part  # its names are of any length, and Plotly cuts them


def test_only_known_phases_with_time_are_drawn() -> None:
    figure = step_figure(sample_report.hostile_report())
    with_time = {row.phase for row in sample_report.full_report().phases if row.total_s > 0}
    assert {curve.phase for curve in figure.phases} == with_time


@pytest.mark.parametrize("series", [{}, {"batch": [0.0]}, {"batch": [0.0, 1.0], "period_ms": [1.0]}])
def test_curves_that_do_not_fit_together_give_no_figure(series: dict[str, list[float]]) -> None:
    assert step_figure(msgspec.structs.replace(sample_report.full_report(), series=series)) is None


def test_a_gap_in_a_curve_is_a_gap_and_not_zero() -> None:
    series = {"batch": [0.0, 1.0], "period_ms": [1.0, math.nan], "forward_ms": [1.0, math.nan]}
    figure = step_figure(msgspec.structs.replace(sample_report.full_report(), series=series))
    assert figure.period_ms == [1.0, None]
