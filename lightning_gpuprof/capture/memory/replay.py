"""Replays an allocator's snapshot: what each source line held at the peak, and the peak of each phase.

A pure function: the snapshot is what ``torch.cuda.memory._snapshot`` gives, in memory. Files are never unpickled.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from lightning_gpuprof.model.memory import NO_PYTHON, HeldPieces, SourceHolder

MAX_PLACES = 30
"""Places that a table names; the rest stands together."""
MOST_SIZES = 10
OTHERS = "others"
BEFORE = "before the history began"
NEVER_US = 1 << 62

Frames = Sequence[Mapping[str, Any]]


class Replayed(msgspec.Struct, kw_only=True):
    """What one device's history says; without events nothing was recorded for it."""

    events: int = 0
    peak_bytes: int = 0
    before_bytes: int = 0
    at_peak: tuple[SourceHolder, ...] = ()
    peaks_by_phase: dict[str, int] = {}
    at_end: tuple[SourceHolder, ...] = ()


def replay(
    snapshot: Mapping[str, Any],
    device: int,
    place_of: Callable[[Frames], str],
    marks: Sequence[tuple[int, str]] = (),
) -> Replayed:
    """Replay the allocations of one device; up to the last out-of-memory, if there is one.

    Args:
        snapshot: With ``segments`` and ``device_traces``.
        device: Its number.
        place_of: Names the place of a stack, innermost frame first.
        marks: Unix time in ns and phase of each phase's end, in order.

    Returns:
        Bytes as requested, which is up to 512 bytes a piece below what the allocator counts; 0 and empty without
        events.
    """
    traces = snapshot.get("device_traces") or ()
    events = list(traces[device]) if 0 <= device < len(traces) else []
    ends = [index for index, event in enumerate(events) if event.get("action") == "oom"]
    known_at_end = _held_at_end(snapshot, device)
    if not events:
        return Replayed()
    held = _before(events, known_at_end)
    before = sum(held.values())
    if ends:
        events = events[: ends[-1] + 1]
    current, peak, peak_at = before, before, -1
    phases = _PhasePeaks(marks)
    for index, event in enumerate(events):
        phases.pass_time(event.get("time_us"), current)
        current = _apply(held, event, current)
        phases.level(current)
        if current > peak:
            peak, peak_at = current, index
    phases.pass_time(NEVER_US, current)
    at_peak, before_then = _holders(events[: peak_at + 1], events, known_at_end, place_of)
    return Replayed(
        events=len(events),
        peak_bytes=peak,
        before_bytes=before_then,
        at_peak=at_peak,
        peaks_by_phase=phases.peaks,
        at_end=_holders(events, events, known_at_end, place_of)[0],
    )


def free_pieces(snapshot: Mapping[str, Any], device: int) -> tuple[int, int, int]:
    """Reserved memory of a device that no tensor holds.

    Args:
        snapshot: As ``torch.cuda.memory._snapshot`` gives it.
        device: Index of the device.

    Returns:
        Total and largest piece in bytes, and number of pieces; 0 if there are none.
    """
    sizes = [
        int(block.get("size", 0))
        for segment in snapshot.get("segments") or ()
        if segment.get("device") == device
        for block in segment.get("blocks") or ()
        if block.get("state") == "inactive"
    ]
    return sum(sizes), max(sizes, default=0), len(sizes)


def held_pieces(snapshot: Mapping[str, Any], device: int) -> tuple[HeldPieces, ...]:
    """What is allocated on a device by size.

    Args:
        snapshot: Of the allocator, also one without a history.
        device: Its index.

    Returns:
        The :data:`MOST_SIZES` sizes that hold most memory, most first; sizes as requested.
    """
    counts = Counter(_held_at_end(snapshot, device).values())
    largest = sorted(counts.items(), key=lambda item: -item[0] * item[1])[:MOST_SIZES]
    return tuple(HeldPieces(size_bytes=size, count=count) for size, count in largest)


def _held_at_end(snapshot: Mapping[str, Any], device: int) -> dict[int, int]:
    """Address → requested bytes of what is allocated when the snapshot is taken."""
    held: dict[int, int] = {}
    for segment in snapshot.get("segments") or ():
        if segment.get("device") != device:
            continue
        address = int(segment.get("address", 0))
        for block in segment.get("blocks") or ():
            if block.get("state") == "active_allocated":
                held[int(block.get("address", address))] = int(block.get("requested_size", block.get("size", 0)))
            address += int(block.get("size", 0))
    return held


def _before(events: Sequence[Mapping[str, Any]], at_end: Mapping[int, int]) -> dict[int, int]:
    """What was allocated before the first event: what is freed, or held at the end, without having been allocated."""
    held: dict[int, int] = {}
    touched: set[int] = set()
    for event in events:
        action, address = event.get("action"), event.get("addr")
        if action not in ("alloc", "free_requested") or address is None or address in touched:
            continue
        touched.add(address)
        if action == "free_requested":
            held[address] = int(event["size"])
    held.update((address, size) for address, size in at_end.items() if address not in touched)
    return held


def _apply(held: dict[int, int], event: Mapping[str, Any], current: int) -> int:
    action, address = event.get("action"), event.get("addr")
    if address is None:
        return current
    if action == "alloc":
        size = int(event["size"])
        current += size - held.get(address, 0)
        held[address] = size
    elif action == "free_requested":
        current -= held.pop(address, 0)
    return current


class _PhasePeaks:
    """Follows the level of what is allocated through the phases that marks end; the first mark only begins them."""

    def __init__(self, marks: Sequence[tuple[int, str]]) -> None:
        self.peaks: dict[str, int] = {}
        self._times = [unix_ns // 1000 for unix_ns, _ in marks]
        self._names = [name for _, name in marks]
        self._at = 0

    def pass_time(self, time_us: object, level: int) -> None:
        """Up to that time the level was this."""
        if not isinstance(time_us, int):
            return
        while self._at < len(self._times) and self._times[self._at] < time_us:
            self.level(level)
            self._at += 1
            self.level(level)

    def level(self, level: int) -> None:
        """The level is this now."""
        if 0 < self._at < len(self._names):
            name = self._names[self._at]
            self.peaks[name] = max(self.peaks.get(name, 0), level)


def _holders(
    events: Sequence[Mapping[str, Any]],
    all_events: Sequence[Mapping[str, Any]],
    at_end: Mapping[int, int],
    place_of: Callable[[Frames], str],
) -> tuple[tuple[SourceHolder, ...], int]:
    """What is held after some of the events, by place; and how much of it from before the first one."""
    old = _before(all_events, at_end)
    held: dict[int, tuple[int, Frames]] = {}
    for event in events:
        action, address = event.get("action"), event.get("addr")
        if address is None:
            continue
        if action == "alloc":
            old.pop(address, None)
            held[address] = (int(event["size"]), event.get("frames") or ())
        elif action == "free_requested":
            old.pop(address, None)
            held.pop(address, None)
    sums: dict[str, list[int]] = {}
    for size, frames in held.values():
        place = place_of(frames) or NO_PYTHON
        entry = sums.setdefault(place, [0, 0])
        entry[0] += size
        entry[1] += 1
    rows = [SourceHolder(place=place, held_bytes=size, count=count) for place, (size, count) in sums.items()]
    before = sum(old.values())
    if old:
        rows.append(SourceHolder(place=BEFORE, held_bytes=before, count=len(old)))
    rows.sort(key=lambda row: -row.held_bytes)
    if len(rows) > MAX_PLACES:
        rest = rows[MAX_PLACES:]
        others = SourceHolder(
            place=OTHERS, held_bytes=sum(row.held_bytes for row in rest), count=sum(row.count for row in rest)
        )
        rows = [*rows[:MAX_PLACES], others]
    return tuple(rows), before
