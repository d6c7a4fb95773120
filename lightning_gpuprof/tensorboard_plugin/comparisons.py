"""Compares two runs once, with the step times of journals that are small, and shows both in two columns."""

import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from html import escape

from lightning_gpuprof.analyze.compare import compare
from lightning_gpuprof.analyze.comparison.uncertainty import StepTimes, step_times
from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.errors import JournalError
from lightning_gpuprof.model.comparison import Comparison
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import comparison_tables, plain
from lightning_gpuprof.sinks.html_page import bdi, table_html
from lightning_gpuprof.sinks.tables import Table
from lightning_gpuprof.sinks.views.compared import compared
from lightning_gpuprof.tensorboard_plugin.reports import Made
from lightning_gpuprof.tensorboard_plugin.run_files import RunFiles
from lightning_gpuprof.tensorboard_plugin.views import MEMBERS

MAX_KEPT = 32
MAX_JOURNAL_BYTES = 8 << 20
"""Some 250,000 steps: a request waits for them. Of a larger journal the intervals of the report are taken."""

MAX_CONDITIONS = 100

FROM_REPORTS = "Intervals from the reports, which are narrow where steps depend on each other."


class Comparisons:
    """Comparisons by the states of both runs, the least recently used dropped first.

    Args:
        most_journal_bytes: Size of a journal beyond which it is not read for its step times.
    """

    def __init__(self, *, most_journal_bytes: int = MAX_JOURNAL_BYTES) -> None:
        self._most_journal_bytes = most_journal_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Comparison] = OrderedDict()

    def of(self, names: tuple[str, str], first: tuple[Made, RunFiles], second: tuple[Made, RunFiles]) -> Comparison:
        """The comparison of two runs.

        Args:
            names: Of both.
            first: Report and files of the run that the other is compared with.
            second: Report and files of the other run.

        Returns:
            The one made before, as long as neither run's report nor files have changed.
        """
        key = "|".join(f"{files.folder}|{made.version}|{files.version}" for made, files in (first, second))
        with self._lock:
            kept = self._kept.get(key)
        if kept is None:
            times = self._times(*first), self._times(*second)
            reports = first[0].report, second[0].report
            kept = compare(*reports, before_name=names[0], after_name=names[1], times=times)
        with self._lock:
            self._kept[key] = kept
            self._kept.move_to_end(key)
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return kept

    def _times(self, made: Made, files: RunFiles) -> StepTimes | None:
        """The steps that the report rests on; None if its journal is not there, too large, or ahead of the report."""
        if not files.journals or made.version != files.version:
            return None
        if files.journals[0].size_bytes > self._most_journal_bytes:
            return None
        try:
            return step_times(read_journal(files.journals[0].path))
        except JournalError:
            return None


def render(
    anchor: str, view: Callable[[Report], str], first: Report, second: Report, names: tuple[str, str], held: Comparison
) -> str:
    """One view of two runs.

    Args:
        anchor: Of the view.
        view: Renders it.
        first: The run that the other is compared with.
        second: The other run.
        names: Of both.
        held: Their comparison.

    Returns:
        HTML: what changed, where the view has tables of that, over a column for each run. Ids in the second begin with
        ``second-``.
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
