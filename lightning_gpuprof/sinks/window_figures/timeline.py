"""The timeline of a window's median step flows in, plain data for the page's own drawing function flows out."""

from __future__ import annotations

import msgspec

from lightning_gpuprof.model.trace.timeline import Timeline, TimelineLane
from lightning_gpuprof.sinks.window_tables.timeline import lane_name, part_key, part_name

NAME_CELLS = 80


class Lane(msgspec.Struct, kw_only=True, frozen=True):
    """One row; the columns are equally long and in order of time."""

    title: str
    kind: str
    names: tuple[str, ...]
    keys: tuple[str, ...]
    """Of each name the key of its colour."""
    start_us: tuple[float, ...]
    length_us: tuple[float, ...]
    time_us: tuple[float, ...]
    name: tuple[int, ...]
    count: tuple[int, ...]


class TimelineFigure(msgspec.Struct, kw_only=True, frozen=True):
    """What ``figure_timeline.js`` gets."""

    duration_us: float
    lanes: tuple[Lane, ...]


def timeline_figure(timeline: Timeline) -> TimelineFigure | None:
    """The figure of a timeline; None if there is nothing in it."""
    if not timeline.lanes or timeline.duration_us <= 0:
        return None
    return TimelineFigure(duration_us=timeline.duration_us, lanes=tuple(map(_lane, timeline.lanes)))


def _lane(lane: TimelineLane) -> Lane:
    named = list(zip(lane.names, lane.kinds, strict=True))
    return Lane(
        title=lane_name(lane),
        kind=lane.kind,
        names=tuple(part_name(lane, name, kind, NAME_CELLS) for name, kind in named),
        keys=tuple(part_key(name, kind) for name, kind in named),
        start_us=lane.start_us,
        length_us=lane.length_us,
        time_us=lane.time_us,
        name=lane.name,
        count=lane.count,
    )
