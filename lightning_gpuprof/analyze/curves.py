"""Curves of a journal's samples over the steps, of bounded length."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np

from lightning_gpuprof.analyze.during_steps import StepTime
from lightning_gpuprof.analyze.journal_columns import Ints, Journal
from lightning_gpuprof.analyze.statistics import Floats
from lightning_gpuprof.model.curves import Curve, CurveSource
from lightning_gpuprof.model.memory import MEMORY_PHASES

MAX_POINTS = 300
"""Of each curve: a figure is some 1,000 pixels wide, and the whole of them stays below half a megabyte."""
MAX_GPUS = 8

_OF_GPU = (
    "utilization_ratio",
    "sm_active_ratio",
    "memory_used_bytes",
    "power_w",
    "temperature_c",
    "fan_ratio",
    "sm_clock_mhz",
    "memory_clock_mhz",
)
_OF_PROCESS = ("cpu_cpus", "rss_bytes", "read_bytes_per_s", "write_bytes_per_s")
_OF_HOST: dict[str, tuple[str, ...]] = {
    "process": _OF_PROCESS,
    "workers": _OF_PROCESS,
    "host": ("cpu_busy_ratio", "memory_available_bytes"),
}
_OF_ALLOCATOR = ("allocated_bytes", "reserved_bytes")


def curves(journal: Journal) -> tuple[Curve, ...]:
    """What was sampled of GPUs, host and allocator, over the whole run.

    Values that were never read have no curve, nor do workers where there are none.
    """
    found: dict[tuple[CurveSource, str, str], list[tuple[int, float]]] = defaultdict(list)
    for sample in journal.samples:
        source, subject, names = _place(sample.source, sample.subject)
        if source is None:
            continue
        for name in names:
            value = sample.values.get(name)
            if value is not None:
                found[source, subject, name].append((sample.t_ns, value))
    if not found:
        return ()
    gpus = sorted({subject for source, subject, _ in found if source == "nvml"}, key=lambda name: (len(name), name))
    left_out = set(gpus[MAX_GPUS:])
    places = StepTime(journal)
    return tuple(
        _curve(journal, places, source, subject, name, points)
        for (source, subject, name), points in sorted(found.items(), key=lambda item: _order(*item[0]))
        if subject not in left_out and not (subject == "workers" and not any(value for _, value in points))
    )


def _place(source: str, subject: str) -> tuple[CurveSource | None, str, tuple[str, ...]]:
    """Whose curves a sample belongs to, and which of its values have one."""
    if source == "nvml":
        return "nvml", subject, _OF_GPU
    if source == "host":
        return "host", subject, _OF_HOST.get(subject, ())
    device, _, phase = subject.rpartition(" ")
    if source == "memory" and phase in MEMORY_PHASES:
        return "memory", device, _OF_ALLOCATOR
    return None, "", ()


def _order(source: CurveSource, subject: str, name: str) -> tuple[int, int, str, int]:
    names = (*_OF_GPU, *_OF_PROCESS, *_OF_HOST["host"], *_OF_ALLOCATOR)
    return ("nvml", "host", "memory").index(source), len(subject), subject, names.index(name)


def _curve(
    journal: Journal, places: StepTime, source: CurveSource, subject: str, name: str, points: list[tuple[int, float]]
) -> Curve:
    points.sort()
    times, values = np.array([t for t, _ in points], np.int64), np.array([v for _, v in points], np.float64)
    chosen = extremes(values, MAX_POINTS)
    times, values = times[chosen], values[chosen]
    return Curve(
        source=source,
        subject=subject,
        name=name,
        t_s=[round(float(t), 3) for t in (times - journal.header.start_ns) / 1e9],
        batch=[round(float(b), 2) for b in places.batches(times)],
        values=[float(f"{v:.5g}") for v in values],
    )


def extremes(values: Floats, limit: int) -> Ints:
    """Indices of at most ``limit`` values: all, or the least and the largest of each stretch.

    Args:
        values: Shape (n,).
        limit: At least 2.

    Returns:
        Shape (m,), ascending, each index once.
    """
    n = len(values)
    if n <= limit:
        return np.arange(n)
    edges = np.linspace(0, n, limit // 2 + 1).astype(np.int64)
    stretches = list(itertools.pairwise(edges))
    least = [a + int(np.argmin(values[a:b])) for a, b in stretches]
    most = [a + int(np.argmax(values[a:b])) for a, b in stretches]
    return np.unique(np.array(least + most, np.int64))
