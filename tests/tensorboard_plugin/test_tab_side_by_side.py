"""Two runs side by side: the change in percent, what is left out, and ids that stand once."""

import re

import log_directories  # noqa: F401 - puts the samples on the path
import pytest
import sample_report

from lightning_gpuprof.analyze.compare import compare
from lightning_gpuprof.model.comparison import Change
from lightning_gpuprof.sinks import comparison_tables
from lightning_gpuprof.sinks.html_page import section
from lightning_gpuprof.sinks.tables import Table
from lightning_gpuprof.tensorboard_plugin import comparisons
from lightning_gpuprof.tensorboard_plugin.views import TAB_VIEWS


def change(before: float | None, after: float | None) -> Change:
    difference = None if before is None or after is None else after - before
    return Change(name="x", unit="ms", before=before, after=after, difference=difference)


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (10.0, 5.0, "-50.0 %"),
        (10.0, 12.5, "+25.0 %"),
        (10.0, 10.0, "0 %"),
        (0.001, 0.624, "x624"),
        (10.0, 99.0, "+890.0 %"),
        (-1.0, -20.0, "x20"),
        (-1.0, 20.0, "-2,100.0 %"),
        (0.0, 5.0, "-"),
        (None, 5.0, "-"),
        (5.0, None, "-"),
    ],
)
def test_the_change_is_of_the_first_run_and_a_factor_from_tenfold_on_and_absent_where_that_has_none(
    before: float | None, after: float | None, shown: str
) -> None:
    row = change(before, after)
    (cells,) = comparison_tables.change_table("t", [row]).rows
    assert cells[4].text == shown
    assert f"({shown})" in comparison_tables.change_words(row)


@pytest.mark.parametrize("anchor", ["overview", "findings", "phases", "conditions", "memory", "host"])
def test_no_id_stands_twice_on_the_page(anchor: str) -> None:
    first, second = sample_report.full_report(), sample_report.hostile_report()
    held = compare(first, second, before_name="a", after_name="b")
    html = comparisons.render(anchor, TAB_VIEWS[anchor].render, first, second, ("a", "b"), held)
    ids = re.findall(r'<[a-z]+ id="([^"]+)"', html)
    assert len(ids) == len(set(ids)) > 0


def test_data_that_looks_like_an_id_stays_as_it_is() -> None:
    table = Table(title='<section id="verdict">', columns=(), rows=(), absent='<p id="x">')
    first, second = sample_report.full_report(), sample_report.full_report()
    held = compare(first, second)
    html = comparisons.render("windows", lambda report: section("a", table), first, second, ("a", "b"), held)
    assert html.count("&lt;section id=&quot;verdict&quot;&gt;") == 2
    assert html.count('id="second-a"') == 1


@pytest.mark.parametrize(
    ("anchor", "title", "columns"),
    [
        ("overview", "Totals", ("before", "after", "interval")),
        ("phases", "Phases, median per step", ("before", "after", "difference")),
        ("findings", "Findings", ("promised", "achieved")),
        ("conditions", "Conditions that differ", ("before", "after")),
    ],
)
def test_the_tables_are_those_of_the_comparison_page(anchor: str, title: str, columns: tuple[str, ...]) -> None:
    first, second = sample_report.full_report(), sample_report.full_report(name="Other")
    held = compare(first, second, allow=("model",))
    html = comparisons.render(anchor, lambda report: "", first, second, ("a", "b"), held)
    assert f"<h3>{title}</h3>" in html
    for column in columns:
        assert f">{column}<" in html, column
