"""A report as the output of a notebook's cell, in a frame of its own.

The frame keeps the notebook's styles out of the report and the report's out of the notebook.
"""

from html import escape

import msgspec

from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import tables, time_tables
from lightning_gpuprof.sinks.html import render_html
from lightning_gpuprof.sinks.html_page import packaged_text, page, section
from lightning_gpuprof.sinks.views import findings, first

HEIGHT = "40rem"
"""Of a frame; the first screen fits into it."""
LEDGER_ROWS = 10
MAX_FINDINGS = 10
"""The others are counted: a cell is no page."""


def render(report: Report) -> str:
    """What a cell shows: the first screen, findings, where the time went; some ten KiB, whose one script copies."""
    left = len(report.findings) - MAX_FINDINGS
    shown = msgspec.structs.replace(report, findings=report.findings[:MAX_FINDINGS])
    body = (
        f'<main id="main" tabindex="-1">\n{first.first(shown)}',
        findings.findings(shown),
        f"<p>{left} further findings are on the whole page.</p>\n" if left > 0 else "",
        section("ledger", time_tables.ledger_table(report, LEDGER_ROWS)),
        section("phases", tables.phase_table(report)),
        f"</main>\n<script>\n{packaged_text('page.js')}</script>\n",
    )
    return framed(page("gpuprof", body, with_scripts=False))


class WholePage(msgspec.Struct, frozen=True):
    """The page of a report with its figures, a few hundred KiB that the notebook then keeps."""

    report: Report

    def _repr_html_(self) -> str:
        return framed(render_html(self.report))


def framed(html: str) -> str:
    """A whole page as a frame inside of another one, outside of which its scripts reach nothing but the clipboard."""
    return (
        f'<iframe title="gpuprof report" sandbox="allow-scripts" allow="clipboard-write" srcdoc="{escape(html)}" '
        f'style="width: 100%; height: {HEIGHT}; border: 0; resize: vertical; overflow: auto"></iframe>'
    )
