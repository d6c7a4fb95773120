"""A device's copies per step, and what pinned memory would reach."""

import math

from msgspec.structs import replace

from lightning_gpuprof.model.device_copies import LEAST_BYTES, CopiesWithin, CopyKind, DeviceCopies
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import MissingSignal, Unmeasured
from lightning_gpuprof.model.trace.analysis import TraceAnalysis

PINNED_BYTES_PER_S = 12e9
"""What copies of pinned memory reach at least: of the 15.75 GB/s of PCI Express 3.0 with 16 lanes, 12 arrive.
Heuristic."""

_REACHED_RATIO = 0.75
"""Of a link's rate that copies of pinned memory reach. Heuristic."""


def device_copies(metrics: Metrics, analysis: TraceAnalysis, steps: int) -> DeviceCopies | Unmeasured:
    """The copies of a window.

    Args:
        metrics: The run.
        analysis: Of its window.
        steps: Traced ones.

    Returns:
        Unmeasured: the copies of the window were not analysed, or several devices worked in it.
    """
    tables, streams = analysis.api_tables, analysis.streams
    if tables is None or streams is None:
        return Unmeasured(why="the copies of the trace window could not be analysed")
    if len(streams.devices) != 1:
        return Unmeasured(
            why=f"{len(streams.devices)} devices were busy in the trace window, and their copies cannot be separated"
        )
    (device,), sizes = streams.devices, {row.name: row for row in tables.cuda_gpu_mem_size_sum}
    kinds = []
    for row in tables.cuda_gpu_mem_time_sum:
        size = sizes.get(row.name)
        median = None if size is None else size.median_bytes
        kinds.append(
            CopyKind(
                name=row.name,
                count=row.count / steps,
                total_ms=row.total_us / 1e3 / steps,
                total_bytes=0.0 if size is None else (size.total_bytes or 0) / steps,
                median_bytes=math.inf if median is None else float(median),
            )
        )
    rate, source, most = _of_link(metrics)
    found = DeviceCopies(
        kinds=tuple(kinds),
        all_ms=device.copy_us / 1e3 / steps,
        all_exposed_ms=device.exposed_copy_us / 1e3 / steps,
        pinned_bytes_per_s=rate,
        pinned_source=source,
        pinned_most_bytes_per_s=most,
        within=_within(metrics, analysis, steps),
        place_to_host=_place_to_host(analysis),
    )
    try:
        pinned = found.of("HtoD", pageable=False)
    except MissingSignal:
        return found
    if pinned.total_bytes < LEAST_BYTES or pinned.bytes_per_s is None:
        return found
    return replace(
        found,
        pinned_bytes_per_s=pinned.bytes_per_s,
        pinned_source="pinned copies of the same window",
        pinned_most_bytes_per_s=max(pinned.bytes_per_s, most),
    )


def _within(metrics: Metrics, analysis: TraceAnalysis, steps: int) -> CopiesWithin | Unmeasured:
    operators = analysis.operators
    if operators is None or operators.device_us is None:
        return Unmeasured(why="the operators of the trace window could not be analysed")
    if operators.shapes is not None:
        copied = (row for row in operators.shapes if row.operator == "aten::copy_")
        rows = tuple(row for row in copied if row.dtype and "," not in row.dtype)  # of one type
        return CopiesWithin(ms=sum(row.device_self_us or 0.0 for row in rows) / 1e3 / steps, rows=rows)
    if "mixed" in str(metrics.condition("trainer.precision") or "mixed"):
        return Unmeasured(why="the window was recorded without shapes, so conversions of types look like copies")
    total_us = sum(row.device_self_us or 0.0 for row in operators.types if row.type == "copy_")
    return CopiesWithin(ms=total_us / 1e3 / steps, rows=())


def _place_to_host(analysis: TraceAnalysis) -> str:
    sites = analysis.sync_points.sites if analysis.sync_points is not None else ()
    copying = (site for site in sites if "DtoH" in (site.copy or ""))
    longest = max(copying, key=lambda site: site.blocked_us, default=None)
    if longest is None:
        return ""
    return longest.line.frame if longest.line is not None else longest.phase or ""


def _of_link(metrics: Metrics) -> tuple[float, str, float]:
    """What pinned copies reach over the link, where that is from, and what the link carries at most."""
    facts = metrics.devices[0].facts if len(metrics.devices) == 1 else None
    if facts is not None and (most := facts.pcie_bytes_per_s) is not None:
        link = f"PCI Express {facts.pcie_generation_max:.0f} x{facts.pcie_width_max:.0f}"
        return _REACHED_RATIO * most, f"three quarters of {link}", most
    return PINNED_BYTES_PER_S, "what PCI Express 3.0 x16 reaches", math.inf
