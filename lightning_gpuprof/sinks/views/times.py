"""Where the time went: parts of the wall time, the ledger, steps, phases, callbacks."""

from __future__ import annotations

from html import escape

from lightning_gpuprof.model.curves import MARK_TERMS
from lightning_gpuprof.model.phases import PARTS
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import numbers, tables, time_tables
from lightning_gpuprof.sinks.figures import callback_figure, spread_figure, step_figure
from lightning_gpuprof.sinks.html_page import figure, section, stack, table_html, term, titled

CALLBACK_ROWS = 50
LEDGER_ROWS = 12
SHOWN_MARKS = 12
"""Of each kind as text; the figure has all."""


def wall(report: Report) -> str:
    """The parts of the wall time."""
    total = report.wall.total_s
    shares = [(part, report.wall.parts.get(part, 0.0) / total) for part in PARTS] if total > 0 else []
    return section("wall", tables.wall_table(report), stack("Wall time by part", shares))


def ledger(report: Report) -> str:
    """Every named place that time went to: the largest, and all on request."""
    shown = time_tables.ledger_table(report, LEDGER_ROWS)
    whole = time_tables.ledger_table(report, len(report.ledger))
    more = ""
    if len(whole.rows) > len(shown.rows):
        more = f"<details>\n<summary>All {len(report.ledger)} rows</summary>\n{table_html(whole)}</details>\n"
    return section("ledger", shown, "", more)


def steps(report: Report) -> str:
    """The time of each step as a figure, stacked by phase."""
    curves = step_figure(report)
    if curves is None:
        return (
            '<section id="steps">\n<h2>Step time over steps</h2>\n'
            '<p class="absent">The report holds no curves of the steps.</p>\n</section>\n'
        )
    stretch = (curves.batch[-1] - curves.batch[0] + 1) / len(curves.batch)
    thinned = ""
    if stretch >= 2:
        thinned = (
            f"<p>Each point is the longest of about {numbers.significant(stretch)} steps; the longest steps of the run "
            "are all there.</p>\n"
        )
    return (
        f'<section id="steps">\n<h2>Step time over steps, stacked by phase <small>ms</small></h2>\n{thinned}'
        f"{figure('steps', curves, 'Time of each step, stacked by phase, with what happened to the steps below')}"
        f"{_marked(report)}</section>\n"
    )


def _marked(report: Report) -> str:
    """What is marked, how often it happened, and how many of it are drawn."""
    items = []
    for found in report.marks:
        drawn = f", {numbers.count(len(found.marks))} drawn" if len(found.marks) < found.count else ""
        where = ", ".join(_place(mark.from_batch, mark.to_batch) for mark in found.marks[:SHOWN_MARKS])
        more = ", …" if len(found.marks) > SHOWN_MARKS else ""
        items.append(
            f"<li>{term(found.kind, MARK_TERMS[found.kind])}: {numbers.count(found.count)}{drawn}; "
            f"batch {escape(where)}{more}</li>\n"
        )
    return f'<ul class="marks">\n{"".join(items)}</ul>\n' if items else ""


def _place(first: int, last: int) -> str:
    return numbers.count(first) if first == last else f"{numbers.count(first)} to {numbers.count(last)}"


def phases(report: Report) -> str:
    """Phases of the steps, the period, its regimes, what steps count as."""
    shares = stack("Time of all steps by phase", [(row.phase, row.share) for row in report.phases])
    period = f"<h3>Period of a step</h3>\n{table_html(tables.period_table(report))}"
    period += titled((time_tables.regime_table(report), time_tables.label_table(report)))
    drawn = spread_figure(report)
    if drawn is not None:
        label = "Range of each phase over the steady steps: 5 % to 95 %, with the median, in ms"
        period = f"<h3>How the phases scatter <small>ms</small></h3>\n{figure('spread', drawn, label)}{period}"
    return section("phases", tables.phase_table(report), shares, period)


def callbacks(report: Report) -> str:
    """Time of each hook of each callback."""
    drawn = callback_figure(report)
    lead = "" if drawn is None else figure("bars", drawn, "Total time of each callback by its hooks, in s")
    return section("callbacks", tables.callback_table(report, CALLBACK_ROWS), lead)
