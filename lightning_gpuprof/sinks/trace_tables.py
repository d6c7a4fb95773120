"""All tables of a trace, under the names by which they can be asked for (:mod:`.trace_table_names`)."""

import sys
from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from typing import Any

import msgspec

from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.model.trace.communication import Communication
from lightning_gpuprof.sinks.tables import Table
from lightning_gpuprof.sinks.window_tables import (
    api_tables,
    attribution,
    by_step,
    communication,
    events,
    health,
    idle,
    kernels,
    memory,
    operators,
    roofline,
    step_trace,
    streams,
    sync_points,
    timeline,
)

LONG = 30
"""Rows of a table in which a reader can look for a name."""


def _whole(result: object) -> Iterable[object]:
    return (result,)


class Entry(msgspec.Struct, frozen=True):
    """Tables that belong together."""

    name: str
    """As users ask for it; those of Nsight Systems where it has the table."""
    chapter: str
    analysis: str
    """The field of :class:`TraceAnalysis` that they show."""
    make: tuple[Callable[..., Table | Iterable[Table]], ...]
    """They make the tables of it, or of each of its parts."""
    parts: Callable[[Any], Iterable[object]] = _whole
    """What of the analysis has tables of its own."""
    shown: bool = False
    """Whether it is part of what is printed without being asked for."""
    limited: bool = False
    """Whether the functions take a limit of rows."""
    lengthened: bool = False
    """The same, and on a page the limit is :data:`LONG`."""

    def tables(self, analysis: TraceAnalysis) -> list[Table]:
        """The tables, none if their analysis failed."""
        return self._made(analysis)

    def long_tables(self, analysis: TraceAnalysis) -> list[Table]:
        """The same for a page, where a reader looks for rows."""
        return self._made(analysis, LONG) if self.lengthened else self._made(analysis)

    def whole_tables(self, analysis: TraceAnalysis) -> list[Table]:
        """The same with all rows that a limit leaves out."""
        return self._made(analysis, sys.maxsize) if self.limited or self.lengthened else self._made(analysis)

    def _made(self, analysis: TraceAnalysis, *limit: int) -> list[Table]:
        result = getattr(analysis, self.analysis)
        made = [make(part, *limit) for part in (() if result is None else self.parts(result)) for make in self.make]
        return [table for one in made for table in ((one,) if isinstance(one, Table) else one)]


def _with_collectives(found: Communication) -> Iterable[object]:
    return (found,) if any(device.collectives for device in found.devices) else ()


_devices = attrgetter("devices")
_HEALTH, _IDLE, _CODE, _NSYS = "Health of the trace", "Idle time", "Device time by code", "As Nsight Systems prints it"

CATALOGUE: tuple[Entry, ...] = (
    Entry("timeline", "Timeline", "timeline", (timeline.timeline_table,)),
    Entry("events", "Timeline", "events", (events.event_table,)),
    Entry("health", _HEALTH, "health", (health.problem_table, health.health_table)),
    Entry("signals", _HEALTH, "health", (health.signal_table,)),
    Entry("launches", _HEALTH, "health", (health.launch_call_table, health.category_table)),
    Entry("steps", "Steps", "step_trace", (step_trace.step_phase_table,), shown=True),
    Entry("steps_each", "Steps", "step_trace", (step_trace.step_host_table, step_trace.step_device_table)),
    Entry("idle", _IDLE, "idle", (idle.cause_table,), parts=_devices, shown=True),
    Entry("idle_parts", _IDLE, "idle", (idle.chunk_table,), parts=_devices),
    Entry(
        "idle_gaps",
        _IDLE,
        "idle",
        (idle.host_table, idle.step_table, idle.longest_table, idle.neighbour_table),
        parts=_devices,
    ),
    Entry("sync_points", _IDLE, "sync_points", (sync_points.sync_site_table, sync_points.sync_total_table), shown=True),
    Entry("streams", "Streams", "streams", (streams.stream_tables,)),
    Entry("lines", _CODE, "attribution", (attribution.line_table,), shown=True, limited=True),
    Entry("modules", _CODE, "attribution", (attribution.module_table,), shown=True, limited=True),
    Entry("attribution", _CODE, "attribution", (attribution.attributed_table, attribution.phase_device_table)),
    Entry("operators", "Operators", "operators", (operators.operators_by_time,), shown=True, lengthened=True),
    Entry(
        "operator_types",
        "Operators",
        "operators",
        (operators.operator_types_by_device_time, operators.operator_types_by_host_time),
    ),
    Entry(
        "operator_details",
        "Operators",
        "operators",
        (operators.host_time_beside_device, operators.operators_by_shape),
        lengthened=True,
    ),
    Entry("operator_steps", "Operators", "by_step", (by_step.operator_step_table,), limited=True),
    Entry("memory", "Memory", "memory", (memory.peak_table, memory.operator_table), parts=_devices, lengthened=True),
    Entry("memory_modules", "Memory", "memory", (memory.module_table,), parts=_devices, limited=True),
    Entry("memory_lines", "Memory", "memory", (memory.line_table,), parts=_devices, lengthened=True),
    Entry("memory_pieces", "Memory", "memory", (memory.piece_table,), parts=_devices, lengthened=True),
    Entry("kernel_classes", "Kernels", "kernels", (kernels.class_table,), shown=True),
    Entry("kernels", "Kernels", "kernels", (kernels.kernel_table,), shown=True, lengthened=True),
    Entry("kernel_steps", "Kernels", "by_step", (by_step.kernel_step_table,), limited=True),
    Entry("kernel_activity", "Kernels", "kernels", (kernels.activity_table, kernels.origin_table)),
    Entry(
        "kernel_use",
        "Kernels",
        "kernels",
        (
            kernels.dtype_table,
            kernels.tensor_core_table,
            kernels.fill_table,
            kernels.duration_table,
            kernels.small_kernel_table,
        ),
    ),
    Entry("savings", "Kernels", "kernels", (kernels.saving_table, kernels.no_saving_table), limited=True),
    *(
        # what the combined one has, others have whole
        Entry(table, _NSYS, "api_tables", (partial(api_tables.nsys_table, table),), lengthened="_api_gpu_" not in table)
        for table in api_tables.NSYS_TABLES
    ),
    Entry("launch_latency", _NSYS, "api_tables", (api_tables.launch_table,)),
    Entry("roofline", "Roofline", "roofline", (roofline.flops_table, roofline.roofline_table), limited=True),
    Entry(
        "communication",
        "Communication",
        "communication",
        (communication.device_communication_table, communication.collective_kind_table),
        parts=_with_collectives,
        shown=True,
    ),
    Entry(
        "collectives",
        "Communication",
        "communication",
        (
            communication.collective_size_table,
            communication.communication_stream_table,
            communication.communication_note_table,
        ),
    ),
)
