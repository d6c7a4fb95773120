"""What a journal holds, in columns: one array per quantity over all steps, and lists of everything else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from lightning_gpuprof.analyze.column_store import SHORT
from lightning_gpuprof.model.journal import (
    KERNEL_COLUMNS,
    MAX_KERNEL_ROWS,
    Compilation,
    CompilerCounts,
    Footer,
    Header,
    KernelBlock,
    Notice,
    Sample,
    Segment,
    Slot,
    Standstill,
    ThreadLooks,
    Value,
    WindowRecord,
)
from lightning_gpuprof.model.line_times import FunctionTimes
from lightning_gpuprof.model.memory import MemoryHistory, OutOfMemory
from lightning_gpuprof.model.packing import Ints as Ints
from lightning_gpuprof.model.packing import unpack
from lightning_gpuprof.model.phases import PHASES, Phase, SegmentKind

MAX_NUMBER = 1 << 62
"""A larger number is damage."""


class StepColumns(msgspec.Struct, frozen=True, kw_only=True):
    """All steps of a run; every array has shape (n,) and the same order."""

    batch: Ints
    start_ns: Ints
    period_ns: Ints
    first_global_step: int
    stepped: Ints
    """Optimizer steps that the batch before completed, 0 for the first."""
    epoch: Ints
    flags: Ints
    charged: Mapping[int, Ints]
    """Slot id → exclusive ns. What :func:`read_journal` makes unpacks a column at each look."""

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def global_step(self) -> Ints:
        """Optimizer steps before each batch; made at each look."""
        return self.first_global_step + np.cumsum(self.stepped, dtype=np.int64)

    @property
    def completes(self) -> npt.NDArray[np.bool_]:
        """Which batches completed an optimizer step; the last one, of which it is not known, counts as one that did."""
        return np.append(self.stepped[1:] > 0, True)[: len(self)]

    @property
    def end_ns(self) -> int:
        """End of the last step; there is one."""
        return int(self.start_ns[-1] + self.period_ns[-1])


def sorting(values: Ints) -> Ints | slice:
    """What puts values of shape (n,) in order; a slice, which copies nothing, if they are: but in a damaged journal."""
    return slice(None) if (values[1:] >= values[:-1]).all() else np.argsort(values, kind="stable")


def narrow(numbers: Ints) -> Ints:
    """Numbers from 0 on in 32 bits where these hold them: a long run has many."""
    return numbers.astype(np.int32) if numbers.max(initial=0) < SHORT else numbers


class PhaseColumns(Mapping[Phase, Ints]):
    """Exclusive time in ns by phase, arrays of shape (n,); made at each look, because a long run has too many to hold.

    Args:
        charged: Slot id → exclusive ns.
        slots: Of each phase; one without slots takes no time.
        rows: Steps.
    """

    def __init__(self, charged: Mapping[int, Ints], slots: Mapping[Phase, Sequence[int]], rows: int) -> None:
        self._charged = charged
        self._slots = slots
        self._rows = rows

    def __getitem__(self, phase: Phase) -> Ints:
        first, *others = self._slots.get(phase, ()) or (None,)
        if first is None:
            return np.zeros(self._rows, np.int32)
        column = self._charged[first]
        if not others:
            return column
        column = column.astype(np.int64)
        for slot in others:
            column += self._charged[slot]
        return narrow(column)

    def __iter__(self) -> Iterator[Phase]:
        return iter(PHASES)

    def __len__(self) -> int:
        return len(PHASES)

    @cached_property
    def timed(self) -> tuple[Phase, ...]:
        """The phases that take time in any step."""
        return tuple(p for p in PHASES if any(self._charged[slot].any() for slot in self._slots.get(p, ())))

    def without(self, phase: Phase) -> PhaseColumns:
        """As if one phase took no time."""
        slots = {other: of for other, of in self._slots.items() if other != phase}
        return PhaseColumns(self._charged, slots, self._rows)


class CpuColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Main-thread CPU time of sampled steps; arrays of shape (m,)."""

    batch: Ints
    charged: Mapping[int, Ints]
    run_delay_ns: Ints | None = None
    """How long the thread was ready to run but had no CPU; None if not known."""


class DeviceColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Device spans of sampled steps; arrays of shape (m,)."""

    batch: Ints
    charged: Mapping[int, Ints]
    """Slot id → exclusive ns on the device's clock."""
    dropped_backlog: int = 0
    """Steps that were not measured because the device was too far behind."""
    dropped_capturing: int = 0
    """Likewise, because a graph was captured in them."""
    dropped_unusable: int = 0
    """Likewise, because they had too many edges, or edges on streams that do not follow each other."""

    def phases(self, slots: list[Slot]) -> dict[Phase, Ints]:
        """Exclusive time in ns by phase, arrays of shape (m,); phases without time are zeros."""
        by_phase = {phase: np.zeros(len(self.batch), np.int64) for phase in PHASES}
        for slot, column in self.charged.items():
            by_phase[slots[slot].step_phase] += column
        return by_phase


_NO_LONGER_NS = 10 * 10**9
"""A standstill of which nothing more is written for so long is over: it is recorded every 5 s while it lasts."""


MAX_ROWS_OF_KERNELS = 20_000_000
"""640 MB; later rows count as lost: a report must not end the training that it is of."""


class KernelColumns(msgspec.Struct):
    """Kernels by step and name."""

    names: dict[int, str] = msgspec.field(default_factory=dict)
    columns: list[Ints] = msgspec.field(default_factory=list)
    """For each block four rows: batch, number of the kernel, calls, their time in ns."""
    rows: int = 0
    lost: int = 0

    def add(self, block: KernelBlock) -> None:
        """Take a block; raises ValueError if it is not as it was written."""
        is_possible = 0 <= block.first_batch < MAX_NUMBER and 0 <= block.lost < MAX_NUMBER
        if not is_possible or not 0 <= block.count <= MAX_KERNEL_ROWS or block.crc32 != block.checksum():
            raise ValueError("not a block of kernels")
        if len(block.widths) != KERNEL_COLUMNS:
            raise ValueError("not the columns of kernels")
        self.rows += block.count
        if self.rows > MAX_ROWS_OF_KERNELS:
            self.lost += block.count
            return
        table = np.zeros((KERNEL_COLUMNS, block.count), np.int64)
        for group in unpack(block.widths, block.count, block.data):
            places = 256 ** np.arange(len(group.planes))
            table[group.columns] = group.base[:, None] + np.tensordot(places, group.planes.astype(np.int64), 1)
        table[0] = block.first_batch + np.cumsum(table[0])
        self.columns.append(table)
        self.lost += block.lost


class Journal(msgspec.Struct, kw_only=True, dict=True):
    """Everything that a journal holds."""

    header: Header
    slots: list[Slot]
    steps: StepColumns
    cpu: CpuColumns
    device: DeviceColumns = msgspec.field(
        default_factory=lambda: DeviceColumns(batch=np.zeros(0, np.int64), charged={})
    )
    segments: list[Segment] = msgspec.field(default_factory=list)
    samples: list[Sample] = msgspec.field(default_factory=list)
    sites: dict[int, dict[str, int]] = msgspec.field(default_factory=dict)
    stacks: dict[int, dict[str, int]] = msgspec.field(default_factory=dict)
    code: dict[str, str] = msgspec.field(default_factory=dict)
    looks: dict[int, int] = msgspec.field(default_factory=dict)
    look_weight: int = 1
    """The most that one look counts as here and in the other counts of looks."""
    states: dict[int, dict[str, tuple[int, int, int]]] = msgspec.field(default_factory=dict)
    in_collectives: dict[int, int] = msgspec.field(default_factory=dict)
    threads: dict[str, ThreadLooks] = msgspec.field(default_factory=dict)
    threads_ns: int = 0
    lock: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)
    standstills: list[Standstill] = msgspec.field(default_factory=list)
    windows: list[WindowRecord] = msgspec.field(default_factory=list)
    conditions: dict[str, Value] = msgspec.field(default_factory=dict)
    sources: dict[str, str] = msgspec.field(default_factory=dict)
    notices: list[Notice] = msgspec.field(default_factory=list)
    compilations: list[Compilation] = msgspec.field(default_factory=list)
    compiler_counts: CompilerCounts | None = None
    memory_histories: list[MemoryHistory] = msgspec.field(default_factory=list)
    line_times: tuple[FunctionTimes, ...] = ()
    kernels: KernelColumns = msgspec.field(default_factory=KernelColumns)
    out_of_memory: OutOfMemory | None = None
    footer: Footer | None = None
    dropped_lines: int = 0
    """Lines that could not be read: torn by a kill, or of a kind that this version does not know."""
    lost_slots: int = 0
    """Slots that time was charged to, but whose name could not be read: they are called ``lost``, phase ``loop``."""
    is_whole: bool = True
    """False: only the ends of the file were read."""

    @cached_property
    def phases(self) -> PhaseColumns:
        """Exclusive time in ns of the steps by phase, arrays of shape (n,); phases without time are zeros."""
        by_phase: dict[Phase, list[int]] = {}
        for slot in self.steps.charged:
            by_phase.setdefault(self.slots[slot].step_phase, []).append(slot)
        return PhaseColumns(self.steps.charged, by_phase, len(self.steps))

    @cached_property
    def time_of_slots(self) -> Sequence[tuple[Slot, SegmentKind, int]]:
        """Slot, ``step`` or kind of segment, and ns: of each slot in all steps, and in each segment."""
        found: list[tuple[Slot, SegmentKind, int]] = []
        for slot in self.steps.charged:
            found.append((self.slots[slot], "step", int(self.steps.charged[slot].sum())))
        for segment in self.segments:
            for slot, ns in segment.charged.items():
                if slot < len(self.slots):
                    found.append((self.slots[slot], segment.kind, ns))
        return found

    @property
    def end_ns(self) -> int:
        """End of what was recorded, on the run's clock."""
        if self.footer is not None:
            return self.footer.end_ns
        ends = [s.end_ns for s in self.segments]
        if len(self.steps):
            ends.append(self.steps.end_ns)
        return max(ends, default=self.header.start_ns)

    @property
    def standstill(self) -> Standstill | None:
        """Where the main thread stands, or stood at the end; None if it went on, or came to its own end."""
        last = self.standstills[-1] if self.standstills else None
        if last is None or (self.footer is not None and self.footer.status == "finished"):
            return None
        if self.samples and self.samples[-1].t_ns > last.t_ns + _NO_LONGER_NS:
            return None
        ends = [s.end_ns for s in self.segments if s.kind != "teardown"]  # which has what an exception cut off
        if len(self.steps):
            ends.append(self.steps.end_ns)
        went_on = any(self._went_on(last, s) for s in self.segments if s.kind == "teardown")
        return last if last.since_ns >= max(ends, default=0) and not went_on else None

    def _went_on(self, stood: Standstill, cut_off: Segment) -> bool:
        """Whether the step that was cut off had come to another phase: there is more of these than before it stood."""
        if not 0 <= stood.slot < len(self.slots):
            return False
        # Not the optimizer's, in whose step forward and backward run: an exception passes through that.
        others = {"data_wait", "h2d", "forward", "backward"} - {self.slots[stood.slot].step_phase}
        in_others = sum(ns for slot, ns in cut_off.charged.items() if self.slots[slot].step_phase in others)
        return in_others > stood.since_ns - cut_off.start_ns
