"""All tables of a trace, under the names by which they can be asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.model.trace.api_tables import ApiTables
from lightning_gpuprof.sinks.tables import Table
from lightning_gpuprof.sinks.window_tables import (
    api_tables,
    attribution,
    communication,
    health,
    idle,
    kernel_savings,
    kernels,
    operators,
    roofline,
    step_trace,
    streams,
    sync_points,
    timeline,
)

LONG = 30
"""Rows of a table in which a reader can look for a name."""

MakeTables = Callable[[TraceAnalysis], Iterable[Table]]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Tables that belong together."""

    name: str
    """As users ask for it; those of Nsight Systems where it has the table."""
    chapter: str
    make: MakeTables
    shown: bool = False
    """Whether it is part of what is printed without being asked for."""
    make_long: MakeTables | None = None
    """The same with up to :data:`LONG` rows."""

    def tables(self, analysis: TraceAnalysis) -> list[Table]:
        """The tables, none if their analysis failed."""
        return list(self.make(analysis))

    def long_tables(self, analysis: TraceAnalysis) -> list[Table]:
        """The same for a page on which rows can be looked for."""
        return list((self.make_long or self.make)(analysis))


def _entries() -> Iterable[Entry]:
    health_, steps, idle_ = "Health of the trace", "Steps", "Idle time"
    yield Entry(name="timeline", chapter="Timeline", make=lambda a: _tables_of(a.timeline, timeline.timeline_table))
    yield Entry(
        name="health", chapter=health_, make=lambda a: _tables_of(a.health, health.problem_table, health.health_table)
    )
    yield Entry(name="signals", chapter=health_, make=lambda a: _tables_of(a.health, health.signal_table))
    yield Entry(
        name="launches",
        chapter=health_,
        make=lambda a: _tables_of(a.health, health.launch_call_table, health.category_table),
    )
    yield Entry(
        name="steps", chapter=steps, shown=True, make=lambda a: _tables_of(a.step_trace, step_trace.step_phase_table)
    )
    yield Entry(
        name="steps_each",
        chapter=steps,
        make=lambda a: _tables_of(a.step_trace, step_trace.step_host_table, step_trace.step_device_table),
    )
    yield Entry(name="idle", chapter=idle_, shown=True, make=_idle_causes)
    yield Entry(name="idle_gaps", chapter=idle_, make=_idle_gaps)
    yield Entry(
        name="sync_points",
        chapter=idle_,
        shown=True,
        make=lambda a: _tables_of(a.sync_points, sync_points.sync_site_table, sync_points.sync_total_table),
    )
    yield Entry(
        name="streams",
        chapter="Streams",
        make=lambda a: () if a.streams is None else streams.stream_tables(a.streams),
    )
    code = "Device time by code"
    yield Entry(
        name="lines", chapter=code, shown=True, make=lambda a: _tables_of(a.attribution, attribution.line_table)
    )
    yield Entry(
        name="attribution",
        chapter=code,
        make=lambda a: _tables_of(
            a.attribution, attribution.attributed_table, attribution.module_table, attribution.phase_device_table
        ),
    )
    ops = "Operators"
    yield Entry(
        name="operators",
        chapter=ops,
        shown=True,
        make=_operators,
        make_long=partial(_operators, limit=LONG),
    )
    yield Entry(
        name="operator_types",
        chapter=ops,
        make=lambda a: _tables_of(
            a.operators, operators.operator_types_by_device_time, operators.operator_types_by_host_time
        ),
    )
    yield Entry(
        name="operator_details",
        chapter=ops,
        make=_operator_details,
        make_long=partial(_operator_details, limit=LONG),
    )
    kernel = "Kernels"
    yield Entry(
        name="kernel_classes",
        chapter=kernel,
        shown=True,
        make=lambda a: _tables_of(a.kernels, kernels.class_table),
    )
    yield Entry(
        name="kernels",
        chapter=kernel,
        shown=True,
        make=lambda a: _tables_of(a.kernels, kernels.kernel_table),
        make_long=lambda a: _tables_of(a.kernels, partial(kernels.kernel_table, limit=LONG)),
    )
    yield Entry(
        name="kernel_activity",
        chapter=kernel,
        make=lambda a: _tables_of(a.kernels, kernels.activity_table),
    )
    yield Entry(
        name="kernel_use",
        chapter=kernel,
        make=lambda a: _tables_of(
            a.kernels,
            kernels.dtype_table,
            kernels.tensor_core_table,
            kernels.fill_table,
            kernel_savings.duration_table,
            kernel_savings.small_kernel_table,
        ),
    )
    yield Entry(
        name="savings",
        chapter=kernel,
        make=lambda a: _tables_of(a.kernels, kernel_savings.saving_table, kernel_savings.no_saving_table),
    )
    nsys = "As Nsight Systems prints it"
    for table in (
        api_tables.cuda_api_sum,
        api_tables.cuda_gpu_kern_sum,
        api_tables.cuda_gpu_kern_gb_sum,
        api_tables.cuda_gpu_mem_time_sum,
        api_tables.cuda_gpu_mem_size_sum,
        api_tables.cuda_kern_exec_sum,
    ):
        long = partial(_api_tables_of, partial(table, limit=LONG))
        yield Entry(name=table.__name__, chapter=nsys, make=partial(_api_tables_of, table), make_long=long)
    yield Entry(name="launch_latency", chapter=nsys, make=lambda a: _tables_of(a.api_tables, api_tables.launch_table))
    yield Entry(
        name="roofline",
        chapter="Roofline",
        make=lambda a: _tables_of(a.roofline, roofline.flops_table, roofline.roofline_table),
    )
    comm = "Communication"
    yield Entry(
        name="communication",
        chapter=comm,
        shown=True,
        make=lambda a: _tables_of(
            a.communication if a.communication and any(d.collectives for d in a.communication.devices) else None,
            communication.device_communication_table,
            communication.collective_kind_table,
        ),
    )
    yield Entry(
        name="collectives",
        chapter=comm,
        make=lambda a: _tables_of(
            a.communication,
            communication.collective_size_table,
            communication.communication_stream_table,
            communication.communication_note_table,
        ),
    )


def _tables_of(result: object, *tables: Callable[..., Table]) -> Iterable[Table]:
    return () if result is None else (table(result) for table in tables)


def _api_tables_of(table: Callable[[ApiTables], Table], analysis: TraceAnalysis) -> Iterable[Table]:
    return _tables_of(analysis.api_tables, table)


def _operators(analysis: TraceAnalysis, limit: int = operators.TOP) -> Iterable[Table]:
    found = analysis.operators
    on_device = found is not None and found.device_us is not None
    table = operators.operators_by_device_time if on_device else operators.operators_by_host_time
    return _tables_of(found, partial(table, limit=limit))


def _operator_details(analysis: TraceAnalysis, limit: int = operators.TOP) -> Iterable[Table]:
    """By host time only where the operators are not already told by it."""
    found = analysis.operators
    on_device = found is not None and found.device_us is not None
    tables = (operators.operators_by_host_time, operators.operators_by_shape)
    return _tables_of(found, *(partial(table, limit=limit) for table in (tables if on_device else tables[1:])))


def _idle_causes(analysis: TraceAnalysis) -> Iterable[Table]:
    return () if analysis.idle is None else (idle.cause_table(device) for device in analysis.idle.devices)


def _idle_gaps(analysis: TraceAnalysis) -> Iterable[Table]:
    for device in () if analysis.idle is None else analysis.idle.devices:
        yield idle.host_table(device)
        yield idle.step_table(device)
        yield idle.longest_table(device)
        yield idle.neighbour_table(device)


CATALOGUE: tuple[Entry, ...] = tuple(_entries())
NAMES: tuple[str, ...] = tuple(entry.name for entry in CATALOGUE)
