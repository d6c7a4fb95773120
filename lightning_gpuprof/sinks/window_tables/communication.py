"""Communication of a trace flows in, tables for people flow out."""

from __future__ import annotations

from lightning_gpuprof.model.trace.communication import CollectiveTimes, Communication
from lightning_gpuprof.sinks import numbers, plain
from lightning_gpuprof.sinks.tables import Cell, Column, Table, sentence_table

NO_COLLECTIVE = "No kernel of NCCL or RCCL is in the trace."

_COUNT = Column(title="count", numeric=True)
_EXPOSED = Column(title="exposed", unit="ms", term="what no computation of the device covers", numeric=True)
_BUS = Column(
    title="bus",
    unit="GB/s",
    term="bus bandwidth as nccl-tests defines it: what the links carry; the time waited for late ranks lowers it",
    numeric=True,
)


def device_communication_table(communication: Communication) -> Table:
    """Communication, computation and copies of each device."""
    return Table(
        title="Communication and computation",
        columns=(
            Column(title="device"),
            Column(title="communication", unit="ms", term="union of the kernels of NCCL and RCCL", numeric=True),
            Column(title="computation", unit="ms", term="union of all other kernels", numeric=True),
            Column(title="both", unit="ms", term="while both ran", numeric=True),
            _EXPOSED,
            Column(title="of window", term="exposed communication", numeric=True),
            Column(title="copies", unit="ms", term="union of copies and memsets", numeric=True),
            Column(title="exposed", unit="ms", term="of the copies: what no computation covers", numeric=True),
        ),
        rows=tuple(
            (
                Cell(text=plain.name(one.device, 16)),
                Cell(text=numbers.fixed(one.communication_us / 1e3)),
                Cell(text=numbers.fixed(one.computation_us / 1e3)),
                Cell(text=numbers.fixed(one.overlap_us / 1e3)),
                Cell(text=numbers.fixed(one.exposed_us / 1e3)),
                Cell(text=numbers.percent(one.exposed_ratio)),
                Cell(text=numbers.fixed(one.copy_us / 1e3)),
                Cell(text=numbers.fixed(one.copy_exposed_us / 1e3)),
            )
            for one in communication.devices
        ),
        absent="The trace holds no device work.",
    )


def collective_kind_table(communication: Communication) -> Table:
    """Collectives by kind."""
    return Table(
        title="Collectives",
        columns=(
            Column(title="collective"),
            Column(title="", bar=True),
            _COUNT,
            Column(
                title="total", unit="ms", term="sum of durations, with the time waited for late ranks", numeric=True
            ),
            Column(title="mean", unit="ms", numeric=True),
            _EXPOSED,
            Column(title="data", term="sum of the sizes of those whose size is known", numeric=True),
            _BUS,
            Column(
                title="best bus", unit="GB/s", term="of the fastest one: closest to what links can do", numeric=True
            ),
        ),
        rows=tuple(
            (
                Cell(text=one.kind),
                Cell(text="", ratio=one.share_ratio),
                Cell(text=numbers.count(one.count)),
                Cell(text=numbers.fixed(one.total_us / 1e3)),
                Cell(text=numbers.fixed(one.mean_us / 1e3)),
                Cell(text=numbers.fixed(one.exposed_us / 1e3)),
                Cell(text=numbers.size(one.total_bytes)),
                _giga(one.bus_bandwidth_bytes_per_s),
                _giga(one.best_bus_bandwidth_bytes_per_s),
            )
            for one in communication.kinds
        ),
        absent=NO_COLLECTIVE,
    )


def collective_size_table(communication: Communication) -> Table:
    """Collectives by kind, size, type and group."""
    left_out = f" ({communication.sizes_left_out} more)" if communication.sizes_left_out else ""
    return Table(
        title=f"Collectives by size{left_out}",
        columns=(
            Column(title="collective"),
            Column(title="size", term="of one, counted as nccl-tests counts", numeric=True),
            Column(title="type"),
            Column(title="group", term="name of the process group and its ranks"),
            _COUNT,
            Column(title="mean", unit="ms", numeric=True),
            Column(title="min", unit="ms", numeric=True),
            Column(title="max", unit="ms", numeric=True),
            Column(title="exposed", term="share of the durations that no computation covers", numeric=True),
            _BUS,
        ),
        rows=tuple(
            (
                Cell(text=one.kind),
                Cell(text=numbers.size(one.message_bytes)),
                Cell(text=numbers.ABSENT if one.dtype is None else plain.name(one.dtype, 12)),
                Cell(text=_group(one)),
                Cell(text=numbers.count(one.count)),
                Cell(text=numbers.fixed(one.mean_us / 1e3)),
                Cell(text=numbers.fixed(one.min_us / 1e3)),
                Cell(text=numbers.fixed(one.max_us / 1e3)),
                Cell(text=numbers.percent(one.exposed_us / one.total_us if one.total_us > 0 else None)),
                _giga(one.bus_bandwidth_bytes_per_s),
            )
            for one in communication.sizes
        ),
        absent=NO_COLLECTIVE,
    )


def communication_stream_table(communication: Communication) -> Table:
    """Streams on which communication ran."""
    return Table(
        title="Streams with communication",
        columns=(
            Column(title="device"),
            Column(title="stream", numeric=True),
            Column(title="collectives", numeric=True),
            Column(title="communication", unit="ms", term="union of the stream's", numeric=True),
            _EXPOSED,
            Column(
                title="computation",
                unit="ms",
                term="on the same stream: there it and communication wait for one another",
                numeric=True,
            ),
        ),
        rows=tuple(
            (
                Cell(text=plain.name(one.device, 16)),
                Cell(text=str(one.stream)),
                Cell(text=numbers.count(one.collectives)),
                Cell(text=numbers.fixed(one.communication_us / 1e3)),
                Cell(text=numbers.fixed(one.exposed_us / 1e3)),
                Cell(text=numbers.fixed(one.computation_us / 1e3)),
            )
            for one in communication.streams
        ),
        absent=NO_COLLECTIVE,
    )


def communication_note_table(communication: Communication) -> Table:
    """What is not known of the communication."""
    absent = "Everything is known of each collective." if communication.kinds else NO_COLLECTIVE
    return sentence_table("Notes on communication", communication.notes, absent)


def _giga(bytes_per_s: float | None) -> Cell:
    return Cell(text=numbers.fixed(None if bytes_per_s is None else bytes_per_s / 1e9))


def _group(one: CollectiveTimes) -> str:
    name = "" if one.group is None else plain.name(one.group, 12)
    if one.group_size is None:
        return name or numbers.ABSENT
    return f"{name} of {one.group_size}".strip()
