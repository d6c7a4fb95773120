"""The timeline of a window's median step flows in, its figure and what it is of flow out."""

from __future__ import annotations

from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.sinks import numbers
from lightning_gpuprof.sinks.html_page import bdi, figure
from lightning_gpuprof.sinks.window_figures.timeline import timeline_figure
from lightning_gpuprof.sinks.window_tables.timeline import step_name, timeline_table


def timeline_html(analysis: TraceAnalysis) -> str:
    """The figure without its table; empty if there is nothing to draw."""
    found = analysis.timeline
    drawing = None if found is None else timeline_figure(found)
    if found is None or drawing is None:
        return ""
    title = timeline_table(found).title
    said = (
        f"{step_name(found)}; recorded with the profiler on, which makes the host's times longer. What is too short to "
        "be drawn is joined with what is beside it, and the paler the less of it is filled."
    )
    if found.left_out:
        said += f" {numbers.count(found.left_out)} more threads, streams or devices are left out."
    return f"<p>{bdi(said[0].upper() + said[1:])}</p>\n{figure('timeline', drawing, title)}"
