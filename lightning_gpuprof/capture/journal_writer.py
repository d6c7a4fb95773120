"""Encodes steps and samples as lines of the journal, in a thread of its own."""

import errno
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import BinaryIO

import msgspec

from lightning_gpuprof.capture.journal_file import MAX_WAITING_BYTES, JournalFile, Line
from lightning_gpuprof.capture.step_blocks import cpu_block, step_blocks
from lightning_gpuprof.capture.step_clock import ClosedSegment, ClosedStep, StepClock
from lightning_gpuprof.model.journal import (
    CallSites,
    CpuBlock,
    DeviceBlock,
    Header,
    KernelBlock,
    Notice,
    Record,
    Sample,
    Segment,
    StepBlock,
)

MAX_BLOCK_STEPS = 1024
POLL_S = 0.5
"""How often finished steps are taken from the clock and shown to ``on_steps``."""
YOUNG_RATIO = 0.1
"""A young run writes more often than every ``flush_s``, so that a kill costs no more than this of it."""
MAX_POSTED = 10_000
"""Records of others that may wait for the next write; a run posts a few a second."""
DISK_TIMEOUT_S = 5.0
"""A disk that hangs holds up neither a report nor the end of a run for longer."""

DROPPABLE = (StepBlock, CpuBlock, DeviceBlock, KernelBlock, Segment, Sample, CallSites)
"""Records that are left out, the oldest first, when the disk hangs for long."""


@dataclass(eq=False, repr=False)
class JournalWriter:
    """Empties the clock's queue and the posted records into a file, without the main thread.

    One thread packs what there is, another one writes it: a disk that hangs for minutes neither lets finished steps
    pile up nor keeps ``on_steps`` from seeing them.
    """

    file: InitVar[BinaryIO]
    """Opened unbuffered for appending."""
    clock: StepClock
    """Its ``closed`` queue and ``slots`` are read."""
    _: KW_ONLY
    header: Header
    """First line of the file."""
    on_failure: InitVar[Callable[[OSError], None]]
    """Called once, from a thread of the writer or from :meth:`close`, when writing fails; from then on everything is
    dropped, so that memory stays bounded."""
    flush_s: float = 5.0
    """Longest time between two writes in seconds, and so what a kill may cost. Blocks of few steps take more room a
    step."""
    on_steps: Callable[[Sequence[ClosedStep]], None] | None = None
    """Shown the steps that ended since the last look, possibly none, in the writer's thread, every half second. If it
    fails, it is not called again."""
    on_written: Callable[[], None] | None = None
    """Called in the background when something has been written. If it fails, it is not called again."""
    max_waiting_bytes: InitVar[int] = MAX_WAITING_BYTES
    """Of text that the disk has not taken yet; beyond it the oldest steps are left out."""

    def __post_init__(self, file: BinaryIO, on_failure: Callable[[OSError], None], max_waiting_bytes: int) -> None:
        self._file = JournalFile(
            file, on_failure=on_failure, max_waiting_bytes=max_waiting_bytes, on_written=self._written
        )
        self._head: list[Record] = [self.header]
        self._posted: deque[Record] = deque(maxlen=MAX_POSTED)
        self._taken: list[ClosedStep | ClosedSegment] = []
        self._encode = msgspec.json.Encoder().encode
        self._slots_written = 0
        self._wake = threading.Event()
        self._stopping = False
        self._syncs: deque[threading.Event] = deque()
        self._last: Sequence[Record] = ()
        self._lost_steps = 0
        self._said = False
        self._cpu_s = 0.0
        self._thread = threading.Thread(target=self._run, name="gpuprof-journal", daemon=True)
        self._started = False

    @property
    def failed(self) -> bool:
        """Whether writing was given up."""
        return self._file.failed

    @property
    def steps_written(self) -> int:
        """Steps that are in the file."""
        return self._file.steps_written

    @property
    def dropped_steps(self) -> int:
        """Steps that were left out: writing failed, or the disk hung for too long."""
        return self._lost_steps + self._file.dropped_steps

    @property
    def cpu_s(self) -> float:
        """CPU time of the writer's threads."""
        return self._cpu_s + self._file.cpu_s

    def post(self, record: Record) -> None:
        """Queue a record; callable from any thread."""
        self._posted.append(record)

    def start(self) -> None:
        """Begin to write in the background; not needed before :meth:`sync` and :meth:`close`."""
        if not self._started:
            self._file.start()
            self._thread.start()
            self._started = True

    def sync(self) -> None:
        """Wait until everything that is queued now is in the file, at most :data:`DISK_TIMEOUT_S`."""
        self.start()
        until = time.monotonic() + DISK_TIMEOUT_S
        packed = threading.Event()
        self._syncs.append(packed)
        self._wake.set()
        if packed.wait(DISK_TIMEOUT_S):
            self._file.sync(until - time.monotonic())

    def close(self, last: Iterable[Record] = (), timeout_s: float | None = None) -> None:
        """Have what is left and ``last`` written and the file closed; waits for that at most ``timeout_s``.

        Args:
            last: Records to write at the end.
            timeout_s: The longest wait, in seconds; default: :data:`DISK_TIMEOUT_S`.
        """
        timeout_s = DISK_TIMEOUT_S if timeout_s is None else timeout_s
        until = time.monotonic() + timeout_s
        try:
            self.start()
            self._last = [*last]
        finally:
            self._stopping = True
            self._wake.set()
            if self._thread.ident is not None:
                self._thread.join(timeout_s)
            self._file.close(until - time.monotonic())

    def _run(self) -> None:
        look_s = min(POLL_S, self.flush_s)
        begin = time.monotonic()
        due = begin + look_s
        while not self._stopping:
            self._wake.wait(look_s)
            self._wake.clear()
            syncs = [self._syncs.popleft() for _ in range(len(self._syncs))]
            self._fenced(self._look)
            now = time.monotonic()
            if syncs or now >= due:
                self._fenced(self._write)
                due = now + min(self.flush_s, max(look_s, YOUNG_RATIO * (now - begin)))
            self._cpu_s = time.thread_time()
            for packed in syncs:
                packed.set()
        self._fenced(self._look)
        self._fenced(self._write)
        self._fenced(self._report_missing)
        self._posted.extend(self._last)
        self._fenced(self._write)
        self._cpu_s = time.thread_time()
        for packed in self._syncs:
            packed.set()

    def _fenced(self, part: Callable[[], None]) -> None:
        """Nothing ends the thread: it is what keeps the clock's queue short."""
        try:
            part()
        except Exception as error:
            self._file.fail(OSError(errno.EIO, f"{type(error).__name__}: {error}"))

    def _look(self) -> None:
        closed = self.clock.closed
        new = [closed.popleft() for _ in range(len(closed))]
        self._taken += new
        if self.on_steps is not None:
            try:
                self.on_steps([item for item in new if isinstance(item, ClosedStep)])
            except Exception as error:
                self.on_steps = None
                message = f"watching steps was switched off after {type(error).__name__}: {error}"
                self.post(Notice(part="watched steps", message=message))

    def _written(self) -> None:
        """In the thread of the file."""
        if self.on_written is not None:
            try:
                self.on_written()
            except Exception as error:
                self.on_written = None
                self.post(Notice(part="summary", message=f"is not renewed after {type(error).__name__}: {error}"))

    def _write(self) -> None:
        taken, self._taken = self._taken, []
        if self._file.failed:
            self._posted.clear()
            self._lost_steps += sum(isinstance(item, ClosedStep) for item in taken)
            return
        blocks: list[Record] = []
        for _, items in itertools.groupby(taken, type):
            of_one_kind = list(items)
            blocks += [_segment_record(item) for item in of_one_kind if isinstance(item, ClosedSegment)]
            steps = [item for item in of_one_kind if isinstance(item, ClosedStep)]
            for begin in range(0, len(steps), MAX_BLOCK_STEPS):
                blocks += step_blocks(steps[begin : begin + MAX_BLOCK_STEPS], self._step_is_lost)
            sampled = [step for step in steps if step.cpu_charged is not None]
            for begin in range(0, len(sampled), MAX_BLOCK_STEPS):
                blocks += self._cpu_records(sampled[begin : begin + MAX_BLOCK_STEPS])
        # Slots are looked up after the charges: one made meanwhile is then known to whoever reads on.
        slots = self.clock.slots[self._slots_written :]
        self._slots_written += len(slots)
        head, self._head = self._head, []
        posted = [self._posted.popleft() for _ in range(len(self._posted))]
        if records := [*head, *slots, *blocks, *posted]:
            self._file.put([self._line(record) for record in records])

    def _line(self, record: Record) -> Line:
        try:
            text = self._encode(record)
        except Exception as error:  # one record that cannot be written must not cost the others
            message = f"a record of kind {type(record).__name__} could not be written: {type(error).__name__}"
            text = self._encode(Notice(part="journal", message=message))
        steps = record.count if isinstance(record, StepBlock) else 0
        return Line(text + b"\n", steps, not isinstance(record, DROPPABLE))

    def _cpu_records(self, sampled: Sequence[ClosedStep]) -> list[Record]:
        try:
            return [cpu_block(sampled)]
        except ValueError as error:
            self._report_once(f"CPU times that cannot be written are left out: {error}")
            return []

    def _step_is_lost(self, step: ClosedStep, error: ValueError) -> None:
        self._lost_steps += 1
        self._report_once(f"steps that cannot be written are left out, batch {step.batch} the first: {error}")

    def _report_once(self, message: str) -> None:
        if not self._said:
            self._said = True
            self.post(Notice(part="journal", message=message))

    def _report_missing(self) -> None:
        if self._file.dropped_lines and not self._file.failed:
            message = (
                f"the disk was too slow: {self._file.dropped_steps} steps ({self._file.dropped_lines} lines of the "
                "journal) were left out, the oldest first"
            )
            self.post(Notice(part="journal", message=message))


def _segment_record(item: ClosedSegment) -> Segment:
    return Segment(
        kind=item.kind,
        start_ns=item.start_ns,
        end_ns=item.end_ns,
        epoch=item.epoch,
        charged={slot: ns for slot, ns in enumerate(item.charged) if ns},
    )
