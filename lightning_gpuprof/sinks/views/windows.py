"""What the trace windows hold."""

from html import escape

from lightning_gpuprof.model.report import Report
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.sinks import tables
from lightning_gpuprof.sinks.html_page import absent, headed, listed, section, table_html, unfolded_on_click
from lightning_gpuprof.sinks.trace_summary import device_sentences
from lightning_gpuprof.sinks.trace_tables import CATALOGUE
from lightning_gpuprof.sinks.window_figures.flame import flame_html, flame_of
from lightning_gpuprof.sinks.window_figures.timeline import moments
from lightning_gpuprof.sinks.window_html import (
    idle_html,
    memory_html,
    opening_html,
    operators_html,
    roofline_html,
    timeline_html,
)
from lightning_gpuprof.sinks.window_tables.ranks import all_tables
from lightning_gpuprof.sinks.window_tables.timeline import timeline_table

_OF_OPERATORS = frozenset({"operators", "operator_types", "operator_details", "operator_steps"})
_OF_WINDOWS = frozenset(
    {
        "cuda_api_sum",
        "cuda_gpu_mem_time_sum",
        "cuda_gpu_mem_size_sum",
        "idle_gaps",
        "streams",
        "attribution",
        "kernel_steps",
        "memory",
        "memory_modules",
        "memory_lines",
        "memory_pieces",
        "savings",
        "roofline",
        "collectives",
    }
)
"""Tables of a trace that are here beside those that are always shown."""


def windows(report: Report) -> str:
    """All windows: why devices were idle, what they did, for which code, as figures and as tables."""
    others = f"<h3>Windows of other ranks</h3>\n{listed(report.rank_windows)}" if report.rank_windows else ""
    if report.window_ranks is not None:
        others += unfolded_on_click(all_tables(report.window_ranks))
    return section("windows", tables.window_table(report), "", others + "".join(map(_window, report.windows)))


def timeline(report: Report) -> str:
    """One step of each window, moment by moment, and who took the time of the window."""
    shown = []
    for window in report.windows:
        found = window.analysis
        drawn = "" if found is None else timeline_html(found, moments(report, window))
        if found is not None and found.timeline is not None and drawn:
            table = timeline_table(found.timeline)
            parts = f"<details>\n<summary>All parts of the step as a table</summary>\n{table_html(table)}</details>\n"
            shown.append(_of_window(report, window, drawn + parts + flame_html(flame_of(found))))
    return _section("timeline", "One step, moment by moment", shown)


def operators(report: Report) -> str:
    """The operators of each window: by type, by time, by shape of inputs."""
    shown = []
    for window in report.windows:
        found = window.analysis
        drawn = "" if found is None else operators_html(found)
        if found is None or not drawn:
            continue
        folded = [table for entry in CATALOGUE if entry.name in _OF_OPERATORS for table in entry.tables(found)]
        shown.append(_of_window(report, window, drawn + unfolded_on_click(folded)))
    return _section("operators", "Operators", shown)


def _section(anchor: str, title: str, shown: list[str]) -> str:
    return headed(anchor, title, "".join(shown) or absent("No trace window holds this."))


def _of_window(report: Report, window: WindowFacts, shown: str) -> str:
    """A window's part under its steps, which need no title if there is one window only."""
    title = f"<h3>Steps {escape(tables.window_steps(window))}</h3>\n" if len(report.windows) > 1 else ""
    return f"{title}{shown}"


def _window(window: WindowFacts) -> str:
    found = window.analysis
    title = f"<h3>Steps {escape(tables.window_steps(window))}</h3>\n"
    if found is None:
        shown = unfolded_on_click([tables.operator_table(window), tables.kernel_table(window)])
        return title + opening_html(window.file) + shown if window.file or shown else ""
    idle, roof, memory = idle_html(found), roofline_html(found), memory_html(found)
    folded = [
        table
        for entry in CATALOGUE
        if (entry.shown or entry.name in _OF_WINDOWS) and entry.name not in _OF_OPERATORS
        for table in entry.tables(found)
    ]
    return "".join(
        (
            title,
            listed(device_sentences(found)),
            opening_html(window.file),
            f"<h4>Busy and idle</h4>\n{idle}" if idle else "",
            f"<h4>Memory</h4>\n{memory}" if memory else "",
            unfolded_on_click(folded),
            f"<details>\n<summary>Roofline as a figure</summary>\n{roof}</details>\n" if roof else "",
        )
    )
