"""A report as one HTML page that opens from disk without a network."""

from html import escape
from pathlib import Path

from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import method_tables
from lightning_gpuprof.sinks.files import write_whole
from lightning_gpuprof.sinks.first_screen import first_screen
from lightning_gpuprof.sinks.html_page import pieces
from lightning_gpuprof.sinks.views import first, times
from lightning_gpuprof.sinks.views.catalogue import GROUPS, VIEWS, group_anchor, was_measured

FILE_NAME = "report.html"


def write(report: Report, target: Path, folder: Path | None = None) -> None:
    """Write ``report.html`` whole or not at all.

    Args:
        report: The report.
        target: The file.
        folder: Of the run, for the command that proves the fix; None: that of the file.

    Raises:
        ReportError: The file cannot be written.
    """
    write_whole(target, *_pieces(report, folder or target.parent))


def render_html(report: Report, folder: Path | None = None) -> str:
    """The page as text: the first screen, and all views under seven headings.

    Args:
        report: The report.
        folder: Of the run, for the command that proves the fix; None: not known.

    Returns:
        A whole HTML document, which needs no other file and no network.
    """
    return b"".join(_pieces(report, folder)).decode()


def _pieces(report: Report, folder: Path | None) -> tuple[bytes, ...]:
    screen = first_screen(report, folder)
    links = "".join(f'<a href="#{group_anchor(group)}">{escape(group)}</a>\n' for group in GROUPS)
    body = [
        f'<main id="main" tabindex="-1">\n{first.render(screen)}',
        f'<nav aria-label="Sections">\n{links}</nav>\n',
        *(_group(group, report) for group in GROUPS),
        "</main>\n",
    ]
    run = f" {screen.meta[0]}" if folder is not None else ""
    return pieces(f"gpuprof{run}: {screen.headline}", body)


def _group(group: str, report: Report) -> str:
    """A heading with its views: what answers most is open, what is behind it and all else is closed."""
    shown = {view.anchor: part for view in VIEWS if view.group == group and (part := view.render(report))}
    anchor, title = group_anchor(group), escape(group)
    if group == "Time":
        del shown["steps"]  # it is in the overview
        lead, more = f"<h2>Where the time goes</h2>\n{times.overview(report)}", "More about time"
    elif group == "Findings":
        lead, more = shown.pop("findings"), method_tables.TITLE
    elif group == "Trace" and any(window.analysis is not None for window in report.windows):
        lead, more = shown.pop("timeline"), "More from the trace"
    else:
        lead, more = "", f"<h2>{title}</h2>"
        if not was_measured(group, report):
            more += " <small>nothing was measured</small>"
    inside = "".join(shown.values())
    return (
        f'<section id="{anchor}">\n{lead}<details class="group">\n<summary>{more}</summary>\n{inside}</details>\n'
        "</section>\n"
    )
