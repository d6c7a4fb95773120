"""Two reports in two columns, with what changed above them."""

import re
from collections.abc import Callable
from html import escape

from lightning_gpuprof.model.comparison import Comparison
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import comparison_tables, plain
from lightning_gpuprof.sinks.html_page import bdi, table_html
from lightning_gpuprof.sinks.tables import Table
from lightning_gpuprof.sinks.views.compared import compared
from lightning_gpuprof.tensorboard_plugin.views import MEMBERS

MAX_CONDITIONS = 100
FROM_REPORTS = "Intervals from the reports, which are narrow where steps depend on each other."


def render(
    anchor: str, view: Callable[[Report], str], first: Report, second: Report, names: tuple[str, str], held: Comparison
) -> str:
    """One view of two runs.

    Args:
        anchor: Of the view.
        view: Renders it.
        first: The run that the other is held against.
        second: The other run.
        names: Of both.
        held: Their comparison.
    """
    columns = (_column(names[0], view(first)), _column(names[1], _with_renamed_ids(view(second))))
    return f'{_changes(anchor, held)}<div class="columns">\n{"".join(columns)}</div>\n'


def _column(name: str, body: str) -> str:
    shown = bdi(plain.name(name.removesuffix("/gpuprof")))
    return f'<div class="column">\n<h2 class="run-name">{shown}</h2>\n{body}</div>\n'


def _with_renamed_ids(body: str) -> str:
    """An id stands once on a page. Data cannot look like an attribute: its quotes are escaped, also those in JSON."""
    return re.sub(r'(<[a-z]+ id=")', r"\1second-", body)


def _changes(anchor: str, held: Comparison) -> str:
    if anchor == "overview":
        totals = comparison_tables.total_table(held)
        parts = comparison_tables.change_table(comparison_tables.PARTS, comparison_tables.large(held.parts))
        from_reports = held.sources is not None and set(held.sources) != {"journal"}
        hint = f'<p class="hint">{FROM_REPORTS}</p>\n' if from_reports else ""
        if sources := comparison_tables.sources(held):
            hint = f"<p>Intervals: {bdi(sources)}</p>\n{hint}"
        folded = f"<details>\n<summary>All numbers</summary>\n{hint}{_titled(totals)}{_titled(parts)}</details>\n"
        return f"{compared(held)}{_section(folded)}"
    tables = {
        "phases": lambda: [
            comparison_tables.change_table(comparison_tables.PHASES, comparison_tables.large(held.phases))
        ],
        "findings": lambda: [comparison_tables.finding_table(held)],
        "conditions": lambda: [comparison_tables.condition_table(held, MAX_CONDITIONS)],
        "windows": lambda: comparison_tables.window_tables(held),
    }
    views = MEMBERS.get(anchor, (anchor,))
    shown = "".join(_titled(table) for view in views if view in tables for table in tables[view]())
    return _section(shown) if shown else ""


def _section(body: str) -> str:
    return f'<section class="changes">\n{body}</section>\n'


def _titled(table: Table) -> str:
    return f"<h3>{escape(table.title)}</h3>\n{table_html(table)}"
