"""All views in the order of the method. Whatever is to appear on the page and in the tab stands here once."""

from collections.abc import Callable

import msgspec

from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import host_tables, input_tables, memory_tables, tables
from lightning_gpuprof.sinks.views import findings, first, over_run, overview, times, windows


class View(msgspec.Struct, frozen=True):
    """A part of a page.

    Attributes:
        anchor: The id of its element.
        title: How links call it.
        render: From a report to HTML, with the numbers of its figures inside; it asks for nothing else. Empty where
            the view does not apply to the run, as that of the ranks where there is one.
        group: Its heading, one of :data:`GROUPS`; empty for the first screen.
    """

    anchor: str
    title: str
    render: Callable[[Report], str]
    group: str = ""


GROUPS: tuple[str, ...] = ("Time", "Findings", "Input", "GPU and memory", "CPU and host", "Trace", "About this run")
"""The headings of the page and of the tab."""


def group_anchor(group: str) -> str:
    """The id of a group's element, and its name in the tab's address."""
    return f"group-{group.lower().replace(' ', '-')}"


def was_measured(group: str, report: Report) -> bool:
    """Whether a group has more than sentences that say why it is empty.

    Args:
        group: One of :data:`GROUPS`.
        report: Of the run.
    """
    if group == "Input":
        return _any_rows(input_tables.verdict_table(report), *input_tables.inner_tables(report))
    if group == "GPU and memory":
        return _any_rows(tables.device_table(report), *memory_tables.memory_tables(report.memory))
    if group == "CPU and host":
        return bool(report.curves) or _any_rows(*host_tables.tables_of(report))
    return group != "Trace" or bool(report.windows)


def _any_rows(*found: tables.Table) -> bool:
    return any(table.rows for table in found)


VIEWS: tuple[View, ...] = (
    View("verdict", "Verdict", first.first),
    View("findings", "Findings", findings.findings, "Findings"),
    View("tried", "Tried", findings.tried, "Findings"),
    View("method", "Method", findings.method, "Findings"),
    View("not-evaluated", "Not evaluated", overview.not_evaluated, "Findings"),
    View("wall", "Wall time", times.wall, "Time"),
    View("ledger", "Every second", times.ledger, "Time"),
    View("steps", "Step time", times.steps, "Time"),
    View("phases", "Phases", times.phases, "Time"),
    View("callbacks", "Callbacks", times.callbacks, "Time"),
    View("ranks", "Ranks", over_run.ranks, "Time"),
    View("compile", "Compiling", over_run.compiling, "Time"),
    View("input", "Input", over_run.input_pipeline, "Input"),
    View("gpus", "GPUs", over_run.gpus, "GPU and memory"),
    View("memory", "Memory", over_run.memory, "GPU and memory"),
    View("host", "Host", over_run.host, "CPU and host"),
    View("curves", "Curves", over_run.curves, "CPU and host"),
    View("timeline", "Timeline", windows.timeline, "Trace"),
    View("windows", "Windows", windows.windows, "Trace"),
    View("operators", "Operators", windows.operators, "Trace"),
    View("summary", "Summary", overview.summary, "About this run"),
    View("overhead", "Cost", overview.cost, "About this run"),
    View("conditions", "Conditions", overview.conditions, "About this run"),
    View("terms", "Terms", overview.terms, "About this run"),
)
