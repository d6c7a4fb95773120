"""The analysis of a trace, and what the rules say of it, as one HTML page that opens from disk without a network."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import groupby

from lightning_gpuprof.model.finding import Finding, NotEvaluated
from lightning_gpuprof.model.trace.analysis import TraceAnalysis, TraceDiagnosis
from lightning_gpuprof.sinks import plain, wording
from lightning_gpuprof.sinks.html_page import absent, bdi, headed, listed, page, prose, table_html
from lightning_gpuprof.sinks.tables import Table
from lightning_gpuprof.sinks.trace_findings import QUIET, diff, unjudged
from lightning_gpuprof.sinks.trace_summary import sentences
from lightning_gpuprof.sinks.trace_tables import CATALOGUE, Entry
from lightning_gpuprof.sinks.window_figures.flame import flame_html, flame_of
from lightning_gpuprof.sinks.window_html import (
    idle_html,
    memory_html,
    opening_html,
    operators_html,
    roofline_html,
    timeline_html,
)

_DRAWN: Mapping[str, Callable[[TraceAnalysis], str]] = {
    "Timeline": lambda analysis: timeline_html(analysis) + flame_html(flame_of(analysis)),
    "Idle time": idle_html,
    "Operators": operators_html,
    "Memory": memory_html,
    "Roofline": roofline_html,
}
"""What stands above the tables of a chapter."""
_OPEN = ("Timeline", "Idle time")
"""Chapters whose figure is in sight; the others are folded, so that the page stays short."""
_OPEN_ROWS = 25
"""Longer tables are closed at first: what follows them would be far away."""


def render_trace_html(analysis: TraceAnalysis, *, name: str, diagnosis: TraceDiagnosis | None = None) -> str:
    """The page: what to change, the summary, why the GPU was idle, then by chapter and folded all tables.

    Args:
        analysis: Of a trace.
        name: Of the trace, as people know it.
        diagnosis: What the rules say of it; None: they were not asked.

    Returns:
        A whole HTML document, which needs no other file and no network.
    """
    file, name = name, plain.name(name)
    chapters = [(title, list(entries)) for title, entries in groupby(CATALOGUE, key=lambda entry: entry.chapter)]
    links = "".join(f'<a href="#{_anchor(title)}">{escape(title)}</a>\n' for title, _ in chapters)
    links = f'<a href="#summary">Summary</a>\n{links}'
    if diagnosis is not None:
        links = f'<a href="#findings">Findings</a>\n{links}'
    body = [
        f"<header>\n<h1>Trace {bdi(name)}</h1>\n</header>\n",
        f'<nav aria-label="Sections">\n{links}</nav>\n<main id="main" tabindex="-1">\n',
        "" if diagnosis is None else findings_section(diagnosis),
        headed("summary", "Summary", listed(sentences(analysis)) + opening_html(file)),
        *(_chapter(title, entries, analysis) for title, entries in chapters),
        "</main>\n",
    ]
    return page(f"gpuprof: {name}", body)


def _chapter(title: str, entries: Sequence[Entry], analysis: TraceAnalysis) -> str:
    draw = _DRAWN.get(title)
    drawn = draw(analysis) if draw is not None else ""
    is_open = title in _OPEN
    parts = [
        _folded(table, is_open=entry.shown and not is_open and len(table.rows) <= _OPEN_ROWS)
        for entry in entries
        for table in entry.long_tables(analysis)
    ]
    shown = drawn + ("".join(parts) or absent("The trace has no data for this."))
    head = f"<h2>{escape(title)}</h2>"
    if not is_open:
        head, shown = "", f'<details class="group">\n<summary>{head}</summary>\n{shown}</details>'
    return f'<section id="{_anchor(title)}">\n{head}\n{shown}</section>\n'


def _folded(table: Table, *, is_open: bool) -> str:
    title = escape(table.title)
    return f"<details{' open' if is_open else ''}>\n<summary>{title}</summary>\n{table_html(table)}</details>\n"


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def findings_section(found: TraceDiagnosis) -> str:
    """Verdict, caveats and findings as a section of the page; the rules that need a run unfold."""
    caveats = "".join(f"<p>{bdi(plain.sentence(caveat))}</p>\n" for caveat in found.caveats)
    cards = "".join(map(card, found.findings)) or f"<p>{escape(QUIET)}</p>\n"
    rest = "".join(_unjudged(*one) for one in unjudged(found))
    return headed("findings", bdi(plain.sentence(found.verdict.summary)), caveats + cards + rest)


def card(finding: Finding) -> str:
    """A finding with its fix."""
    lines = "\n".join(diff(finding))
    code = f"<pre>{escape(lines)}</pre>\n" if lines else ""
    gain = (
        f'<p class="gain">Gain: {escape(wording.gain(finding, finding.gain))}</p>\n' if finding.gain is not None else ""
    )
    title = plain.name(finding.title or finding.rule)
    return (
        f'<article class="finding {finding.severity}">\n'
        f'<h3><span class="severity">{finding.severity}</span> {prose(title)}</h3>\n'
        f"<p>{prose(plain.sentence(finding.summary))}</p>\n"
        f'<p class="next"><span>Fix</span> {prose(plain.sentence(finding.advice))}</p>\n{code}{gain}</article>\n'
    )


def _unjudged(words: str, how: str, rules: list[NotEvaluated]) -> str:
    rows = "".join(f"<li>{bdi(why)}: {bdi(', '.join(ids))}</li>\n" for why, ids in wording.by_reason(rules))
    head = f"<summary>{escape(words)}</summary>\n<p><code>{escape(how)}</code></p>\n"
    return f"<details>\n{head}<ul>\n{rows}</ul>\n</details>\n"
