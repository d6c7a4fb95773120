"""A report's numbers for node_exporter's textfile collector, in the text format of the Prometheus client (optional)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from lightning_gpuprof.errors import ReportError
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks.files import write_whole
from lightning_gpuprof.sinks.first_screen import reliability
from lightning_gpuprof.sinks.gains import scale_of

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_STATISTICS = ("mean", "median", "p95", "p99", "max")
_INFO = {"model": "model.class", "host": "host", "script": "script", "status": "status"}

_Rows: TypeAlias = Iterable[tuple[dict[str, str], float | None]]
"""Labels beside those of the run, and a value; None: not measured."""


def encode(report: Report) -> bytes:
    """A report in Prometheus' text format: gauges, with times of the run in seconds.

    Args:
        report: The report.

    Returns:
        UTF-8. What was not measured has no line.

    Raises:
        ReportError: The Prometheus client is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.core import GaugeMetricFamily
        from prometheus_client.registry import Collector
    except ImportError as error:
        raise ReportError("Prometheus text needs its client: pip install prometheus-client") from error
    run = {"run": str(report.run.get("run_id", "")), "rank": str(report.run.get("rank", 0))}

    class _Numbers(Collector):
        def collect(self) -> Iterator[Metric]:
            for name, text, rows in _numbers(report):
                measured = [(labels, value) for labels, value in rows if value is not None and math.isfinite(value)]
                if measured:
                    family = GaugeMetricFamily(f"gpuprof_{name}", text, labels=[*run, *measured[0][0]])
                    for labels, value in measured:
                        family.add_metric([*run.values(), *labels.values()], value)
                    yield family

    registry = CollectorRegistry()
    registry.register(_Numbers())
    return generate_latest(registry)


def write(report: Report, target: Path) -> None:
    """Write the file whole or not at all: the collector reads it at any time.

    Args:
        report: The report.
        target: The file; the collector takes names that end with ``.prom``.

    Raises:
        ReportError: The file cannot be written, or the Prometheus client is not installed.
    """
    write_whole(target, encode(report))


def _numbers(report: Report) -> Iterator[tuple[str, str, _Rows]]:
    """Name, help text and rows of each gauge; all rows of one have the same labels."""
    steps, times = report.steps, report.steps.period_ms
    info = {label: str(report.run.get(name, "")) for label, name in _INFO.items()}
    yield "run_info", "What ran, and how it ended.", [(info, 1.0)]
    yield "reliable", "1: the numbers can be relied on.", [({}, reliability(report).kind == "ok")]
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
        [({"phase": row.phase}, _seconds(row.median_ms)) for row in report.phases],
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


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1e3
