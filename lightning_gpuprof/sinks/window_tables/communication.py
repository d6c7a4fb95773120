"""The communication tables of a trace."""

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.trace.communication import CollectiveTimes, Communication
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import (
    COUNT,
    FIGURE,
    GB_PER_S,
    PERCENT,
    SIZE,
    US_AS_MS,
    Column,
    Table,
    bar,
    name,
    sentence_table,
)

NO_COLLECTIVE = "No kernel of NCCL or RCCL is in the trace."

_EXPOSED = "not covered by computation on the device"
_BUS = "bus bandwidth as nccl-tests defines it; waiting for late ranks lowers it"


def device_communication_table(communication: Communication) -> Table:
    """Communication, computation and copies of each device."""
    return Table.of(
        "Communication and computation",
        communication.devices,
        Column("device", lambda one: one.device, name(16)),
        Column(
            "communication", lambda one: one.communication_us, US_AS_MS, help="union of the kernels of NCCL and RCCL"
        ),
        Column("computation", lambda one: one.computation_us, US_AS_MS, help="union of all other kernels"),
        Column("both", lambda one: one.overlap_us, US_AS_MS, help="while both ran"),
        Column("exposed", lambda one: one.exposed_us, US_AS_MS, help="what no computation of the device covers"),
        Column("of window", lambda one: one.exposed_ratio, PERCENT, help="exposed communication"),
        Column("copies", lambda one: one.copy_us, US_AS_MS, help="union of copies and memsets"),
        Column("exposed", lambda one: one.copy_exposed_us, US_AS_MS, help="of the copies: what no computation covers"),
        absent="The trace holds no device work.",
    )


def collective_kind_table(communication: Communication) -> Table:
    """Collectives by kind."""
    return Table.of(
        "Collectives",
        communication.kinds,
        Column("collective", lambda one: one.kind),
        bar(lambda one: one.share_ratio),
        Column("count", lambda one: one.count, COUNT),
        Column("total", lambda one: one.total_us, US_AS_MS, help="sum of durations, waiting for late ranks included"),
        Column("mean", lambda one: one.mean_us, US_AS_MS),
        Column("exposed", lambda one: one.exposed_us, US_AS_MS, help=_EXPOSED),
        Column("data", lambda one: one.total_bytes, SIZE, help="sum of the known sizes"),
        Column("bus", lambda one: one.bus_bandwidth_bytes_per_s, GB_PER_S, help=_BUS),
        Column(
            "best bus",
            lambda one: one.best_bus_bandwidth_bytes_per_s,
            GB_PER_S,
            help="of the fastest one: closest to the links' limit",
        ),
        absent=NO_COLLECTIVE,
    )


def collective_size_table(communication: Communication) -> Table:
    """Collectives by kind, size, type and group."""
    left_out = f" ({communication.sizes_left_out} more)" if communication.sizes_left_out else ""
    return Table.of(
        f"Collectives by size{left_out}",
        communication.sizes,
        Column("collective", lambda one: one.kind),
        Column("size", lambda one: one.message_bytes, SIZE, help="of one, counted as nccl-tests counts"),
        Column("type", lambda one: one.dtype, name(12)),
        Column("group", _group, help="name of the process group and its ranks"),
        Column("count", lambda one: one.count, COUNT),
        Column("mean", lambda one: one.mean_us, US_AS_MS),
        Column("min", lambda one: one.min_us, US_AS_MS),
        Column("max", lambda one: one.max_us, US_AS_MS),
        Column(
            "exposed",
            lambda one: one.exposed_us / one.total_us if one.total_us > 0 else None,
            PERCENT,
            help=f"share of the durations {_EXPOSED}",
        ),
        Column("bus", lambda one: one.bus_bandwidth_bytes_per_s, GB_PER_S, help=_BUS),
        absent=NO_COLLECTIVE,
    )


def communication_stream_table(communication: Communication) -> Table:
    """Streams on which communication ran."""
    return Table.of(
        "Streams with communication",
        communication.streams,
        Column("device", lambda one: one.device, name(16)),
        Column("stream", lambda one: one.stream, FIGURE),
        Column("collectives", lambda one: one.collectives, COUNT),
        Column("communication", lambda one: one.communication_us, US_AS_MS, help="union of the stream's"),
        Column("exposed", lambda one: one.exposed_us, US_AS_MS, help="what no computation of the device covers"),
        Column(
            "computation",
            lambda one: one.computation_us,
            US_AS_MS,
            help="on the same stream, where they wait for each other",
        ),
        absent=NO_COLLECTIVE,
    )


def communication_note_table(communication: Communication) -> Table:
    """What is not known of the communication."""
    absent = "Everything is known of each collective." if communication.kinds else NO_COLLECTIVE
    return sentence_table("Notes on communication", communication.notes, absent)


def _group(one: CollectiveTimes) -> str:
    name = "" if one.group is None else plain.name(one.group, 12)
    if one.group_size is None:
        return name or numbers.ABSENT
    return f"{name} of {one.group_size}".strip()
