"""From a journal file to columns: one array per quantity over all steps, and lists of everything else."""

from __future__ import annotations

from collections.abc import Iterator
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


def read_journal(path: Path) -> Journal:
    """Read a journal, also one of a run that is still going or was killed.

    Raises:
        JournalError: The file is missing, holds no header, or was written by a newer version.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise JournalError(f"{path}: cannot be read ({error.strerror or error})") from error
    lines = data.split(b"\n")
    header = _header(path, lines[0] if lines else b"")

    slots: list[Slot] = []
    blocks: list[StepBlock] = []
    cpu_blocks: list[CpuBlock] = []
    journal = Journal(
        header=header,
        slots=slots,
        steps=_join_steps([]),
        cpu=CpuColumns(batch=_ints([]), charged={}),
    )
    decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
    for line in lines[1:]:
        if not line:
            continue
        try:
            record = decoder.decode(line)
        except msgspec.MsgspecError:
            journal.dropped_lines += 1
            continue
        match record:
            case StepBlock():
                blocks.append(record)
            case CpuBlock():
                cpu_blocks.append(record)
            case Slot():
                slots.append(record)
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
    known = len(slots)
    kept = [b for b in blocks if _is_whole(b, known)]
    journal.dropped_lines += len(blocks) - len(kept)
    journal.steps = _join_steps(kept)
    journal.cpu = _join_cpu([b for b in cpu_blocks if max(b.charged, default=-1) < known])
    return journal


def _header(path: Path, line: bytes) -> Header:
    try:
        header = msgspec.json.decode(line, type=Header)
    except msgspec.MsgspecError as error:
        raise JournalError(f"{path}: no journal of gpuprof (its first line is not a header)") from error
    if header.version > JOURNAL_VERSION:
        raise JournalError(
            f"{path}: written by gpuprof {header.gpuprof} in journal version {header.version}, this one reads up to "
            f"{JOURNAL_VERSION}. Update lightning-gpuprof."
        )
    return header


def _is_whole(block: StepBlock, known_slots: int) -> bool:
    n = len(block.period_ns)
    columns = [block.start_ns, block.global_step, block.epoch, block.flags, *block.charged.values()]
    return all(len(c) == n for c in columns) and max(block.charged, default=-1) < known_slots


def _add_sites(into: dict[int, dict[str, int]], record: CallSites) -> None:
    for slot, counts in record.counts.items():
        known = into.setdefault(slot, {})
        for site, looks in counts.items():
            known[site] = known.get(site, 0) + looks


def _ints(values: list[int]) -> Ints:
    return np.array(values, np.int64)


def _join(parts: Iterator[list[int]]) -> Ints:
    return _ints([value for part in parts for value in part])


def _join_columns(charged: list[dict[int, list[int]]], sizes: list[int]) -> dict[int, Ints]:
    total = sum(sizes)
    columns: dict[int, Ints] = {}
    offset = 0
    for block, size in zip(charged, sizes, strict=True):
        for slot, values in block.items():
            columns.setdefault(slot, np.zeros(total, np.int64))[offset : offset + size] = values
        offset += size
    return columns


def _join_steps(blocks: list[StepBlock]) -> StepColumns:
    sizes = [len(b.period_ns) for b in blocks]
    return StepColumns(
        batch=_join(list(range(b.first_batch, b.first_batch + n)) for b, n in zip(blocks, sizes, strict=True)),
        start_ns=_join(b.start_ns for b in blocks),
        period_ns=_join(b.period_ns for b in blocks),
        global_step=_join(b.global_step for b in blocks),
        epoch=_join(b.epoch for b in blocks),
        flags=_join(b.flags for b in blocks),
        charged=_join_columns([b.charged for b in blocks], sizes),
    )


def _join_cpu(blocks: list[CpuBlock]) -> CpuColumns:
    sizes = [len(b.batch) for b in blocks]
    delays = [b.run_delay_ns for b in blocks if b.run_delay_ns is not None and len(b.run_delay_ns) == len(b.batch)]
    return CpuColumns(
        batch=_join(b.batch for b in blocks),
        charged=_join_columns([b.charged for b in blocks], sizes),
        run_delay_ns=_join(iter(delays)) if delays and len(delays) == len(blocks) else None,
    )
