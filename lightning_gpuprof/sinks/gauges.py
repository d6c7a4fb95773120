"""A report's numbers as gauges with labels, for the systems that watch clusters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks.first_screen import reliability
from lightning_gpuprof.sinks.gains import scale_of

_STATISTICS = ("mean", "median", "p95", "p99", "max")
_INFO = {"model": "model.class", "host": "host", "script": "script", "status": "status"}

_Rows: TypeAlias = Iterable[tuple[dict[str, str], float | None]]
"""Labels beside those of the run, and a value; None: not measured."""


class Gauge(msgspec.Struct, frozen=True):
    """A number of a run, or one for each of its parts."""

    name: str
    """With its unit, ``gpuprof_`` before it."""
    text: str
    """What it is, as a sentence."""
    rows: list[tuple[dict[str, str], float]]
    """Labels and value; all rows have the same labels, at least one row is there."""


def labels_of_run(report: Report) -> dict[str, str]:
    """What tells the numbers of this run from those of others."""
    return {"run": str(report.run.get("run_id", "")), "rank": str(report.run.get("rank", 0))}


def gauges(report: Report) -> Iterator[Gauge]:
    """What was measured, times of the run in seconds."""
    for name, text, rows in _numbers(report):
        measured = [(labels, float(value)) for labels, value in rows if value is not None and math.isfinite(value)]
        if measured:
            yield Gauge(f"gpuprof_{name}", text, measured)


def _numbers(report: Report) -> Iterator[tuple[str, str, _Rows]]:
    """Name, help text and rows of each gauge; all rows of one have the same labels."""
    steps, times = report.steps, report.steps.period_ms
    info = {label: str(report.run.get(name, "")) for label, name in _INFO.items()}
    known = reliability(report)
    yield "run_info", "What ran, and how it ended.", [(info, 1.0)]
    yield "reliable", "1: the numbers can be relied on.", [({"kind": known.kind}, known.kind == "ok")]
    yield "verdict_info", "What limits the run.", [({"kind": report.verdict.kind}, 1.0)]
    yield "steps", "Steps of the run.", [({}, steps.count)]
    yield "samples_per_second", "Samples over the mean step time.", [({}, steps.samples_per_s)]
    yield (
        "step_time_seconds",
        "Time from the start of a steady step to that of the next.",
        [({"statistic": one}, getattr(times, one) / 1e3) for one in _STATISTICS if times is not None],
    )
    yield (
        "phase_seconds",
        "Median time of a phase in a steady step.",
        [({"phase": row.phase}, row.median_ms and row.median_ms / 1e3) for row in report.phases],
    )
    yield "wall_seconds", "Wall time by its parts.", [({"part": part}, s) for part, s in report.wall.parts.items()]
    yield (
        "finding_max_speedup_ratio",
        "By how much a fix can speed up the step (of=step), or the run without setup and teardown (of=run), at best.",
        [
            (
                {"rule": one.rule, "subject": one.subject, "severity": one.severity, "of": scale_of(one.explains)},
                one.most_speedup,
            )
            for one in report.findings
        ],
    )
    for name in sorted({name for device in report.devices for name in device.values}):
        labelled = (
            ({"gpu": gpu.subject, "uuid": gpu.uuid, "name": gpu.name}, gpu.median(name)) for gpu in report.devices
        )
        yield f"gpu_{name}", f"Median of {name} during training.", labelled
