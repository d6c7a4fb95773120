"""The analysis of a trace flows in, one HTML page that opens from disk without any network flows out."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby

from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.html_page import bdi, own, page, plotly_script, script_json, table_html
from lightning_gpuprof.sinks.trace_summary import sentences
from lightning_gpuprof.sinks.trace_tables import CATALOGUE, Entry
from lightning_gpuprof.sinks.window_figures.roofline import roofline_figure


def render_trace_html(analysis: TraceAnalysis, *, name: str) -> str:
    """The page: the summary, all tables by chapter, the roofline as a figure.

    Args:
        analysis: Of a trace.
        name: Of the trace, as people know it.
    """
    name = plain.name(name)
    chapters = [(title, list(entries)) for title, entries in groupby(CATALOGUE, key=lambda entry: entry.chapter)]
    figure = None if analysis.roofline is None else roofline_figure(analysis.roofline)
    links = "".join(f'<a href="#{_anchor(title)}">{escape(title)}</a>\n' for title, _ in chapters)
    items = "".join(f"<li>{bdi(line)}</li>\n" for line in sentences(analysis))
    body = [
        f"<header>\n<h1>Trace {bdi(name)}</h1>\n</header>\n",
        f'<nav aria-label="Sections">\n<a href="#summary">Summary</a>\n{links}</nav>\n<main>\n',
        f'<section id="summary">\n<h2>Summary</h2>\n<ul>\n{items}</ul>\n</section>\n',
        *(_chapter(title, entries, analysis, with_figure=figure is not None) for title, entries in chapters),
        "</main>\n",
    ]
    if figure is not None:
        data = script_json(figure)
        body.append(f'<script type="application/json" id="roofline-data">{data}</script>\n')
        body.append(plotly_script())
        body.append(f"<script>\n{own('trace.js')}</script>\n")
    return page(f"gpuprof: {name}", body)


def _chapter(title: str, entries: Sequence[Entry], analysis: TraceAnalysis, *, with_figure: bool) -> str:
    figure = (
        '<div id="roofline-figure" class="figure" role="img" aria-label="Roofline: achieved rates under the ceilings '
        'of the device; all numbers are in the table"></div>\n'
        if with_figure and title == "Roofline"
        else ""
    )
    parts = [
        f"<details{' open' if entry.shown else ''}>\n<summary>{escape(table.title)}</summary>\n"
        f"{table_html(table)}</details>\n"
        for entry in entries
        for table in entry.tables(analysis)
    ]
    shown = "".join(parts) or '<p class="absent">The trace holds nothing for this.</p>\n'
    return f'<section id="{_anchor(title)}">\n<h2>{escape(title)}</h2>\n{figure}{shown}</section>\n'


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")
