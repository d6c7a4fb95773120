"""Where the time went: parts of the wall time, the ledger, steps, phases, callbacks."""

from html import escape

from msgspec.structs import replace

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.curves import MARK_TERMS
from lightning_gpuprof.model.phases import PARTS, words_of
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import tables, time_tables, wording
from lightning_gpuprof.sinks.drawings import spread_svg, steps_svg
from lightning_gpuprof.sinks.figures import spread_figure, step_figure
from lightning_gpuprof.sinks.html_page import absent, figure, headed, legend, section, stack, table_html, term, titled
from lightning_gpuprof.sinks.line_tables import timed_note, timed_tables
from lightning_gpuprof.sinks.window_figures.flame import flame_html, flame_of_steps

CALLBACK_ROWS = 5
LEDGER_ROWS = 12
_STEPS_LABEL = "Time of each step, stacked by phase, with events below"
MIN_SHOWN_RATIO = 0.005
"""Parts of the wall time with less have no words beside the bar."""
SHOWN_MARKS = 12
"""Of each kind as text; the figure has all."""


def wall(report: Report) -> str:
    """The parts of the wall time."""
    return section("wall", tables.wall_table(report), stack("Wall time by part", _shares(report)))


def _shares(report: Report) -> list[tuple[str, str, float]]:
    total, parts = report.wall.total_s, report.wall.parts
    return [(part, words_of(part), parts[part] / total) for part in PARTS if part in parts and total > 0]


def ledger(report: Report) -> str:
    """Every named place that time went to: the largest, and all on request."""
    shown, whole = (time_tables.ledger_table(report, rows) for rows in (LEDGER_ROWS, len(report.ledger)))
    return section("ledger", shown, "", _all_rows(shown, whole, f"{len(report.ledger)} rows"))


def _all_rows(shown: tables.Table, whole: tables.Table, words: str) -> str:
    """The whole table on request, where not all of it is shown."""
    if len(whole.rows) <= len(shown.rows):
        return ""
    return f"<details>\n<summary>All {words}</summary>\n{table_html(whole)}</details>\n"


def steps(report: Report) -> str:
    """The time of each step as a figure, stacked by phase."""
    curves = step_figure(report)
    if curves is None:
        return headed("steps", "Step time over steps", absent("The report has no curves of the steps."))
    stretch = (curves.batch[-1] - curves.batch[0] + 1) / len(curves.batch)
    thinned = ""
    if stretch >= 2:
        thinned = (
            f"<p>Each point is the longest of about {numbers.significant(stretch)} steps; the longest steps of the run "
            "are all there.</p>\n"
        )
    drawn = figure("steps", curves, _STEPS_LABEL, steps_svg(curves))
    title = "Step time over steps, stacked by phase <small>ms</small>"
    return headed("steps", title, thinned + drawn + _marked(report))


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
    if not items:
        return ""
    listed = f'<ul class="marks">\n{"".join(items)}</ul>\n'
    return f"<details>\n<summary>Events during the steps</summary>\n{listed}</details>\n"


def _place(first: int, last: int) -> str:
    return numbers.count(first) if first == last else f"{numbers.count(first)} to {numbers.count(last)}"


def phases(report: Report) -> str:
    """Phases of the steps, the step time, its speed levels, what steps count as."""
    shares = stack("Time of all steps by phase", [(row.phase, words_of(row.phase), row.share) for row in report.phases])
    period = f"<h3>Step time</h3>\n{table_html(tables.step_time_table(report))}"
    period += titled((time_tables.speed_level_table(report), time_tables.label_table(report)))
    drawn = spread_figure(report)
    if drawn is not None:
        label = "Range of each phase over the steady steps: 5 % to 95 %, with the median, in ms"
        scatter = figure("spread", drawn, label, spread_svg(drawn))
        period = f"<h3>Spread of the phases <small>ms</small></h3>\n{scatter}{period}"
    lines = titled((tables.line_table(report, len(report.lines)),)) if report.lines else ""
    lines += titled(timed_tables(report.line_times, report.lines))
    if report.line_times and (said := timed_note(report)):
        lines += f'<p class="hint">{escape(said)}</p>\n'
    return section("phases", tables.phase_table(report), shares, lines + flame_html(flame_of_steps(report)) + period)


def callbacks(report: Report) -> str:
    """Time of each hook of each callback: the costliest, and all on request."""
    shown, whole = (tables.callback_table(report, rows) for rows in (CALLBACK_ROWS, len(report.callbacks)))
    return section("callbacks", shown, "", _all_rows(shown, whole, f"{len(whole.rows)} hooks"))


def overview(report: Report) -> str:
    """The one answer to where the time went: the wall time by part, each step by phase, the phases."""
    total, shares = report.wall.total_s, _shares(report)
    colours = legend(
        (part, f"{name} {numbers.seconds(share * total)}") for part, name, share in shares if share >= MIN_SHOWN_RATIO
    )
    ran = f"{wording.stage(report).capitalize()} took {numbers.seconds(total)}"
    phases = tables.phase_table(report)
    worth = {words_of(row.phase) for row in report.phases if row.total_s > 0}
    rows = tuple(row for row in phases.rows if row[0].text in worth)
    return (
        f"<h3>{ran}</h3>\n{stack('Wall time by part', shares)}{colours}{steps(report)}"
        f"<h3>Phases of the median step</h3>\n{table_html(replace(phases, rows=rows))}"
    )
