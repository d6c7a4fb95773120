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

NO_COLLECTIVE = "The trace has no NCCL or RCCL kernels."

_EXPOSED = "not covered by computation on the device"
_BUS = "bus bandwidth as nccl-tests defines it; waiting for late ranks lowers it"


def device_communication_table(communication: Communication) -> Table:
    """Communication, computation and copies of each device."""
    return Table.of(
        "Communication and computation",
        communication.devices,
        Column("device", lambda one: one.device, name(16)),
        Column(
            "communication",
            lambda one: one.communication_us,
            US_AS_MS,
            help="NCCL and RCCL kernels; overlaps count once",
        ),
        Column("computation", lambda one: one.computation_us, US_AS_MS, help="all other kernels; overlaps count once"),
        Column("overlap", lambda one: one.overlap_us, US_AS_MS, help="communication and computation at once"),
        Column("exposed", lambda one: one.exposed_us, US_AS_MS, help="communication not covered by computation"),
        Column("of window", lambda one: one.exposed_ratio, PERCENT, help="exposed communication, share of the window"),
        Column("copies", lambda one: one.copy_us, US_AS_MS, help="copies and memsets; overlaps count once"),
        Column("exposed copies", lambda one: one.copy_exposed_us, US_AS_MS, help="copies not covered by computation"),
        absent="The trace has no device activity.",
    )


def collective_kind_table(communication: Communication) -> Table:
    """Collectives by kind."""
    return Table.of(
        "Collectives",
        communication.kinds,
        Column("collective", lambda one: one.kind),
        bar(lambda one: one.share_ratio),
        Column("count", lambda one: one.count, COUNT),
        Column("total", lambda one: one.total_us, US_AS_MS, help="durations added up, waiting for late ranks included"),
        Column("mean", lambda one: one.mean_us, US_AS_MS),
        Column("exposed", lambda one: one.exposed_us, US_AS_MS, help=_EXPOSED),
        Column("data", lambda one: one.total_bytes, SIZE, help="sum of the known sizes"),
        Column("bus", lambda one: one.bus_bandwidth_bytes_per_s, GB_PER_S, help=_BUS),
        Column(
            "best bus",
            lambda one: one.best_bus_bandwidth_bytes_per_s,
            GB_PER_S,
            help="of the fastest collective: closest to the limit of the links",
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
        Column("size", lambda one: one.message_bytes, SIZE, help="per collective, as nccl-tests counts it"),
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
        Column("communication", lambda one: one.communication_us, US_AS_MS, help="of the stream; overlaps count once"),
        Column("exposed", lambda one: one.exposed_us, US_AS_MS, help="communication not covered by computation"),
        Column(
            "computation",
            lambda one: one.computation_us,
            US_AS_MS,
            help="on the same stream, so that the two cannot overlap",
        ),
        absent=NO_COLLECTIVE,
    )


def communication_note_table(communication: Communication) -> Table:
    """What is not known of the communication."""
    absent = "All details of each collective are known." if communication.kinds else NO_COLLECTIVE
    return sentence_table("Notes on communication", communication.notes, absent)


def _group(one: CollectiveTimes) -> str:
    name = "" if one.group is None else plain.name(one.group, 12)
    if one.group_size is None:
        return name or numbers.ABSENT
    return f"{name} of {one.group_size}".strip()
