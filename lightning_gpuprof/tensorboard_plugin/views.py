"""The views of the tab: those of the page, the first screen first."""

from __future__ import annotations

from html import escape

from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks.views.catalogue import VIEWS, View

OVERVIEW = View("overview", "Overview", VIEWS[0].render)


def _whole(view: View) -> View:
    """A view that says so where it does not apply to a run; the page leaves it out there."""

    def render(report: Report) -> str:
        absent = '<p class="absent">This view does not apply to this run.</p>'
        return view.render(report) or f"<section>\n<h2>{escape(view.title)}</h2>\n{absent}\n</section>\n"

    return View(view.anchor, view.title, render, view.group)


TAB_VIEWS: dict[str, View] = {
    view.anchor: view for view in (OVERVIEW, *(_whole(view) for view in VIEWS if view.anchor != "verdict"))
}
"""By anchor, in order; the overview is the first screen."""

TITLES: list[dict[str, str]] = [
    {"anchor": view.anchor, "title": view.title, "group": view.group} for view in TAB_VIEWS.values()
]
