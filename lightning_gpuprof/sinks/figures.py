"""A Report's curves flow in, the numbers of a figure flow out; the page's own script draws them with Plotly."""

from __future__ import annotations

import math

import msgspec

from lightning_gpuprof.model.phases import PHASES, Phase
from lightning_gpuprof.model.report import Report

MAX_POINTS = 6000
"""Steps that a page's figure holds: with all phases about half a megabyte."""


class PhaseCurve(msgspec.Struct, kw_only=True, frozen=True):
    """Time of one phase in each step, ms."""

    phase: Phase
    ms: list[float | None]


class StepFigure(msgspec.Struct, kw_only=True, frozen=True):
    """Step time over steps, stacked by phase; all lists have one length."""

    batch: list[int]
    """``total_batch_idx`` of each step."""
    period_ms: list[float | None]
    phases: list[PhaseCurve]
    """Phases that took time in any step, in the order in which they are stacked."""


def step_figure(report: Report, limit: int = MAX_POINTS) -> StepFigure | None:
    """Curves of the step time.

    Args:
        report: The report; only series of known phases are used.
        limit: Most steps that come back; of more, the longest of each stretch stays.

    Returns:
        The figure, or None if the report has no curves of one length.
    """
    batch = report.series.get("batch", [])
    period = report.series.get("period_ms", [])
    if not batch or len(period) != len(batch):
        return None
    chosen = _thinned(period, limit)
    curves = []
    for phase in PHASES:
        values = report.series.get(f"{phase}_ms", [])
        if len(values) == len(batch) and any(values):
            curves.append(PhaseCurve(phase=phase, ms=[_rounded(values[i]) for i in chosen]))
    return StepFigure(
        batch=[int(batch[i]) for i in chosen], period_ms=[_rounded(period[i]) for i in chosen], phases=curves
    )


def _thinned(period: list[float], limit: int) -> list[int]:
    """Indices of the steps to draw: all, or the longest of each stretch."""
    if len(period) <= limit:
        return list(range(len(period)))
    stretch = math.ceil(len(period) / limit)
    starts = range(0, len(period), stretch)
    return [max(range(a, min(a + stretch, len(period))), key=period.__getitem__) for a in starts]


def _rounded(value: float) -> float | None:
    """Four significant digits: more cannot be seen and would double the page."""
    return float(f"{value:.4g}") if math.isfinite(value) else None
