"""The numbers behind the page's figure."""

from __future__ import annotations

import math

import msgspec
import pytest
import sample_report

from lightning_gpuprof.sinks.figures import step_figure


def test_phases_of_the_figure_sum_to_its_period() -> None:
    figure = step_figure(sample_report.full_report())
    assert figure is not None
    for i, period in enumerate(figure.period_ms):
        assert period is not None
        assert math.isclose(sum(curve.ms[i] or 0.0 for curve in figure.phases), period, rel_tol=0.01)


def test_a_thinned_figure_keeps_the_longest_steps() -> None:
    report = sample_report.full_report(steps=5000)
    figure = step_figure(report, limit=100)
    assert figure is not None
    assert len(figure.batch) <= 100
    assert len(figure.batch) == len(figure.period_ms) == len(figure.phases[0].ms)
    assert max(p for p in figure.period_ms if p is not None) == pytest.approx(max(report.series["period_ms"]), rel=1e-3)
    assert figure.batch == sorted(figure.batch)


def test_only_known_phases_with_time_are_drawn() -> None:
    figure = step_figure(sample_report.hostile_report())
    assert figure is not None
    with_time = {row.phase for row in sample_report.full_report().phases if row.total_s > 0}
    assert {curve.phase for curve in figure.phases} == with_time


@pytest.mark.parametrize("series", [{}, {"batch": [0.0]}, {"batch": [0.0, 1.0], "period_ms": [1.0]}])
def test_curves_that_do_not_fit_together_give_no_figure(series: dict[str, list[float]]) -> None:
    assert step_figure(msgspec.structs.replace(sample_report.full_report(), series=series)) is None


def test_a_gap_in_a_curve_is_a_gap_and_not_zero() -> None:
    series = {"batch": [0.0, 1.0], "period_ms": [1.0, math.nan], "forward_ms": [1.0, math.nan]}
    figure = step_figure(msgspec.structs.replace(sample_report.full_report(), series=series))
    assert figure is not None
    assert figure.period_ms == [1.0, None]
