"""The roofline of a window flows in, its figure as a part of a page flows out."""

from __future__ import annotations

from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.sinks.html_page import figure
from lightning_gpuprof.sinks.window_figures.roofline import roofline_figure


def roofline_html(analysis: TraceAnalysis) -> str:
    """The figure; empty if no operator has an intensity."""
    drawing = None if analysis.roofline is None else roofline_figure(analysis.roofline)
    if drawing is None:
        return ""
    label = "Roofline: achieved rates under the ceilings of the device; all numbers are in the table"
    return figure("plotly", drawing, label)
