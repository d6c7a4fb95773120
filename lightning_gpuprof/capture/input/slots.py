"""Fixed-size slots in shared memory: written by the process that makes batches, read in the main process.

A slot is a piece of shared memory: 64-bit counters, a histogram of item times, named parts. Its owner alone writes,
with plain stores and no lock; a sequence number that is odd during a write lets the reader see that it came in between.
Imports the standard library only, because spawned workers import it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

(
    SEQUENCE,
    PID,
    SEED,
    KIND,
    BATCHES,
    MEASURED,
    ITEMS,
    ITEM_NS,
    ITEM_MAX_NS,
    COLLATE_NS,
    COLLATE_MAX_NS,
    IDLE_NS,
    IDLE_COUNT,
    FIRST_NS,
    LAST_NS,
    OWN_NS,
    FAILED,
    PARTS,
    MADE_NS,
    CPU_NS,
) = range(20)
"""Places of the counters."""
_SUMMED = (BATCHES, MADE_NS, CPU_NS, MEASURED, ITEMS, ITEM_NS, COLLATE_NS, IDLE_NS, IDLE_COUNT, OWN_NS, FAILED)

COUNTERS = 32
BUCKETS = 128
MAX_PARTS = 36
NAME_BYTES = 48
_PART_WORDS = 4
"""Calls, sum and maximum in ns, and whether it is a transform (1) or a region of the user's (2)."""

_PARTS_AT = 8 * (COUNTERS + BUCKETS)
_NAMES_AT = _PARTS_AT + 8 * _PART_WORDS * MAX_PARTS
SLOT_BYTES = 8192
assert _NAMES_AT + NAME_BYTES * MAX_PARTS <= SLOT_BYTES

TRANSFORM, REGION = 1, 2

OTHER_PARTS = "others"
_SHIFT = 8
"""Item times below 2^8 ns share the first bucket."""

SHARED_MEMORY = Path("/dev/shm")
"""A file here is memory: no disk is written, and none can be full."""


def bucket_index(ns: int) -> int:
    """The bucket of a time: four to an octave."""
    bits = ns.bit_length()
    if bits <= _SHIFT:
        return 0
    return min(BUCKETS - 1, 1 + 4 * (bits - 1 - _SHIFT) + ((ns >> (bits - 3)) & 3))


def bucket_end_ns(bucket: int) -> float:
    """The longest time that falls into a bucket."""
    if bucket == 0:
        return float(1 << _SHIFT)
    octave, quarter = divmod(bucket - 1, 4)
    return float((1 << (octave + _SHIFT)) * (5 + quarter)) / 4


def _name_bytes(name: str) -> bytes:
    """What of a name finds room: of a long one the end, in which transforms inside one another differ."""
    text = name.encode("utf-8", "replace")
    if len(text) <= NAME_BYTES:
        return text
    end = text[len(_ELLIPSIS) - NAME_BYTES :].decode("utf-8", "ignore")  # not from the middle of a letter
    return _ELLIPSIS + end.encode("utf-8")


_ELLIPSIS = "…".encode()


class SlotWriter:
    """Writes one slot; made by its owner.

    Args:
        memory: At least :data:`SLOT_BYTES` bytes that can be written, all zero.
    """

    def __init__(self, memory: memoryview) -> None:
        self.words = memory[:_NAMES_AT].cast("q")
        self._names = memory[_NAMES_AT : _NAMES_AT + NAME_BYTES * MAX_PARTS]
        self._places: dict[tuple[int, bytes], int] = {}

    def part(self, kind: int, name: str) -> int:
        """The place of a named part, taken at its first use.

        Args:
            kind: Transform or region.
            name: Its name, of which the last bytes are kept.

        Returns:
            From 0, below :data:`MAX_PARTS`; parts that find no place any more share the last.
        """
        text = _name_bytes(name)
        place = self._places.get((kind, text))
        if place is None:
            place = min(len(self._places), MAX_PARTS - 1)
            shown = OTHER_PARTS.encode() if place == MAX_PARTS - 1 else text
            self._names[NAME_BYTES * place : NAME_BYTES * (place + 1)] = shown.ljust(NAME_BYTES, b"\0")
            words, at = self.words, COUNTERS + BUCKETS + _PART_WORDS * place
            words[at + 3] = kind
            words[PARTS] = place + 1
            if place < MAX_PARTS - 1:
                self._places[kind, text] = place
        return place

    def add_to_part(self, place: int, ns: int) -> None:
        """One call of a part.

        Args:
            place: As :meth:`part` gave it.
            ns: How long the call took.
        """
        words, at = self.words, COUNTERS + BUCKETS + _PART_WORDS * place
        words[at] += 1
        words[at + 1] += ns
        if ns > words[at + 2]:
            words[at + 2] = ns

    def release(self) -> None:
        """Let go of the memory, so that a mapping can be closed."""
        self.words.release()
        self._names.release()


class Part(msgspec.Struct, kw_only=True):
    """A named part of making items, summed up."""

    kind: int
    name: str
    calls: int
    sum_ns: int
    max_ns: int


class Reading(msgspec.Struct, kw_only=True):
    """What a slot holds, or the sum over several."""

    counters: list[int] = msgspec.field(default_factory=lambda: [0] * COUNTERS)
    buckets: list[int] = msgspec.field(default_factory=lambda: [0] * BUCKETS)
    parts: dict[tuple[int, str], Part] = {}

    def add(self, other: Reading) -> None:
        """Sum up with another; the identity (process, seed, kind) is the other's."""
        for place in _SUMMED:
            self.counters[place] += other.counters[place]
        for place in (ITEM_MAX_NS, COLLATE_MAX_NS, LAST_NS):
            self.counters[place] = max(self.counters[place], other.counters[place])
        self.counters[FIRST_NS] = self.counters[FIRST_NS] or other.counters[FIRST_NS]
        for place in (PID, SEED, KIND):
            self.counters[place] = other.counters[place]
        self.buckets = [a + b for a, b in zip(self.buckets, other.buckets, strict=True)]
        for key, part in other.parts.items():
            mine = self.parts.setdefault(key, Part(kind=part.kind, name=part.name, calls=0, sum_ns=0, max_ns=0))
            mine.calls += part.calls
            mine.sum_ns += part.sum_ns
            mine.max_ns = max(mine.max_ns, part.max_ns)

    def item_quantile_ns(self, share: float) -> float | None:
        """An upper bound of the quantile of item times, at most a quarter above it; None if there is no item."""
        total = sum(self.buckets)
        if not total:
            return None
        seen = 0
        for bucket, count in enumerate(self.buckets):
            seen += count
            if seen >= share * total:
                return min(bucket_end_ns(bucket), float(self.counters[ITEM_MAX_NS]))
        return None


_WORDS = struct.Struct(f"{_NAMES_AT // 8}q")
_TRIES = 4


def read_slot(memory: memoryview) -> Reading | None:
    """What a slot holds now; None if its owner was writing at each look."""
    for _ in range(_TRIES):
        words = _WORDS.unpack_from(memory, 0)
        names = bytes(memory[_NAMES_AT : _NAMES_AT + NAME_BYTES * MAX_PARTS])
        again = _WORDS.unpack_from(memory, 0)[SEQUENCE]
        if words[SEQUENCE] == again and again % 2 == 0:
            return _reading(words, names)
    return None


def _reading(words: Sequence[int], names: bytes) -> Reading:
    found = Reading(counters=list(words[:COUNTERS]), buckets=list(words[COUNTERS : COUNTERS + BUCKETS]))
    for place in range(min(words[PARTS], MAX_PARTS)):
        at = COUNTERS + BUCKETS + _PART_WORDS * place
        text = names[NAME_BYTES * place : NAME_BYTES * (place + 1)].rstrip(b"\0").decode("utf-8", "ignore")
        calls, sum_ns, max_ns, kind = words[at : at + _PART_WORDS]
        part = found.parts.setdefault((kind, text), Part(kind=kind, name=text, calls=0, sum_ns=0, max_ns=0))
        part.calls += calls
        part.sum_ns += sum_ns
        part.max_ns = max(part.max_ns, max_ns)
    return found


class Table:
    """Memory with a slot for each process. Made for workers it is a small file, until all of them have opened it."""

    def __init__(self, memory: memoryview, count: int, path: str = "", mapped: mmap.mmap | None = None) -> None:
        self.memory = memory
        self.path = path
        self._mapped = mapped
        self._slots = [memory[SLOT_BYTES * n : SLOT_BYTES * (n + 1)] for n in range(count)]

    @classmethod
    def of_this_process(cls) -> Table:
        """One slot for the main process itself."""
        return cls(memoryview(bytearray(SLOT_BYTES)), 1)

    @classmethod
    def for_workers(cls, count: int) -> Table:
        """A slot of zeros for each worker, in a file that only this user can open, until :meth:`remove_file`.

        Raises:
            OSError: No file can be made.
        """
        folder = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK | os.X_OK) else None  # else that of temporary files
        descriptor, path = tempfile.mkstemp(prefix="gpuprof-input-", dir=folder)
        try:
            # Written, not only made longer: a page that cannot be had later would kill the worker that touches it.
            left = SLOT_BYTES * count
            while left:
                left -= os.write(descriptor, bytes(left))
            mapped = mmap.mmap(descriptor, SLOT_BYTES * count)
        except BaseException:
            Path(path).unlink()
            raise
        finally:
            os.close(descriptor)
        return cls(memoryview(mapped), count, path, mapped)

    def read(self) -> list[Reading | None]:
        """Per process what it has written; None for one that was writing at each look."""
        return [read_slot(slot) for slot in self._slots]

    def remove_file(self, *, at_once: bool = True) -> None:
        """Take the file's name away; those who have opened it keep the memory.

        Args:
            at_once: Also if workers have not opened it yet; they are not measured then.
        """
        if not self.path or not (at_once or all(slot.cast("q")[PID] for slot in self._slots)):
            return
        path, self.path = self.path, ""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 - a name, and at the interpreter's end

    def close(self) -> None:
        """Let go of the memory."""
        self.remove_file()
        for slot in self._slots:
            slot.release()
        self._slots = []
        self.memory.release()
        if self._mapped is not None:
            self._mapped.close()
