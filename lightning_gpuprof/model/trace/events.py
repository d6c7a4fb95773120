"""Single events of a trace, as plain data."""

import msgspec


class EventRow(msgspec.Struct, kw_only=True, frozen=True):
    """One event, microseconds."""

    start_us: float
    """From the start of the trace's first event."""
    duration_us: float
    name: str
    thread: str
    """``process/thread``; on devices the row that viewers show it in."""
    device: str | None
    """None on the host; likewise below."""
    stream: int | None


class EventsOfCategory(msgspec.Struct, kw_only=True, frozen=True):
    """The events of one category."""

    category: str
    """``kernel``, ``memcpy``, ``runtime``, ``operator``, ``range`` …"""
    count: int
    longest: tuple[EventRow, ...]
    """Longest first."""


class Events(msgspec.Struct, kw_only=True, frozen=True):
    """The longest single events of a trace."""

    categories: tuple[EventsOfCategory, ...]
    """Those that the trace has."""
