"""From a journal file to columns: one array per quantity over all steps, and lists of everything else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from lightning_gpuprof.errors import JournalError
from lightning_gpuprof.model.journal import (
    JOURNAL_VERSION,
    CallSites,
    Conditions,
    CpuBlock,
    Footer,
    Header,
    Notice,
    Record,
    Sample,
    Segment,
    Slot,
    StepBlock,
    Value,
    WindowRecord,
)
from lightning_gpuprof.model.phases import PHASES, Phase

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class StepColumns:
    """All steps of a run; every array has shape (n,) and the same order."""

    batch: Ints
    start_ns: Ints
    period_ns: Ints
    global_step: Ints
    epoch: Ints
    flags: Ints
    charged: dict[int, Ints]
    """Slot id → exclusive ns."""

    def __len__(self) -> int:
        return len(self.batch)

    def phases(self, slots: list[Slot]) -> dict[Phase, Ints]:
        """Exclusive time in ns by phase, arrays of shape (n,); phases without time are zeros."""
        by_phase = {phase: np.zeros(len(self), np.int64) for phase in PHASES}
        for slot, column in self.charged.items():
            by_phase[slots[slot].phase] += column
        return by_phase


@dataclass(frozen=True, kw_only=True)
class CpuColumns:
    """Main-thread CPU time of sampled steps; arrays of shape (m,)."""

    batch: Ints
    charged: dict[int, Ints]
    run_delay_ns: Ints | None = None
    """How long the thread was ready to run but had no CPU; None if not known."""


@dataclass(kw_only=True)
class Journal:
    """Everything that a journal holds."""

    header: Header
    slots: list[Slot]
    steps: StepColumns
    cpu: CpuColumns
    segments: list[Segment] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    sites: dict[int, dict[str, int]] = field(default_factory=dict)
    windows: list[WindowRecord] = field(default_factory=list)
    conditions: dict[str, Value] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)
    footer: Footer | None = None
    dropped_lines: int = 0
    """Lines that could not be read: torn by a kill, or of a kind that this version does not know."""

    @property
    def end_ns(self) -> int:
        """End of what was recorded, on the run's clock."""
        if self.footer is not None:
            return self.footer.end_ns
        ends = [s.end_ns for s in self.segments]
        if len(self.steps):
            ends.append(int(self.steps.start_ns[-1] + self.steps.period_ns[-1]))
        return max(ends, default=self.header.start_ns)


UNREADABLE = (msgspec.MsgspecError, ValueError, OverflowError)
"""What a damaged line raises: no JSON, no text, a number beyond 64 bits."""


MAX_SLOTS = 100_000
"""A run has hundreds; a larger number is damage."""


def read_journal(path: Path) -> Journal:
    """Read a journal, also one of a run that is still going or was killed.

    Every block must add up: columns of equal length, known slots, nothing negative, slots that sum to the period. What
    does not is left out and counted.

    Raises:
        JournalError: The file is missing, holds no header, or was written by a newer version.
    """
    try:
        with open(path, "rb") as lines:
            header = _header(path, lines.readline())
            return _read_lines(header, lines)
    except OSError as error:
        raise JournalError(f"{path}: cannot be read ({error.strerror or error})") from error


def _read_lines(header: Header, lines: Iterable[bytes]) -> Journal:
    blocks: list[StepColumns] = []
    cpu_blocks: list[CpuColumns] = []
    slots: dict[int, Slot] = {}
    journal = Journal(header=header, slots=[], steps=_join_steps([]), cpu=_join_cpu([]))
    decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
    for line in lines:
        if not line.strip():
            continue
        try:
            record = decoder.decode(line)
            match record:
                case StepBlock():
                    blocks.append(_step_columns(record))
                case CpuBlock():
                    cpu_blocks.append(_cpu_columns(record))
                case Slot():
                    _add_slot(slots, record)
                case Segment():
                    journal.segments.append(record)
                case Sample():
                    journal.samples.append(record)
                case CallSites():
                    _add_sites(journal.sites, record)
                case WindowRecord():
                    journal.windows.append(record)
                case Conditions():
                    journal.conditions.update(record.values)
                case Notice():
                    journal.notices.append(record)
                case Footer():
                    journal.footer = record
                case Header():
                    journal.dropped_lines += 1
        except UNREADABLE:
            journal.dropped_lines += 1

    journal.slots = [
        slots.get(number) or Slot(id=number, action="lost", phase="loop")
        for number in range(max(slots, default=-1) + 1)
    ]
    whole = [b for b in blocks if slots.keys() >= b.charged.keys()]
    segments = [s for s in journal.segments if _adds_up(s) and slots.keys() >= s.charged.keys()]
    journal.dropped_lines += len(blocks) - len(whole) + len(journal.segments) - len(segments)
    journal.segments = segments
    journal.steps = _join_steps(whole)
    journal.cpu = _join_cpu([b for b in cpu_blocks if slots.keys() >= b.charged.keys()])
    return journal


def _header(path: Path, line: bytes) -> Header:
    try:
        header = msgspec.json.decode(line, type=Header)
    except UNREADABLE as error:
        raise JournalError(f"{path}: no journal of gpuprof (its first line is not a header)") from error
    if header.version > JOURNAL_VERSION:
        raise JournalError(
            f"{path}: written by gpuprof {header.gpuprof} in journal version {header.version}, this one reads up to "
            f"{JOURNAL_VERSION}. Update lightning-gpuprof."
        )
    return header


def _add_slot(slots: dict[int, Slot], record: Slot) -> None:
    if not 0 <= record.id < MAX_SLOTS or slots.setdefault(record.id, record) != record:
        raise ValueError(f"slot {record.id} is out of range or named twice")


def _step_columns(block: StepBlock) -> StepColumns:
    """A block as arrays; raises ValueError if it does not add up."""
    n = len(block.period_ns)
    columns = StepColumns(
        batch=np.arange(block.first_batch, block.first_batch + n, dtype=np.int64),
        start_ns=_ints(block.start_ns),
        period_ns=_ints(block.period_ns),
        global_step=_ints(block.global_step),
        epoch=_ints(block.epoch),
        flags=_ints(block.flags),
        charged={slot: _ints(values) for slot, values in block.charged.items()},
    )
    arrays = [columns.start_ns, columns.global_step, columns.epoch, columns.flags, *columns.charged.values()]
    if any(len(a) != n or a.min(initial=0) < 0 for a in arrays):
        raise ValueError("columns of different length, or with negative numbers")
    if (sum(columns.charged.values(), np.zeros(n, np.int64)) != columns.period_ns).any():
        raise ValueError("slots that do not sum to the period")
    return columns


def _cpu_columns(block: CpuBlock) -> CpuColumns:
    n = len(block.batch)
    delay = None if block.run_delay_ns is None else _ints(block.run_delay_ns)
    columns = CpuColumns(
        batch=_ints(block.batch),
        charged={slot: _ints(values) for slot, values in block.charged.items()},
        run_delay_ns=delay,
    )
    if any(len(a) != n for a in (*columns.charged.values(), *([] if delay is None else [delay]))):
        raise ValueError("columns of different length")
    return columns


def _adds_up(segment: Segment) -> bool:
    spent = segment.charged.values()
    return min(spent, default=0) >= 0 and sum(spent) == segment.end_ns - segment.start_ns


def _add_sites(into: dict[int, dict[str, int]], record: CallSites) -> None:
    for slot, counts in record.counts.items():
        known = into.setdefault(slot, {})
        for site, looks in counts.items():
            known[site] = known.get(site, 0) + looks


def _ints(values: list[int]) -> Ints:
    return np.array(values, np.int64)


def _join(parts: list[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _join_columns(charged: list[dict[int, Ints]], sizes: list[int]) -> dict[int, Ints]:
    total = sum(sizes)
    columns: dict[int, Ints] = {}
    offset = 0
    for block, size in zip(charged, sizes, strict=True):
        for slot, values in block.items():
            columns.setdefault(slot, np.zeros(total, np.int64))[offset : offset + size] = values
        offset += size
    return columns


def _join_steps(blocks: list[StepColumns]) -> StepColumns:
    return StepColumns(
        batch=_join([b.batch for b in blocks]),
        start_ns=_join([b.start_ns for b in blocks]),
        period_ns=_join([b.period_ns for b in blocks]),
        global_step=_join([b.global_step for b in blocks]),
        epoch=_join([b.epoch for b in blocks]),
        flags=_join([b.flags for b in blocks]),
        charged=_join_columns([b.charged for b in blocks], [len(b) for b in blocks]),
    )


def _join_cpu(blocks: list[CpuColumns]) -> CpuColumns:
    delays = [b.run_delay_ns for b in blocks if b.run_delay_ns is not None]
    return CpuColumns(
        batch=_join([b.batch for b in blocks]),
        charged=_join_columns([b.charged for b in blocks], [len(b.batch) for b in blocks]),
        run_delay_ns=_join(delays) if delays and len(delays) == len(blocks) else None,
    )
