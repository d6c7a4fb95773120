"""Writes the journal: takes what the clock closed and what samplers saw, and appends it in blocks from a thread.

The file is opened unbuffered, so that a forked DataLoader worker holds no second copy of unwritten text, and each
write ends with a newline, so that a kill costs at most the block that was being written.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

import msgspec

from lightning_gpuprof.capture.step_clock import ClosedSegment, ClosedStep, StepClock
from lightning_gpuprof.model.journal import CpuBlock, Header, Notice, Record, Segment, StepBlock

MAX_BLOCK_STEPS = 1024


def open_journal(path: Path) -> BinaryIO:
    """Create a journal file; raises FileExistsError rather than touch an earlier one, OSError if it cannot be made."""
    return open(path, "xb", buffering=0)


class JournalWriter:
    """Empties the clock's queue and the posted records into a file, from its own thread.

    Args:
        file: Opened unbuffered for appending.
        clock: Its ``closed`` queue and ``slots`` are read.
        header: First line of the file.
        on_failure: Told once, from the writer's thread, when writing fails; from then on everything is dropped, so
            that memory stays bounded.
        flush_s: Seconds between two writes.
    """

    def __init__(
        self,
        file: BinaryIO,
        clock: StepClock,
        *,
        header: Header,
        on_failure: Callable[[OSError], None],
        flush_s: float = 0.5,
    ) -> None:
        self._file = file
        self._clock = clock
        self._on_failure = on_failure
        self._flush_s = flush_s
        self._posted: deque[Record] = deque()
        self._encode = msgspec.json.Encoder().encode
        self._head: list[Record] = [header]
        self._slots_written = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.failed = False
        self.dropped_steps = 0
        self.steps_written = 0
        self.cpu_s = 0.0
        """CPU time of the writer's thread."""

    def post(self, record: Record) -> None:
        """Queue a record; callable from any thread."""
        self._posted.append(record)

    def start(self) -> None:
        """Begin to write in the background."""
        self._thread = threading.Thread(target=self._run, name="gpuprof-journal", daemon=True)
        self._thread.start()

    def close(self, last: Iterable[Record] = (), timeout_s: float = 5.0) -> None:
        """Write what is left and ``last``, and close the file. Waits for the thread at most ``timeout_s``."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
            if self._thread.is_alive():  # a write hangs (network file system): the file is left to the thread
                return
            self._thread = None
        self._posted.extend(last)
        self.flush()
        try:
            self._file.close()
        except OSError as error:
            self._fail(error)

    def flush(self) -> None:
        """Write everything that is queued; not to be called beside a running thread."""
        records = self._drain()
        if not records or self.failed:
            return
        text = b"\n".join([*map(self._line, records), b""])
        try:
            view = memoryview(text)
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            self._fail(error)
        else:
            self.steps_written += sum(len(r.period_ns) for r in records if isinstance(r, StepBlock))

    def _line(self, record: Record) -> bytes:
        try:
            return self._encode(record)
        except Exception as error:  # one record that cannot be written must not cost the others
            message = f"a record of kind {type(record).__name__} could not be written: {type(error).__name__}"
            return self._encode(Notice(part="journal", message=message))

    def _run(self) -> None:
        while not self._stop.wait(self._flush_s):
            self.flush()
            self.cpu_s = time.thread_time()
        self.flush()
        self.cpu_s = time.thread_time()

    def _fail(self, error: OSError) -> None:
        if not self.failed:
            self.failed = True
            self._on_failure(error)

    def _drain(self) -> list[Record]:
        closed = self._clock.closed
        taken = [closed.popleft() for _ in range(len(closed))]
        records: list[Record] = []
        run: list[ClosedStep] = []
        for item in taken:
            if isinstance(item, ClosedStep):
                run.append(item)
                if len(run) == MAX_BLOCK_STEPS:
                    records += self._step_records(run)
                    run = []
            else:
                records += self._step_records(run)
                run = []
                records.append(_segment_record(item))
        records += self._step_records(run)
        # Slots after the charges: one made meanwhile is then known to whoever reads on.
        slots: list[Record] = [*self._clock.slots[self._slots_written :]]
        self._slots_written += len(slots)
        posted = [self._posted.popleft() for _ in range(len(self._posted))]
        head, self._head = self._head, []
        return head + slots + records + posted

    def _step_records(self, steps: list[ClosedStep]) -> list[Record]:
        if not steps:
            return []
        if self.failed:
            self.dropped_steps += len(steps)
            return []
        block = StepBlock(
            first_batch=steps[0].batch,
            start_ns=[s.start_ns for s in steps],
            period_ns=[s.end_ns - s.start_ns for s in steps],
            global_step=[s.global_step for s in steps],
            epoch=[s.epoch for s in steps],
            flags=[s.flags for s in steps],
            charged=_columns([s.charged for s in steps]),
        )
        sampled = [s for s in steps if s.cpu_charged is not None]
        if not sampled:
            return [block]
        delays = [s.run_delay_ns for s in sampled]
        cpu = CpuBlock(
            batch=[s.batch for s in sampled],
            charged=_columns([s.cpu_charged for s in sampled if s.cpu_charged]),
            run_delay_ns=None if -1 in delays else delays,
        )
        return [block, cpu]


def _columns(rows: list[list[int]]) -> dict[int, list[int]]:
    """Rows by slot to columns by slot, without the columns that are all zero; rows before a new slot are shorter."""
    width = len(rows[-1])
    if len(rows[0]) != width:
        rows = [row + [0] * (width - len(row)) for row in rows]
    return {slot: list(column) for slot, column in enumerate(zip(*rows, strict=True)) if any(column)}


def _segment_record(item: ClosedSegment) -> Segment:
    return Segment(
        kind=item.kind,
        start_ns=item.start_ns,
        end_ns=item.end_ns,
        epoch=item.epoch,
        charged={slot: ns for slot, ns in enumerate(item.charged) if ns},
    )
