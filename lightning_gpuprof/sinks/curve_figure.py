"""The curves of a report as panels over one x axis, and a table of their extremes."""

import math
from collections.abc import Callable, Iterable, Sequence

import msgspec

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.curves import Curve
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import FIGURE, Column, Table

_SCALES: dict[str, tuple[str, float]] = {
    "_ratio": ("%", 100.0),
    "_bytes_per_s": ("MiB/s", 2.0**-20),
    "_bytes": ("GiB", 2.0**-30),
    "_cpus": ("CPUs", 1.0),
    "_mhz": ("MHz", 1.0),
    "_w": ("W", 1.0),
    "_c": ("°C", 1.0),
}
"""Unit in a panel and factor, by the end of a value's name; longer endings first."""


class _Panel(msgspec.Struct, frozen=True):
    title: str
    lines: tuple[tuple[str, str, str], ...]
    """Source, name of the value, and what is said after the subject."""
    subjects: tuple[str, ...] | None = None


_PANELS: tuple[_Panel, ...] = (
    _Panel("GPU utilization", (("nvml", "utilization_ratio", ""), ("nvml", "sm_active_ratio", "SMs active"))),
    _Panel(
        "GPU memory",
        (
            ("nvml", "memory_used_bytes", "used"),
            ("memory", "reserved_bytes", "reserved by torch"),
            ("memory", "allocated_bytes", "allocated by torch"),
        ),
    ),
    _Panel("GPU power", (("nvml", "power_w", ""),)),
    _Panel("GPU temperature", (("nvml", "temperature_c", ""),)),
    _Panel("GPU fan", (("nvml", "fan_ratio", ""),)),
    _Panel("GPU clocks", (("nvml", "sm_clock_mhz", "SM"), ("nvml", "memory_clock_mhz", "memory"))),
    _Panel("CPU time", (("host", "cpu_cpus", ""),), ("process", "workers")),
    _Panel("Utilization of the usable CPUs", (("host", "cpu_busy_ratio", ""),), ("host",)),
    _Panel("Resident memory", (("host", "rss_bytes", ""),), ("process", "workers")),
    _Panel("Free memory of the machine", (("host", "memory_available_bytes", ""),), ("host",)),
    _Panel(
        "Disk", (("host", "read_bytes_per_s", "read"), ("host", "write_bytes_per_s", "write")), ("process", "workers")
    ),
)


class Line(msgspec.Struct, kw_only=True, frozen=True):
    """One curve in the unit of its panel; all lists have one length."""

    name: str
    batch: list[float]
    t_s: list[float]
    values: list[float | None]


class Panel(msgspec.Struct, kw_only=True, frozen=True):
    """Curves of one unit."""

    title: str
    unit: str
    lines: list[Line]


class CurveFigure(msgspec.Struct, kw_only=True, frozen=True):
    """Panels from above to below; the x axis is theirs and that of the step time."""

    panels: list[Panel]
    limits: list[float]
    """First and last batch of the run."""
    limits_s: list[float]
    """Where the steps begin and end, seconds since the stage was entered."""


def curve_figure(report: Report) -> CurveFigure | None:
    """Panels that have any curve; None if nothing was sampled."""
    panels = []
    for panel in _PANELS:
        lines = [_line(curve, said) for curve, said in _matching(panel, report.curves)]
        if lines:
            unit, _ = _scale(panel.lines[0][1])
            panels.append(Panel(title=panel.title, unit=unit, lines=lines))
    if not panels:
        return None
    batches = [*report.series.get("batch", ()), *(b for p in panels for line in p.lines for b in line.batch)]
    times = [t for panel in panels for line in panel.lines for t in line.t_s]
    began = report.series.get("t_s") or times
    return CurveFigure(panels=panels, limits=[min(batches), max(batches)], limits_s=[min(began), max(*began, *times)])


def _matching(panel: _Panel, curves: Iterable[Curve]) -> Iterable[tuple[Curve, str]]:
    for curve in curves:
        for source, name, said in panel.lines:
            here = panel.subjects is None or curve.subject in panel.subjects
            if (curve.source, curve.name) == (source, name) and here and curve.values:
                yield curve, said


def _scale(name: str) -> tuple[str, float]:
    return next(found for ending, found in _SCALES.items() if name.endswith(ending))


def _line(curve: Curve, said: str) -> Line:
    factor = _scale(curve.name)[1]
    return Line(
        name=_name(curve, said),
        batch=curve.batch,
        t_s=curve.t_s,
        values=[float(f"{value * factor:.4g}") if math.isfinite(value) else None for value in curve.values],
    )


def _name(curve: Curve, said: str) -> str:
    subject = "machine" if curve.subject == "host" else plain.name(curve.subject, 40)
    return f"{subject} {said}".rstrip()


def curve_table(report: Report) -> Table:
    """The least and the largest value of each curve, for those who cannot see it."""
    shown = [
        (panel.title, curve, said, [value for value in curve.values if math.isfinite(value)])
        for panel in _PANELS
        for curve, said in _matching(panel, report.curves)
    ]

    def sample(title: str, of: Callable[[Sequence[float]], float]) -> Column[tuple[str, Curve, str, list[float]]]:
        return Column(title, lambda row: numbers.quantity(row[1].name, of(row[3])), FIGURE)

    return Table.of(
        "Range of each curve",
        [row for row in shown if row[3]],
        Column("curve", lambda row: row[0]),
        Column(
            "of",
            lambda row: _name(row[1], row[2]),
            help="a GPU, this process, its DataLoader workers together, or the machine",
        ),
        sample("first", lambda values: values[0]),
        sample("min", min),
        sample("max", max),
        sample("last", lambda values: values[-1]),
        absent="Nothing was sampled during the steps.",
    )
