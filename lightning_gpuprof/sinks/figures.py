"""The data of the figures of steps and phases; the page's own script draws them."""

import math

import msgspec

from lightning_gpuprof.model.curves import MarkKind
from lightning_gpuprof.model.phases import PHASES, Phase, words_of
from lightning_gpuprof.model.report import Report

MAX_POINTS = 6000
"""Steps that a page's figure holds: with all phases about half a megabyte."""
LONGEST = 100
"""So many of the longest steps of a run are drawn whatever lies near them."""


class PhaseCurve(msgspec.Struct, kw_only=True, frozen=True):
    """Time of one phase in each step, ms."""

    phase: Phase
    words: str
    """What people call it."""
    ms: list[float | None]


class MarkRow(msgspec.Struct, kw_only=True, frozen=True):
    """Events during the steps, of one kind; all lists have one length."""

    kind: MarkKind
    first: list[int]
    """``total_batch_idx`` at which each begins."""
    last: list[int]
    ms: list[float | None]


class StepFigure(msgspec.Struct, kw_only=True, frozen=True):
    """Step time over steps, stacked by phase; all lists have one length."""

    batch: list[int]
    """``total_batch_idx`` of each step."""
    period_ms: list[float | None]
    phases: list[PhaseCurve]
    """Phases that took time in any step, in the order in which they are stacked."""
    t_s: list[float] | None = None
    """When each step began, seconds since the stage was entered; None: not known."""
    marks: list[MarkRow] = []


def step_figure(report: Report) -> StepFigure | None:
    """Curves of the step time; None if the report has none of one length."""
    batch = report.series.get("batch", [])
    period = report.series.get("period_ms", [])
    if not batch or len(period) != len(batch):
        return None
    chosen = _thinned(period, MAX_POINTS)
    curves = []
    for phase in PHASES:
        values = report.series.get(f"{phase}_ms", [])
        if len(values) == len(batch) and any(values):
            curves.append(PhaseCurve(phase=phase, words=words_of(phase), ms=[_rounded(values[i]) for i in chosen]))
    began = report.series.get("t_s", [])
    known = len(began) == len(batch) and all(map(math.isfinite, began))
    return StepFigure(
        batch=[int(batch[i]) for i in chosen],
        period_ms=[_rounded(period[i]) for i in chosen],
        phases=curves,
        t_s=[round(began[i], 3) for i in chosen] if known else None,
        marks=[
            MarkRow(
                kind=found.kind,
                first=[mark.from_batch for mark in found.marks],
                last=[mark.to_batch for mark in found.marks],
                ms=[None if mark.ms is None else _rounded(mark.ms) for mark in found.marks],
            )
            for found in report.marks
        ],
    )


def _thinned(period: list[float], limit: int) -> list[int]:
    """Indices of the steps to draw: all, or the longest of each stretch and of the whole."""
    if len(period) <= limit:
        return list(range(len(period)))
    kept = min(LONGEST, limit // 4)
    length = [value if math.isfinite(value) else -1.0 for value in period]
    stretch = math.ceil(len(period) / (limit - kept))
    starts = range(0, len(period), stretch)
    chosen = {max(range(a, min(a + stretch, len(period))), key=length.__getitem__) for a in starts}
    chosen.update(sorted(range(len(period)), key=length.__getitem__)[-kept:] if kept else ())
    return sorted(chosen)


def _rounded(value: float) -> float | None:
    """Four significant digits: more cannot be seen and would double the page."""
    return float(f"{value:.4g}") if math.isfinite(value) else None


class PhaseSpread(msgspec.Struct, kw_only=True, frozen=True):
    """How one phase scatters over the steady, unprofiled steps, ms."""

    phase: Phase
    words: str
    """What people call it."""
    p05: float
    median: float
    p95: float


class SpreadFigure(msgspec.Struct, kw_only=True, frozen=True):
    """The phases that took any time, in the order of a step."""

    rows: list[PhaseSpread]


def spread_figure(report: Report) -> SpreadFigure | None:
    """Where 5 to 95 % of the steady steps lie, for each phase; None if that is not known of any."""
    rows = [
        PhaseSpread(phase=row.phase, words=words_of(row.phase), p05=row.p05_ms, median=row.median_ms, p95=row.p95_ms)
        for row in report.phases
        if row.p05_ms is not None and row.median_ms is not None and row.p95_ms is not None and row.p95_ms > 0
    ]
    return SpreadFigure(rows=rows) if rows else None
