"""The steps of a trace: its ``ProfilerStep#`` ranges in order of time."""

import msgspec
import numpy as np

from lightning_gpuprof.trace.intervals import union
from lightning_gpuprof.trace.reader import Trace
from lightning_gpuprof.trace.tables import ABSENT, Int64, Rows, Spans, distinct, joined

STEP = "ProfilerStep#"
SAME_EDGE_RATIO = 0.1
"""Steps that overlap by at most so much of the shorter one follow each other: times may be whole microseconds."""


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """Steps in order of time; all columns are equally long."""

    names: tuple[str, ...]
    start_ns: Int64
    end_ns: Int64
    left_out: int = 0
    """Steps that overlap those that stayed."""

    def __len__(self) -> int:
        return len(self.names)

    def at(self, time_ns: Int64) -> Rows:
        """The step that each moment lies in, :data:`ABSENT` if it lies in none."""
        if not len(self):
            return np.full(len(time_ns), ABSENT, np.intp)
        last = np.searchsorted(self.start_ns, time_ns, "right") - 1
        inside = (last >= 0) & (time_ns < self.end_ns[np.maximum(last, 0)])
        return np.where(inside, last, ABSENT)


def is_step(name: str) -> bool:
    """Whether a range of this name is a step."""
    return name.startswith(STEP)


def steps_of(trace: Trace) -> Steps:
    """The steps of a trace.

    A step that is in the trace as annotation and as operator, or once per thread, is one step: the union of its
    ranges. Of steps that overlap, as those of two profilers do, those of one stay: no moment is in two.
    """
    of_steps = np.zeros(len(trace.names), np.bool_)
    of_steps[[number for number, name in enumerate(trace.names) if is_step(name)]] = True
    ranges = joined(Spans, [part.where(of_steps[part.name]) for part in (trace.annotation.spans, trace.cpu_op.spans)])
    names: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for number in distinct(ranges.name):
        own = ranges.name == number
        for start, end in zip(*union(ranges.start_ns[own], ranges.end_ns[own]), strict=True):
            names.append(trace.names[number])
            starts.append(int(start))
            ends.append(int(end))
    start_ns, end_ns = np.array(starts, np.int64), np.array(ends, np.int64)
    kept = np.array(_disjoint(start_ns.tolist(), end_ns.tolist()), np.intp)
    order = kept[np.argsort(start_ns[kept], kind="stable")]
    return Steps(
        names=tuple(names[row] for row in order),
        start_ns=start_ns[order],
        end_ns=end_ns[order],
        left_out=len(names) - len(order),
    )


def _disjoint(starts: list[int], ends: list[int]) -> list[int]:
    """Rows of steps of which none overlaps another one by more than rounding: as many as there can be.

    A step that lies inside one that has no other goes first: the outer one says more of the time.
    """
    rows = sorted(range(len(starts)), key=lambda row: (ends[row], -starts[row]))
    inside: dict[int, list[int]] = {}
    open_: list[int] = []
    for row in sorted(rows, key=lambda row: (starts[row], -ends[row])):
        while open_ and ends[open_[-1]] < ends[row]:
            open_.pop()
        if open_:
            inside.setdefault(open_[-1], []).append(row)
        open_.append(row)
    dropped = {held[0] for held in inside.values() if len(held) == 1}
    kept: list[int] = []
    for row in rows:
        if row in dropped:
            continue
        if kept:
            shorter = min(ends[row] - starts[row], ends[kept[-1]] - starts[kept[-1]])
            if starts[row] < ends[kept[-1]] - SAME_EDGE_RATIO * shorter:
                continue
        kept.append(row)
    return kept
