"""The table of a trace's longest single events."""

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.trace.events import EventRow, Events
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import US_AS_MS, Column, Table
from lightning_gpuprof.sinks.window_tables import short_names

_NAME = 60


def event_table(events: Events) -> Table:
    """The longest events of each category, longest first."""
    rows = [(of.category, row) for of in events.categories for row in of.longest]
    return Table.of(
        "Longest events of each category",
        rows,
        Column("category", lambda pair: pair[0], help="--csv has all of its events"),
        Column("start", lambda pair: pair[1].start_us, US_AS_MS, help="from the start of the trace"),
        Column("duration", lambda pair: pair[1].duration_us, US_AS_MS),
        Column("on", lambda pair: _place(pair[1]), help="process/thread, or device and stream"),
        Column("name", lambda pair: _name(*pair)),
        absent="The trace has no events.",
    )


def _place(row: EventRow) -> str:
    if row.device is None:
        return plain.name(row.thread, 30)
    return f"{plain.device(row.device)}, stream {numbers.ABSENT if row.stream is None else row.stream}"


def _name(category: str, row: EventRow) -> str:
    if row.device is not None:
        return short_names.work(row.name, _NAME)
    return (short_names.host if category == "python" else plain.name)(row.name, _NAME)
