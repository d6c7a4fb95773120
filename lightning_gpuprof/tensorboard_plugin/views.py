"""The views of the tab: the first screen, then those of the page by group; each view of a group also by itself."""

from collections.abc import Mapping, Sequence
from html import escape

from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks.views.catalogue import GROUPS, VIEWS, View, group_anchor, was_measured

OVERVIEW = View("overview", "Overview", VIEWS[0].render)
_OPEN = frozenset({"conditions", "terms"})
"""Folded on the page, which is long."""


def _whole(view: View) -> View:
    """A view that says so where it does not apply to a run; the page leaves it out there."""

    def render(report: Report) -> str:
        absent = '<p class="absent">This view does not apply to this run.</p>'
        html = view.render(report) or f"<section>\n<h2>{escape(view.title)}</h2>\n{absent}\n</section>\n"
        return html.replace("<details>", "<details open>", 1) if view.anchor in _OPEN else html

    return View(view.anchor, view.title, render, view.group)


def _group(group: str, views: Sequence[View]) -> View:
    """All views of a group under each other, without those that do not apply."""

    def render(report: Report) -> str:
        return "".join(_whole(view).render(report) for view in views if view.render(report))

    return View(group_anchor(group), group, render, group)


MEMBERS: Mapping[str, tuple[str, ...]] = {
    group_anchor(group): tuple(view.anchor for view in VIEWS if view.group == group) for group in GROUPS
}
"""Views of each group by its anchor."""

TAB_VIEWS: dict[str, View] = {
    view.anchor: view
    for view in (
        OVERVIEW,
        *(_group(group, [view for view in VIEWS if view.group == group]) for group in GROUPS),
        *(_whole(view) for view in VIEWS if view.anchor != "verdict"),
    )
}
"""By anchor, in order; the overview is the first screen."""

TITLES: list[dict[str, object]] = [
    {"anchor": view.anchor, "title": view.title, "views": MEMBERS.get(view.anchor, ())}
    for view in (OVERVIEW, *(TAB_VIEWS[anchor] for anchor in MEMBERS))
]


def empty_groups(report: Report) -> list[str]:
    """Anchors of the groups of which nothing was measured."""
    return [group_anchor(group) for group in GROUPS if not was_measured(group, report)]
