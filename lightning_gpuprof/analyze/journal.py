"""Reads a journal file into the columns of :class:`Journal`."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

from lightning_gpuprof.analyze.column_store import SHORT, ColumnStore
from lightning_gpuprof.analyze.journal_columns import (
    MAX_NUMBER,
    CpuColumns,
    DeviceColumns,
    StepColumns,
    narrow,
)
from lightning_gpuprof.analyze.journal_columns import Journal as Journal
from lightning_gpuprof.errors import JournalError
from lightning_gpuprof.model.journal import (
    CALLS,
    CPU_COLUMNS,
    CPU_UNIT_NS,
    JOURNAL_VERSION,
    STEP_COLUMNS,
    CallSites,
    Compilation,
    CompilerCounts,
    Conditions,
    CpuBlock,
    DeviceBlock,
    Footer,
    Header,
    KernelBlock,
    KernelNames,
    LineTimesRecord,
    MemoryHistoryRecord,
    Notice,
    OutOfMemoryRecord,
    Record,
    Sample,
    Segment,
    Slot,
    Standstill,
    StepBlock,
    ThreadLooks,
    WindowRecord,
)
from lightning_gpuprof.model.packing import Group, Ints, unpack

UNREADABLE = (msgspec.MsgspecError, ValueError, OverflowError)
"""What a damaged line raises: no JSON, no text, a number beyond 64 bits."""


MAX_SLOTS = 100_000
"""A run has hundreds; a larger number is damage."""


MAX_BLOCK_ROWS = 1 << 16
"""A block has 1,024 steps at most; a larger number is damage."""

_LONGEST_HEADER = 1 << 20
"""A longer first line is damage."""

_BUFFER_BYTES = 1 << 20
"""Python's own is shorter than most lines. For the ends of a file it is long enough."""


def read_journal(path: Path, most_bytes: int | None = None) -> Journal:
    """Read a journal, also one of a run that is still going or was killed.

    A block of steps must be as it was written (by its checksum), a segment's slots must sum to its length. What does
    not is left out and counted. A slot whose own line is damaged keeps its time, without its name.

    Args:
        path: The file.
        most_bytes: Of a larger file only the first and the last half of so many are read; None: all of it.

    Returns:
        What could be read; ``is_whole`` is False if only its ends were.

    Raises:
        JournalError: The file is missing, has no header, or was written by a newer version or one too old.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise JournalError(f"{path}: not a file")
        with open(path, "rb", _BUFFER_BYTES if most_bytes is None else -1) as file:
            header = _header(path, file.readline(_LONGEST_HEADER))
            if most_bytes is None or os.fstat(file.fileno()).st_size <= most_bytes:
                return _read_lines(header, file)
            return _read_lines(header, _ends(file, most_bytes // 2), is_whole=False)
    except OSError as error:
        raise JournalError(f"{path}: cannot be read ({error.strerror or error})") from error


def _ends(file: BinaryIO, most_bytes: int) -> Iterator[bytes]:
    """The whole lines in so much of a file from here on, and in as much before its end."""
    head = file.read(most_bytes)
    yield from head[: head.rfind(b"\n") + 1].splitlines()
    file.seek(-most_bytes, os.SEEK_END)
    file.readline()
    yield from file


def _read_lines(header: Header, lines: Iterable[bytes], *, is_whole: bool = True) -> Journal:
    steps = _StepTable()
    cpu = _CpuTable()
    device: list[DeviceBlock] = []
    slots = _Slots()
    journal = Journal(header=header, slots=[], steps=_StepTable().columns(), cpu=_CpuTable().columns())
    decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
    for line in lines:
        if not line or line.isspace():
            continue
        try:
            record = decoder.decode(line)
            match record:
                case StepBlock():
                    steps.add(record, slots)
                case CpuBlock():
                    cpu.add(record, slots)
                case DeviceBlock():
                    device.append(_checked_device_block(record))
                case KernelBlock():
                    journal.kernels.add(record)
                case KernelNames():
                    journal.kernels.names.update(record.names)
                case Slot():
                    slots.add(record)
                case Segment():
                    journal.segments.append(record)
                case Sample():
                    journal.samples.append(record)
                case CallSites():
                    _add_sites(journal, record)
                case Standstill():
                    journal.standstills.append(record)
                case WindowRecord():
                    journal.windows.append(record)
                case Conditions():
                    journal.conditions.update(record.values)
                case Notice():
                    journal.notices.append(record)
                case Compilation():
                    journal.compilations.append(_checked_compilation(record))
                case CompilerCounts():
                    journal.compiler_counts = record
                case MemoryHistoryRecord():
                    journal.memory_histories.append(record.facts)
                case LineTimesRecord():
                    journal.line_times = record.functions
                case OutOfMemoryRecord():
                    journal.out_of_memory = record.facts
                case Footer():
                    journal.footer = record
                case Header():
                    journal.dropped_lines += 1
        except UNREADABLE:
            journal.dropped_lines += 1

    journal.is_whole = is_whole
    slots.end(journal.dropped_lines if is_whole else MAX_SLOTS)
    segments = [s for s in journal.segments if _sums_to_duration(s) and slots.possible(s.charged)]
    spans = [block for block in device if slots.possible(block.charged)]
    journal.dropped_lines += len(journal.segments) - len(segments) + len(device) - len(spans)
    journal.segments = segments
    journal.steps = steps.columns()
    journal.cpu = cpu.columns()
    journal.device = _device_columns(spans)
    used = {*journal.steps.charged, *journal.cpu.charged, *journal.device.charged}
    used.update(slot for segment in segments for slot in segment.charged)
    journal.slots = slots.listed(used)
    journal.lost_slots = sum(slot not in slots.known for slot in used)
    journal.dropped_lines = max(journal.dropped_lines, journal.lost_slots)  # a line may be missing without a trace
    return journal


class _Origin(msgspec.Struct, tag="header", tag_field="k"):
    """What every version's header holds."""

    version: int
    gpuprof: str


def _header(path: Path, line: bytes) -> Header:
    if not line:
        raise JournalError(f"{path}: empty. The run has not written anything yet, or was stopped before it could.")
    try:
        origin = msgspec.json.decode(line, type=_Origin)
        if origin.version != JOURNAL_VERSION:
            raise JournalError(_way_out(path, origin))
    except UNREADABLE as error:
        raise JournalError(f"{path}: not a gpuprof journal (its first line is not a header)") from error
    try:
        return msgspec.json.decode(line, type=Header)
    except UNREADABLE as error:
        raise JournalError(f"{path}: damaged (its first line: {error})") from error


def _way_out(path: Path, origin: _Origin) -> str:
    written = f"{path}: written by gpuprof {origin.gpuprof} in journal version {origin.version}"
    if origin.version > JOURNAL_VERSION:
        return f"{written}, this one reads up to {JOURNAL_VERSION}. Update lightning-gpuprof."
    return f"{written}, which is no longer read. Make its report with lightning-gpuprof {origin.gpuprof}."


class _Slots:
    """Collects the names of the slots, and which others there must have been."""

    def __init__(self) -> None:
        self.known: dict[int, Slot] = {}
        self._disputed: set[int] = set()
        self._count = 0

    def add(self, record: Slot) -> None:
        """Raises ValueError for a slot out of range, and for one named twice: neither name can be trusted then."""
        number = record.id
        if not 0 <= number < MAX_SLOTS:
            raise ValueError(f"slot {number} is out of range")
        self._count = max(self._count, number + 1)
        if number in self._disputed or self.known.setdefault(number, record) != record:
            self._disputed.add(number)
            self.known.pop(number, None)
            raise ValueError(f"slot {number} is named twice")

    def use(self, number: int) -> None:
        """A block whose checksum is right uses the slot; raises ValueError if there can be none of this number."""
        if number >= MAX_SLOTS:
            raise ValueError(f"slot {number} is out of range")
        self._count = max(self._count, number + 1)

    def end(self, dropped_lines: int) -> None:
        """All lines are there: numbers are dense, so that each line that was dropped may have been one slot more."""
        self._count = max(self._count, min(MAX_SLOTS, len(self.known) + dropped_lines))

    def possible(self, numbers: Iterable[int]) -> bool:
        """Whether there can be these slots, in a line without a checksum."""
        return all(0 <= number < self._count for number in numbers)

    def listed(self, used: Collection[int]) -> list[Slot]:
        """The slots by number up to the last one known or used; those without a name are called ``lost``."""
        count = max((*self.known, *used), default=-1) + 1
        return [self.known.get(number) or Slot(id=number, action="lost", phase="loop") for number in range(count)]


def _groups(block: StepBlock | CpuBlock, leading: int, slots: _Slots) -> list[Group]:
    """The columns of a block; raises ValueError if it is damaged."""
    if block.crc32 != block.checksum() or not 0 < block.count <= MAX_BLOCK_ROWS:
        raise ValueError("a damaged block")
    groups = list(unpack(block.widths, block.count, block.data))
    if (used := len(block.widths.rstrip("0"))) > leading:
        slots.use(used - leading - 1)
    return groups


def _since_first(running: Ints, first: Ints, counts: Ints) -> Ints:
    """Let a quantity that runs through all rows begin in each block with that block's ``first``."""
    begins = np.cumsum(counts) - counts
    shifts = first - running[begins]
    changes = np.flatnonzero(np.diff(shifts)) + 1  # few of steps: a block mostly goes on where the one before ends
    for run in np.split(np.arange(len(counts)), changes) if len(counts) else ():
        running[begins[run[0]] : begins[run[-1]] + counts[run[-1]]] += shifts[run[0]]
    return running


def _labels(numbers: Ints) -> Ints:
    """Small numbers in as few bits as hold them; whoever adds them needs more."""
    least, most = numbers.min(initial=0), numbers.max(initial=0)
    kinds = (np.iinfo(kind) for kind in (np.int8, np.int16, np.int32, np.int64))
    return numbers.astype(next(kind.dtype for kind in kinds if kind.min <= least and most <= kind.max))


class _StepTable:
    """Collects the blocks of steps."""

    def __init__(self) -> None:
        self._store = ColumnStore(STEP_COLUMNS)
        self._blocks: list[tuple[int, int, int, int, int]] = []

    def add(self, block: StepBlock, slots: _Slots) -> None:
        head = (block.first_batch, block.start_ns, block.global_step, block.epoch, block.count)
        if min(head) < 0 or max(head) >= MAX_NUMBER:
            raise ValueError("numbers out of range")
        self._store.add(_groups(block, STEP_COLUMNS, slots), block.count)
        self._blocks.append(head)

    def columns(self) -> StepColumns:
        self._store.close()
        batch, start_ns, global_step, epoch, counts = np.array(self._blocks, np.int64).reshape(-1, 5).T
        period_ns = narrow(self._store.slot_sums())
        starts = np.cumsum(period_ns, dtype=np.int64)
        starts -= period_ns
        last = int(batch.max(initial=0)) + len(period_ns)
        rows: Ints = np.arange(len(period_ns), dtype=np.int32 if last < SHORT else np.int64)
        return StepColumns(
            start_ns=_since_first(starts, start_ns, counts),
            period_ns=period_ns,
            batch=_since_first(rows, batch, counts),
            first_global_step=int(global_step[0]) if len(counts) else 0,
            stepped=_labels(self._stepped(global_step, counts)),
            epoch=np.repeat(_labels(epoch), counts),
            flags=_labels(self._store.column(1)),
            charged=self._store.slots(),
        )

    def _stepped(self, global_step: Ints, counts: Ints) -> Ints:
        """Blocks have the steps since their own first row; that row's are those since the block before."""
        stepped = self._store.column(0)
        if not len(counts):
            return stepped
        begins = np.cumsum(counts) - counts
        stepped[begins] = 0
        after = global_step + np.add.reduceat(stepped, begins, dtype=np.int64)
        stepped = stepped.astype(np.int64)
        stepped[begins[1:]] = global_step[1:] - after[:-1]
        return stepped


class _CpuTable:
    """Collects the blocks of CPU times."""

    def __init__(self) -> None:
        self._store = ColumnStore(CPU_COLUMNS)
        self._blocks: list[tuple[int, int]] = []
        self._delay_known = True

    def add(self, block: CpuBlock, slots: _Slots) -> None:
        if not 0 <= block.first_batch < MAX_NUMBER:
            raise ValueError("numbers out of range")
        self._store.add(_groups(block, CPU_COLUMNS, slots), block.count)
        self._blocks.append((block.first_batch, block.count))
        self._delay_known &= block.delay_known

    def columns(self) -> CpuColumns:
        self._store.close()
        first_batch, counts = np.array(self._blocks, np.int64).reshape(-1, 2).T
        return CpuColumns(
            batch=_since_first(np.cumsum(self._store.column(0)), first_batch, counts),
            charged=self._store.slots(CPU_UNIT_NS),
            run_delay_ns=self._store.column(1, CPU_UNIT_NS) if self._blocks and self._delay_known else None,
        )


def _checked_device_block(block: DeviceBlock) -> DeviceBlock:
    """Raises ValueError for columns of different length, and for negative or impossible numbers."""
    columns = (block.batch, *block.charged.values())
    if {len(column) for column in columns} != {len(block.batch)}:
        raise ValueError("columns of different length")
    numbers = [*block.batch, block.dropped_backlog, block.dropped_capturing, block.dropped_unusable]
    for column in (*block.charged.values(), numbers):
        if not all(0 <= number < MAX_NUMBER for number in column):
            raise ValueError("numbers out of range")
    return block


def _checked_compilation(record: Compilation) -> Compilation:
    """Raises ValueError for times that are none."""
    if not (0 <= record.start_ns < MAX_NUMBER and 0 <= record.duration_ns < MAX_NUMBER):
        raise ValueError("numbers out of range")
    return record


def _device_columns(blocks: list[DeviceBlock]) -> DeviceColumns:
    counts = [len(block.batch) for block in blocks]
    charged: dict[int, Ints] = {}
    begin = 0
    for block, count in zip(blocks, counts, strict=True):
        for slot, column in block.charged.items():
            charged.setdefault(slot, np.zeros(sum(counts), np.int64))[begin : begin + count] = column
        begin += count
    return DeviceColumns(
        batch=np.array([batch for block in blocks for batch in block.batch], np.int64),
        charged=charged,
        dropped_backlog=sum(block.dropped_backlog for block in blocks),
        dropped_capturing=sum(block.dropped_capturing for block in blocks),
        dropped_unusable=sum(block.dropped_unusable for block in blocks),
    )


def _sums_to_duration(segment: Segment) -> bool:
    spent = segment.charged.values()
    return min(spent, default=0) >= 0 and sum(spent) == segment.end_ns - segment.start_ns


def _add_sites(journal: Journal, record: CallSites) -> None:
    weight = max(1, record.weight)
    journal.look_weight = max(journal.look_weight, weight)
    for slot, counts in record.counts.items():
        stacks, sites = journal.stacks.setdefault(slot, {}), journal.sites.setdefault(slot, {})
        for stack, looks in counts.items():
            site = stack.rpartition(CALLS)[2]
            stacks[stack] = stacks.get(stack, 0) + looks * weight
            sites[site] = sites.get(site, 0) + looks * weight
    for slot, rows in record.states.items():
        states = journal.states.setdefault(slot, {})
        for site, seen in rows.items():
            python, native, off = (looks * weight for looks in seen)
            seen_before = states.get(site, (0, 0, 0))
            states[site] = seen_before[0] + python, seen_before[1] + native, seen_before[2] + off
    for all_looks, counted in ((journal.looks, record.looks), (journal.in_collectives, record.in_collectives)):
        for slot, looks in counted.items():
            all_looks[slot] = all_looks.get(slot, 0) + looks * weight
    for name, other in record.threads.items():
        thread = journal.threads.setdefault(name, ThreadLooks())
        thread.cpu_ns += other.cpu_ns
        for site, looks in other.sites.items():
            thread.sites[site] = thread.sites.get(site, 0) + looks * weight
    journal.threads_ns += record.threads_ns
    journal.code.update(record.code)
    journal.sources.update(record.sources)
    for slot, (asked, late) in record.lock.items():
        before = journal.lock.get(slot, (0, 0))
        journal.lock[slot] = before[0] + asked, before[1] + late
