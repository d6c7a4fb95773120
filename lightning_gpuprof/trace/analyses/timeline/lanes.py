"""Lanes of bounded size: an event too short to be seen is joined with its neighbours."""

from collections.abc import Sequence

import msgspec
import numpy as np

from lightning_gpuprof.model.trace.timeline import LaneSum, PartKind, TimelineLane
from lightning_gpuprof.trace.tables import Int64, Mask, Rows

PIXELS = 1500
"""What is shorter than the step over this cannot be seen on its own."""
_WIDER = 1.4
MAX_NAMES = 60
"""Names of a lane, those with the most time."""
MAX_SUMS = 8
"""Operators, calls or kernels of a lane that are summed up by name."""
NAME_CHARACTERS = 120
"""C++ templates make names of kernels of some thousand."""


class Events(msgspec.Struct, frozen=True, kw_only=True):
    """Events of one row, in any order; all columns are equally long."""

    start_ns: Int64
    end_ns: Int64
    name: Rows
    """Index into ``names``."""
    names: Sequence[str]
    kind: Sequence[PartKind]
    """Of each name."""


class _Parts(msgspec.Struct, frozen=True, kw_only=True):
    """Joined events in order of time; all columns are equally long."""

    start_ns: Int64
    end_ns: Int64
    time_ns: Int64
    name: Rows
    count: Int64


def clip(events: Events, begin_ns: int, end_ns: int) -> Events:
    """What of the events lies between two moments.

    Args:
        events: In any order.
        begin_ns: First moment.
        end_ns: Last moment.

    Returns:
        In order of their starts, cut at both moments; what is empty is left out, the names are shared.
    """
    starts, ends = np.maximum(events.start_ns, begin_ns), np.minimum(events.end_ns, end_ns)
    rows = np.flatnonzero(ends > starts)
    rows = rows[np.argsort(starts[rows], kind="stable")]
    return Events(
        start_ns=starts[rows], end_ns=ends[rows], name=events.name[rows], names=events.names, kind=events.kind
    )


def lane(head: TimelineLane, events: Events, begin_ns: int, end_ns: int, limit: int) -> TimelineLane | None:
    """A lane with everything that lies between two moments.

    Args:
        head: Says what the lane shows.
        events: Those of one row; they do not overlap, but for what writers of traces get wrong.
        begin_ns: Begin of the step.
        end_ns: Its end.
        limit: Most parts.

    Returns:
        None if it would be empty.
    """
    events = clip(events, begin_ns, end_ns)
    if not len(events.start_ns):
        return None
    used, number = np.unique(events.name, return_inverse=True)
    time_ns = np.bincount(number, weights=events.end_ns - events.start_ns, minlength=len(used)).astype(np.int64)
    counts = np.bincount(number, minlength=len(used))
    order = np.argsort(-time_ns, kind="stable")
    all_named = head.kind in ("phases", "idle")
    width_ns = (end_ns - begin_ns) / PIXELS
    opens = _opens(events, width_ns)
    while np.count_nonzero(opens) > limit:
        width_ns *= _WIDER
        opens = _opens(events, width_ns)
    parts = _joined(events, opens)
    names, kinds, of_part = _names(events, parts)
    return TimelineLane(
        kind=head.kind,
        device=head.device,
        stream=head.stream,
        thread=head.thread,
        main=head.main,
        names=names,
        kinds=kinds,
        start_us=_us(parts.start_ns - begin_ns),
        length_us=_us(parts.end_ns - parts.start_ns),
        time_us=_us(parts.time_ns),
        name=tuple(of_part),
        count=tuple(parts.count.tolist()),
        sums=_sums(events, used[order], time_ns[order], counts[order], len(used) if all_named else MAX_SUMS),
        total_us=int(time_ns.sum()) / 1000,
    )


def _opens(events: Events, width_ns: float) -> Mask:
    """Which events begin a part: those shorter than the width are joined with others that begin in the same width."""
    long = events.end_ns - events.start_ns >= width_ns
    place = ((events.start_ns - events.start_ns[0]) / max(width_ns, 1.0)).astype(np.int64)
    opens: Mask = np.ones(len(long), np.bool_)
    opens[1:] = long[1:] | long[:-1] | (np.diff(place) != 0)
    return opens


def _joined(events: Events, opens: Mask) -> _Parts:
    duration_ns = events.end_ns - events.start_ns
    first = np.flatnonzero(opens)
    part = np.cumsum(opens) - 1
    by_length = np.lexsort((duration_ns, part))
    longest = by_length[np.append(first[1:], len(part)) - 1]
    return _Parts(
        start_ns=events.start_ns[first],
        end_ns=np.maximum.reduceat(events.end_ns, first),
        time_ns=np.add.reduceat(duration_ns, first),
        name=events.name[longest],
        count=np.diff(np.append(first, len(part))),
    )


def _names(events: Events, parts: _Parts) -> tuple[tuple[str, ...], tuple[PartKind, ...], list[int]]:
    """The names of the parts, their kinds, and the number of each part's name: those with the most time have one."""
    used, number = np.unique(parts.name, return_inverse=True)
    time_ns = np.bincount(number, weights=parts.time_ns, minlength=len(used))
    shown: dict[tuple[str, PartKind], int] = {}
    of_name: dict[int, int] = {}
    for rank, at in enumerate(np.argsort(-time_ns, kind="stable").tolist()):
        name = int(used[at])
        text = shortened(events.names[name]) if rank < MAX_NAMES else ""
        of_name[name] = shown.setdefault((text, events.kind[name]), len(shown))
    return tuple(text for text, _ in shown), tuple(kind for _, kind in shown), [of_name[n] for n in parts.name.tolist()]


def _sums(events: Events, used: Rows, time_ns: Int64, counts: Int64, most: int) -> tuple[LaneSum, ...]:
    """One row for each of the first names, and one for each kind of those behind them."""
    rows = [
        LaneSum(name=shortened(events.names[name]), kind=events.kind[name], count=int(count), time_us=int(ns) / 1000)
        for name, ns, count in zip(used[:most].tolist(), time_ns, counts, strict=False)
    ]
    rest: dict[PartKind, list[int]] = {}
    for name, ns, count in zip(used[most:].tolist(), time_ns[most:].tolist(), counts[most:].tolist(), strict=True):
        of_kind = rest.setdefault(events.kind[name], [0, 0])
        of_kind[0] += ns
        of_kind[1] += count
    rows += [LaneSum(name="", kind=kind, count=count, time_us=ns / 1000) for kind, (ns, count) in rest.items()]
    return tuple(rows)


def shortened(name: str) -> str:
    """The begin of a long name."""
    return name if len(name) <= NAME_CHARACTERS else f"{name[: NAME_CHARACTERS - 3]}..."


def _us(ns: Int64) -> tuple[float, ...]:
    return tuple((ns / 1000).tolist())
