"""From a trace to its steps: the ``ProfilerStep#`` ranges in order of time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lightning_gpuprof.trace.intervals import union
from lightning_gpuprof.trace.reader import Trace
from lightning_gpuprof.trace.tables import ABSENT, Int64, Rows, Spans, joined

STEP = "ProfilerStep#"


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Steps in order of time; all columns are equally long."""

    names: tuple[str, ...]
    start_ns: Int64
    end_ns: Int64

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
    ranges.
    """
    telling = np.zeros(len(trace.names), np.bool_)
    telling[[number for number, name in enumerate(trace.names) if is_step(name)]] = True
    ranges = joined(Spans, [part.where(telling[part.name]) for part in (trace.annotation.spans, trace.cpu_op.spans)])
    names: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for number in np.unique(ranges.name):
        own = ranges.name == number
        for start, end in zip(*union(ranges.start_ns[own], ranges.end_ns[own]), strict=True):
            names.append(trace.names[number])
            starts.append(int(start))
            ends.append(int(end))
    order = np.argsort(np.array(starts, np.int64), kind="stable")
    return Steps(
        names=tuple(names[row] for row in order),
        start_ns=np.array(starts, np.int64)[order],
        end_ns=np.array(ends, np.int64)[order],
    )
