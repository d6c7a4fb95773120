"""A Report flows in, named numbers for loggers flow out: only what was measured, with units in the names."""

from __future__ import annotations

import math
from collections.abc import Iterator

from lightning_gpuprof.model.report import Report

PREFIX = "gpuprof/final"


def final_scalars(report: Report) -> dict[str, float]:
    """The run's summary as scalars.

    Args:
        report: The report.

    Returns:
        Names ``gpuprof/final/...`` that end with their unit, and finite values. What was not measured has no name.
    """
    return {f"{PREFIX}/{name}": float(value) for name, value in _measured(report) if math.isfinite(value)}


def _measured(report: Report) -> Iterator[tuple[str, float]]:
    """A dozen names at most: what is wanted in a table of runs. Everything else is in the report."""
    yield "wall_s", report.wall.total_s
    yield "steady_steps_count", report.steps.steady_count
    yield "findings_count", len(report.findings)
    period = report.steps.period_ms
    if period is not None:
        yield "period_median_ms", period.median
        yield "period_p95_ms", period.p95
    if report.steps.samples_per_s is not None:
        yield "samples_per_s", report.steps.samples_per_s
    gains = [finding.gain.speedup_max for finding in report.findings if finding.gain is not None]
    if gains:
        yield "speedup_max_ratio", max(gains)
    cost = report.overhead.get("share_of_step_ratio")
    if cost is not None:
        yield "profiler_share_of_step_ratio", cost
