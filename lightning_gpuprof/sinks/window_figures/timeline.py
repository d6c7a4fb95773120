"""The data of the timeline of a window's median step; the page's own script draws it."""

from collections.abc import Mapping, Sequence

import msgspec

from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.model.trace.idle import IdleCause
from lightning_gpuprof.model.trace.timeline import PartKind, Timeline, TimelineLane
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.first_screen import title_of
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


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """Where findings show in a step: all that explain the same time, at once."""

    numbers: tuple[int, ...]
    """Of the findings, from 1."""
    titles: tuple[str, ...]
    start_us: float
    length_us: float

    @property
    def name(self) -> str:
        """``finding 1`` or ``findings 1, 3``: the title of its lane, by which links know it."""
        return f"finding{'s' * (len(self.numbers) > 1)} {', '.join(map(str, self.numbers))}"


_CAUSES_OF: Mapping[str, tuple[IdleCause, ...]] = {
    "late launches": ("launch", "launch_latency"),
    "host at other work": ("host_work", "between_steps"),
    "waits of the code": ("host_sync",),
    "waits of the gradient scaler": ("host_sync",),
    "waits of the progress bar": ("host_sync",),
    "check of all ranks": ("host_sync",),
    "waits for tensors of the host": ("host_sync",),
    "allocator": ("allocator",),
    "communication": ("communication",),
}
"""By the name of what a finding claims, the causes of idle time that are the same."""

_WORK_OF: Mapping[str, PartKind] = {
    "communication": "communication",
    "copies of the batch": "copy",
    "copies to the host": "copy",
}
"""Likewise, the kind of a device's work."""


def moments(report: Report, window: WindowFacts) -> list[Moment]:
    """Where the findings of a run show in a window's step: the longest part of what each explains.

    Args:
        report: With the findings.
        window: One of its windows.

    Returns:
        In the order of the findings, those that explain the same at once; times in µs since the step began. Empty
        without a timeline.
    """
    found = None if window.analysis is None else window.analysis.timeline
    if found is None:
        return []
    numbers: dict[Claim, list[int]] = {}
    for number, finding in enumerate(report.findings, 1):
        if finding.explains is not None:
            numbers.setdefault(finding.explains, []).append(number)
    return [
        Moment(
            numbers=tuple(of_claim),
            titles=tuple(title_of(report.findings[number - 1]) for number in of_claim),
            start_us=part[0],
            length_us=part[1],
        )
        for claim, of_claim in numbers.items()
        if (part := _longest(found, claim)) is not None
    ]


def _longest(timeline: Timeline, claim: Claim) -> tuple[float, float] | None:
    wanted: set[tuple[str, str]] = {("idle", cause) for cause in _CAUSES_OF.get(claim.name, ())}
    wanted |= {("phase", phase) for phase in claim.phases}
    work = "compute" if claim.resource in ("device busy", "clocks") else _WORK_OF.get(claim.name)
    parts = [
        (lane.start_us[n], lane.length_us[n])
        for lane in timeline.lanes
        for n, name in enumerate(lane.name)
        if (lane.kinds[name], lane.names[name]) in wanted or lane.kinds[name] == work
    ]
    return max(parts, key=lambda part: part[1], default=None)


def timeline_figure(timeline: Timeline, marked: Sequence[Moment] = ()) -> TimelineFigure | None:
    """The figure of a timeline.

    Args:
        timeline: Of a step.
        marked: Findings to draw above it.

    Returns:
        Lanes of the findings first, times in µs; None if there is nothing in it.
    """
    if not timeline.lanes or timeline.duration_us <= 0:
        return None
    lanes = tuple(map(_lane, timeline.lanes))
    return TimelineFigure(duration_us=timeline.duration_us, lanes=(*_findings(marked), *lanes))


def _findings(marked: Sequence[Moment]) -> Sequence[Lane]:
    """One lane for each: their parts may be the same."""
    return [
        Lane(
            title=one.name,
            kind="finding",
            names=("; ".join(plain.name(title, NAME_CELLS) for title in one.titles),),
            keys=("accent",),
            start_us=(one.start_us,),
            length_us=(one.length_us,),
            time_us=(one.length_us,),
            name=(0,),
            count=(1,),
        )
        for one in marked
    ]


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
