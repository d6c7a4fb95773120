"""A Report flows in, one HTML page that opens from disk without any network flows out."""

from __future__ import annotations

from pathlib import Path

from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks.files import write_whole
from lightning_gpuprof.sinks.html_page import pieces
from lightning_gpuprof.sinks.views.catalogue import VIEWS
from lightning_gpuprof.sinks.views.overview import header

FILE_NAME = "report.html"


def write(report: Report, target: Path) -> None:
    """Write ``report.html`` whole or not at all.

    Args:
        report: The report.
        target: The file.

    Raises:
        ReportError: The file cannot be written.
    """
    write_whole(target, *_pieces(report))


def render_html(report: Report) -> str:
    """The page as text: all views, their figures drawn by Plotly's script from the installed package.

    Args:
        report: The report.
    """
    return b"".join(_pieces(report)).decode()


def _pieces(report: Report) -> tuple[bytes, ...]:
    shown = [(view, part) for view in VIEWS if (part := view.render(report))]
    links = "".join(f'<a href="#{view.anchor}">{view.title}</a>\n' for view, _ in shown)
    body = [
        header(report),
        f'<nav aria-label="Sections">\n{links}</nav>\n',
        '<main id="main" tabindex="-1">\n',
        *(part for _, part in shown),
        "</main>\n",
    ]
    return pieces(f"gpuprof: {report.verdict.kind}", body)
