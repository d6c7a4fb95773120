"""One step of a trace: the host's phases and threads, the streams, and why devices were idle."""

from collections.abc import Iterator
from typing import get_args

import numpy as np

from lightning_gpuprof.model.phases import PHASES
from lightning_gpuprof.model.trace.idle import IDLE_CAUSES
from lightning_gpuprof.model.trace.timeline import PartKind, Timeline, TimelineLane
from lightning_gpuprof.trace.analyses.code.waits import allocates, blocking_calls
from lightning_gpuprof.trace.analyses.idle.idle_gaps import gaps_by_device
from lightning_gpuprof.trace.analyses.idle.idle_pieces import idle_pieces
from lightning_gpuprof.trace.analyses.joins.main_thread_phases import main_thread_pieces, steps_or_window
from lightning_gpuprof.trace.analyses.joins.operator_calls import operator_calls
from lightning_gpuprof.trace.analyses.timeline.lanes import Events, lane
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.steps import Steps
from lightning_gpuprof.trace.tables import ABSENT, Rows, Spans

KINDS: tuple[PartKind, ...] = get_args(PartKind)
MAX_PARTS = 2000
"""Of a timeline: some 60 kB as JSON."""
MAX_PARTS_OF_LANE = 500
MAX_THREADS = 3
MAX_DEVICES = 4
MAX_STREAMS = 6
"""Of a device: those with the most work in the step."""


def timeline(linked: LinkedTrace) -> Timeline | None:
    """What host and devices did during the median step; None if the trace has no event."""
    steps = steps_or_window(linked)
    if steps is None:
        return None
    row = median_step(steps)
    begin_ns, end_ns = int(steps.start_ns[row]), int(steps.end_ns[row])
    if row + 1 < len(steps):  # a moment in two steps belongs to the one that began last, as for the idle time of steps
        end_ns = min(end_ns, int(steps.start_ns[row + 1]))
    events = [_phases(linked)]
    threads, left_out = _threads(linked, begin_ns, end_ns)
    blocking = blocking_calls(linked)
    for thread in threads:
        events += _thread_lanes(linked, thread, blocking, begin_ns, end_ns)
    devices = linked.devices
    left_out += max(len(devices) - MAX_DEVICES, 0)
    for device in devices[:MAX_DEVICES]:
        streams, more = _streams(linked, device, begin_ns, end_ns)
        left_out += more
        events += [_stream(linked, device, stream, rows) for stream, rows in streams]
        events.append(_idle(linked, device, begin_ns, end_ns))
    limit = max(min(MAX_PARTS // max(len(events), 1), MAX_PARTS_OF_LANE), 1)
    lanes = [lane(head, of_lane, begin_ns, end_ns, limit) for head, of_lane in events]
    return Timeline(
        step=steps.names[row],
        steps=len(linked.steps),
        duration_us=(end_ns - begin_ns) / 1000,
        lanes=tuple(one for one in lanes if one is not None),
        left_out=left_out,
    )


def median_step(steps: Steps) -> int:
    """The step whose period, until the begin of the next one, is the median; of two in the middle the shorter one.

    The last step's period is its own duration.
    """
    period_ns = np.append(np.diff(steps.start_ns), steps.end_ns[-1] - steps.start_ns[-1])
    return int(np.argsort(period_ns, kind="stable")[(len(period_ns) - 1) // 2])


def _rows_within(spans: Spans, begin_ns: int, end_ns: int) -> Rows:
    return np.flatnonzero((spans.start_ns < end_ns) & (spans.end_ns > begin_ns))


def _phases(linked: LinkedTrace) -> tuple[TimelineLane, Events]:
    pieces = main_thread_pieces(linked)
    named = np.flatnonzero(pieces.phase > ABSENT)
    opens = np.ones(len(named), np.bool_)
    opens[1:] = (np.diff(pieces.phase[named]) != 0) | (pieces.start_ns[named][1:] > pieces.end_ns[named][:-1])
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(named)) - 1 if len(named) else first
    return (
        TimelineLane(kind="phases", thread=_thread(linked, linked.main_thread), main=True),
        Events(
            start_ns=pieces.start_ns[named[first]],
            end_ns=pieces.end_ns[named[last]],
            name=pieces.phase[named[first]],
            names=PHASES,
            kind=_kinds("phase", len(PHASES)),
        ),
    )


def _thread(linked: LinkedTrace, thread: int | None) -> str | None:
    return None if thread is None else linked.trace.threads[thread]


def _threads(linked: LinkedTrace, begin_ns: int, end_ns: int) -> tuple[list[int], int]:
    """The main thread, then those with the most time in operators and calls, and how many others there are."""
    ops, calls = linked.trace.cpu_op, linked.trace.runtime
    spent: dict[int, float] = {}
    is_operator = operator_calls(linked).is_operator
    of_ops, of_calls = _rows_within(ops, begin_ns, end_ns), _rows_within(calls, begin_ns, end_ns)
    for spans, rows in ((ops, of_ops[is_operator[of_ops]]), (calls, of_calls)):
        times = np.bincount(spans.thread[rows], weights=spans.duration_ns[rows]) if len(rows) else np.zeros(0)
        for thread in np.flatnonzero(times).tolist():
            spent[thread] = max(spent.get(thread, 0.0), float(times[thread]))
    order = sorted(spent, key=lambda thread: (thread != linked.main_thread, -spent[thread]))
    return order[:MAX_THREADS], max(len(order) - MAX_THREADS, 0)


def _thread_lanes(
    linked: LinkedTrace, thread: int, blocking: Rows, begin_ns: int, end_ns: int
) -> Iterator[tuple[TimelineLane, Events]]:
    """Operators and calls of a thread."""
    name, main = _thread(linked, thread), thread == linked.main_thread
    ops, calls = linked.trace.cpu_op, linked.trace.runtime
    rows = _rows_within(ops, begin_ns, end_ns)
    rows = rows[(ops.thread[rows] == thread) & operator_calls(linked).is_operator[rows]]
    rows = _outermost(ops, rows)
    operators = np.full(len(rows), KINDS.index("operator"), np.intp)
    yield TimelineLane(kind="operators", thread=name, main=main), _events(linked, ops, rows, operators)
    rows = _rows_within(calls, begin_ns, end_ns)
    rows = _outermost(calls, rows[calls.thread[rows] == thread])
    yield (
        TimelineLane(kind="calls", thread=name, main=main),
        _events(linked, calls, rows, _call_kinds(linked, rows, blocking)),
    )


def _outermost(spans: Spans, rows: Rows) -> Rows:
    """Those of some spans of one thread that lie in no other one of them, in order of time."""
    order = rows[np.lexsort((-spans.end_ns[rows], spans.start_ns[rows]))]
    reached = np.maximum.accumulate(spans.end_ns[order])
    outermost = np.ones(len(order), np.bool_)
    outermost[1:] = spans.start_ns[order][1:] >= reached[:-1]
    return order[outermost]


def _call_kinds(linked: LinkedTrace, rows: Rows, blocking: Rows) -> Rows:
    calls = linked.trace.runtime.where(rows)
    kinds = np.full(len(rows), KINDS.index("call"), np.intp)
    kinds[linked.named(calls, lambda name: "launch" in name.lower())] = KINDS.index("launch")
    kinds[linked.named(calls, allocates)] = KINDS.index("memory")
    kinds[np.isin(rows, blocking)] = KINDS.index("wait")
    return kinds


def _streams(linked: LinkedTrace, device: int, begin_ns: int, end_ns: int) -> tuple[list[tuple[int, Rows]], int]:
    """The streams with the most work in the step, by number, each with its rows, and how many others there are."""
    rows = linked.device_rows[device]
    work = linked.work
    rows = rows[(work.start_ns[rows] < end_ns) & (work.end_ns[rows] > begin_ns)]
    streams, number = np.unique(work.stream[rows], return_inverse=True)
    spent_ns = np.bincount(number, weights=work.duration_ns[rows], minlength=len(streams))
    chosen = np.sort(np.argsort(-spent_ns, kind="stable")[:MAX_STREAMS]).tolist()
    return [(int(streams[at]), rows[number == at]) for at in chosen], len(streams) - len(chosen)


def _stream(linked: LinkedTrace, device: int, stream: int, rows: Rows) -> tuple[TimelineLane, Events]:
    kinds = np.full(len(rows), KINDS.index("copy"), np.intp)
    kinds[linked.is_kernel[rows]] = KINDS.index("compute")
    kinds[linked.is_communication[rows]] = KINDS.index("communication")
    number = None if stream == ABSENT else stream
    head = TimelineLane(kind="stream", device=linked.trace.devices[device], stream=number)
    return head, _events(linked, linked.work, rows, kinds)


def _idle(linked: LinkedTrace, device: int, begin_ns: int, end_ns: int) -> tuple[TimelineLane, Events]:
    """Why a device was idle: of its gaps only those that have a part in the step are looked at."""
    gaps = gaps_by_device(linked)[device]
    near = np.flatnonzero((gaps.start_ns < end_ns) & (gaps.end_ns > begin_ns))
    pieces = idle_pieces(linked, gaps.where(near)).merged()
    events = Events(
        start_ns=pieces.start_ns,
        end_ns=pieces.end_ns,
        name=pieces.cause.astype(np.intp),
        names=IDLE_CAUSES,
        kind=_kinds("idle", len(IDLE_CAUSES)),
    )
    return TimelineLane(kind="idle", device=linked.trace.devices[device]), events


def _events(linked: LinkedTrace, spans: Spans, rows: Rows, kinds: Rows) -> Events:
    """Spans as events; those of one name may be of several kinds.

    Args:
        linked: The trace.
        spans: A table of it.
        rows: The rows to take.
        kinds: Index into :data:`KINDS` of each row.
    """
    used, number = np.unique(spans.name[rows].astype(np.int64) * len(KINDS) + kinds, return_inverse=True)
    return Events(
        start_ns=spans.start_ns[rows],
        end_ns=spans.end_ns[rows],
        name=number,
        names=[linked.trace.names[name] for name in (used // len(KINDS)).tolist()],
        kind=[KINDS[kind] for kind in (used % len(KINDS)).tolist()],
    )


def _kinds(kind: PartKind, count: int) -> tuple[PartKind, ...]:
    return (kind,) * count
