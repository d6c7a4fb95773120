"""A report as the output of a notebook's cell, in a frame of its own.

The frame keeps the notebook's styles out of the report and the report's out of the notebook.
"""

from html import escape

import msgspec

from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import tables, time_tables
from lightning_gpuprof.sinks.html import render_html
from lightning_gpuprof.sinks.html_page import page, section
from lightning_gpuprof.sinks.views import findings, first

HEIGHT = "34rem"
LEDGER_ROWS = 10
MAX_FINDINGS = 10
"""The others are counted: a cell is no page."""


def render(report: Report) -> str:
    """What a cell shows: the first screen, findings, where the time went; some ten KiB, without scripts."""
    left = len(report.findings) - MAX_FINDINGS
    shown = msgspec.structs.replace(report, findings=report.findings[:MAX_FINDINGS])
    body = (
        f'<main id="main" tabindex="-1">\n{first.first(shown)}',
        findings.findings(shown),
        f"<p>{left} further findings are on the whole page.</p>\n" if left > 0 else "",
        section("ledger", time_tables.ledger_table(report, LEDGER_ROWS)),
        section("phases", tables.phase_table(report)),
        "</main>\n",
    )
    return framed(page("gpuprof", body, with_scripts=False))


class WholePage(msgspec.Struct, frozen=True):
    """The page of a report with its figures, a few hundred KiB that the notebook then keeps."""

    report: Report

    def _repr_html_(self) -> str:
        return framed(render_html(self.report), scripts=True)


def framed(html: str, *, scripts: bool = False) -> str:
    """A whole page as a frame inside of another one.

    Args:
        html: The page.
        scripts: Let its scripts run; they reach nothing outside of the frame.
    """
    sandbox = "allow-scripts" if scripts else ""
    return (
        f'<iframe title="gpuprof report" sandbox="{sandbox}" srcdoc="{escape(html)}" '
        f'style="width: 100%; height: {HEIGHT}; border: 0; resize: vertical; overflow: auto"></iframe>'
    )
