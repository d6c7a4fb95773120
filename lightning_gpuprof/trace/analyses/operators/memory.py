"""What allocated memory in a window: operators, modules, lines; and what held it at the peak."""

import msgspec
import numpy as np

from lightning_gpuprof.model.trace.memory import (
    DeviceMemoryUse,
    LineMemory,
    LivePiece,
    ModuleMemory,
    OperatorMemory,
    WindowMemory,
)
from lightning_gpuprof.model.trace.operators import OPERATOR_PHASES
from lightning_gpuprof.trace.analyses.joins.call_places import CallPlaces, call_places
from lightning_gpuprof.trace.analyses.joins.grouped import groups_of
from lightning_gpuprof.trace.analyses.joins.operator_calls import OperatorCalls, operator_calls, with_children
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.nesting import nearest, take_or_absent
from lightning_gpuprof.trace.tables import ABSENT, Int64, Mask, MemoryEvents, Rows, distinct, summed

CURVE_POINTS = 200
PIECES = 100
"""A step holds thousands, of which few matter."""
MAX_PLACES = 64
"""Devices of a host; a file may claim more."""
_OTHER = OPERATOR_PHASES.index("other")


def memory(linked: LinkedTrace) -> WindowMemory:
    """The memory of a window; without devices where allocations were not recorded.

    Bytes are those that torch's allocators handed out: on a GPU those of the caching allocator, rounded up to 512.
    What a backward pass allocates belongs to the module and line of its forward.
    """
    events = linked.trace.memory
    if not len(events):
        return WindowMemory()
    calls, places = operator_calls(linked), call_places(linked)
    operator_at = nearest(linked.operators.parent, calls.is_operator)
    found = []
    for place in distinct(events.place).tolist()[:MAX_PLACES]:
        chosen = events.where(np.flatnonzero(events.place == place))
        chosen = chosen.where(np.argsort(chosen.start_ns, kind="stable"))
        operator = take_or_absent(operator_at, linked.operators.innermost(chosen.start_ns, chosen.thread))
        found.append(_of_place(linked, calls, places, chosen, operator, None if place == ABSENT else place))
    return WindowMemory(devices=tuple(found))


class _Allocations(msgspec.Struct, frozen=True):
    """Those of one device, in order; columns have one row each."""

    bytes: Int64
    operator: Rows
    """Row in :attr:`Trace.cpu_op`, or ABSENT."""
    module: Rows
    line: Rows
    start_ns: Int64
    at_peak: Mask
    """Whether it was still held at the peak."""


def _of_place(
    linked: LinkedTrace,
    calls: OperatorCalls,
    places: CallPlaces,
    events: MemoryEvents,
    operator: Rows,
    device: int | None,
) -> DeviceMemoryUse:
    changed = events.changed_bytes
    held = _held(events, device)
    began_ns, begin_bytes = int(events.start_ns[0]), int(held[0] - changed[0])
    peak = int(held.argmax()) if int(held.max()) >= begin_bytes else ABSENT  # the start, before all events
    peak_bytes, peak_ns = (int(held[peak]), int(events.start_ns[peak])) if peak > ABSENT else (begin_bytes, began_ns)
    rows = np.flatnonzero(changed > 0)
    at_peak = (rows <= peak) & (_freed(events)[rows] > peak)
    forward = take_or_absent(places.backward.forward_of_operator, operator[rows])
    origin = np.where(forward > ABSENT, forward, operator[rows])
    module = take_or_absent(places.module_of_operator, origin)
    outside = places.modules.at(events.start_ns[rows], events.thread[rows])
    found = _Allocations(
        changed[rows],
        operator[rows],
        np.where(origin > ABSENT, module, outside),
        take_or_absent(places.source.line_of_operator, origin),
        events.start_ns[rows],
        at_peak,
    )
    live_bytes = int(found.bytes[at_peak].sum())
    curve_us, curve_bytes = _curve(events.start_ns - began_ns, held)
    pieces = _pieces(linked, calls, places, found, peak_ns)
    return DeviceMemoryUse(
        device=device,
        allocations=len(rows),
        allocated_bytes=int(found.bytes.sum()),
        freed_bytes=-int(changed[changed < 0].sum()),
        begin_bytes=begin_bytes,
        end_bytes=int(held[-1]),
        peak_bytes=peak_bytes,
        peak_us=(peak_ns - began_ns) / 1000,
        older_bytes=max(0, peak_bytes - live_bytes),
        curve_us=curve_us,
        curve_bytes=curve_bytes,
        operators=_operators(linked, calls, found),
        modules=_modules(places, found),
        lines=_lines(places, found),
        pieces=pieces,
        pieces_count=int(at_peak.sum()),
    )


def _held(events: MemoryEvents, device: int | None) -> Int64:
    """Bytes held after each event.

    On a GPU as the allocator counted them, if it always did. The host's is counted from 0: its allocator counts what
    was recorded in earlier windows, without what was freed between them.
    """
    if device is not None and (events.held_bytes > ABSENT).all():
        return events.held_bytes
    held: Int64 = np.cumsum(events.changed_bytes)
    return held - min(0, int(held.min()))


def _freed(events: MemoryEvents) -> Rows:
    """The event that freed what each event allocated; the number of events where none did."""
    count = len(events)
    order = np.lexsort((np.arange(count), events.address))
    after = np.full(count, count, np.intp)
    same = events.address[order][1:] == events.address[order][:-1]
    after[order[:-1][same]] = order[1:][same]
    return after


def _curve(time_ns: Int64, held: Int64) -> tuple[tuple[float, ...], tuple[int, ...]]:
    if len(held) <= CURVE_POINTS:
        return tuple((time_ns / 1000).tolist()), tuple(held.tolist())
    edges = np.linspace(0, int(time_ns[-1]), CURVE_POINTS, endpoint=False)
    first = distinct(np.searchsorted(time_ns, edges))
    return tuple((time_ns[first] / 1000).tolist()), tuple(np.maximum.reduceat(held, first).tolist())


def _operators(linked: LinkedTrace, calls: OperatorCalls, found: _Allocations) -> tuple[OperatorMemory, ...]:
    ops, known = linked.trace.cpu_op, found.operator > ABSENT
    key = ops.name.astype(np.int64) * len(OPERATOR_PHASES) + calls.phase
    own_bytes = summed(found.operator[known], found.bytes[known], len(ops))
    total_bytes = with_children(own_bytes, calls.parent)
    rows = np.flatnonzero((total_bytes > 0) & calls.is_operator & calls.is_outermost(key))
    outer = groups_of(key[rows])
    of_key = dict(zip(key[rows[outer.first]].tolist(), outer.sums(total_bytes[rows]).tolist(), strict=True))
    key_of_row = take_or_absent(key, found.operator)
    own = groups_of(key_of_row)
    largest = np.zeros(len(own), np.int64)
    np.maximum.at(largest, own.of_row, found.bytes)
    columns = own.counts, own.sums(found.bytes), largest, own.sums(np.where(found.at_peak, found.bytes, 0))
    of_own = dict(
        zip(key_of_row[own.first].tolist(), zip(*(one.tolist() for one in columns), strict=True), strict=True)
    )
    made = []
    for one in {**of_key, **of_own}:
        count, self_bytes, most, peak = of_own.get(one, (0, 0, 0, 0))
        made.append(
            OperatorMemory(
                operator="" if one == ABSENT else linked.trace.names[one // len(OPERATOR_PHASES)],
                phase=OPERATOR_PHASES[_OTHER if one == ABSENT else one % len(OPERATOR_PHASES)],
                allocations=count,
                self_bytes=self_bytes,
                total_bytes=of_key.get(one, self_bytes),
                largest_bytes=most,
                peak_bytes=peak,
            )
        )
    return tuple(sorted(made, key=lambda row: (-row.self_bytes, -row.total_bytes, row.operator, row.phase)))


def _modules(places: CallPlaces, found: _Allocations) -> tuple[ModuleMemory, ...]:
    names, parents = places.modules.names, places.modules.parents
    known = found.module > ABSENT
    own_bytes = summed(found.module[known], found.bytes[known], len(names))
    held = known & found.at_peak
    at_peak = summed(found.module[held], found.bytes[held], len(names))
    sums = np.stack((own_bytes, at_peak)).T.tolist()
    for path in range(len(names) - 1, -1, -1):  # a path comes after the one around it
        if parents[path] > ABSENT:
            sums[parents[path]] = [a + b for a, b in zip(sums[parents[path]], sums[path], strict=True)]
    chains: list[tuple[str, ...]] = []
    for name, around in zip(names, parents, strict=True):
        chains.append((*(chains[around] if around > ABSENT else ()), name))
    made = [
        ModuleMemory(path=chain, allocated_bytes=allocated, self_bytes=own, peak_bytes=peak)
        for chain, (allocated, peak), own in zip(chains, sums, own_bytes.tolist(), strict=True)
    ]
    return tuple(sorted(made, key=lambda one: (-one.allocated_bytes, len(one.path))))


def _lines(places: CallPlaces, found: _Allocations) -> tuple[LineMemory, ...]:
    known = found.line > ABSENT
    groups = groups_of(found.line[known])
    allocated = groups.sums(found.bytes[known])
    at_peak = groups.sums(np.where(found.at_peak[known], found.bytes[known], 0))
    columns = found.line[known][groups.first], groups.counts, allocated, at_peak
    made = [
        LineMemory(line=places.lines[line], allocations=count, allocated_bytes=own, peak_bytes=peak)
        for line, count, own, peak in zip(*(one.tolist() for one in columns), strict=True)
    ]
    return tuple(sorted(made, key=lambda one: (-one.allocated_bytes, one.line.frame)))


def _pieces(
    linked: LinkedTrace, calls: OperatorCalls, places: CallPlaces, found: _Allocations, peak_ns: int
) -> tuple[LivePiece, ...]:
    live = np.flatnonzero(found.at_peak)
    live = live[np.argsort(-found.bytes[live], kind="stable")][:PIECES]
    names, ops, modules = linked.trace.names, linked.trace.cpu_op, places.modules
    pieces = []
    for row in live.tolist():
        operator, module, line = int(found.operator[row]), int(found.module[row]), int(found.line[row])
        pieces.append(
            LivePiece(
                size_bytes=int(found.bytes[row]),
                operator="" if operator == ABSENT else names[ops.name[operator]],
                phase=OPERATOR_PHASES[_OTHER if operator == ABSENT else int(calls.phase[operator])],
                module="" if module == ABSENT else modules.whole_names[module],
                line=None if line == ABSENT else places.lines[line],
                age_us=(peak_ns - int(found.start_ns[row])) / 1000,
            )
        )
    return tuple(pieces)
