"""Where one stage is written down: its folder, its journal from header to footer, and what went wrong on the way."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from lightning_gpuprof.capture import output_folder
from lightning_gpuprof.capture.fence import Fence, must_propagate
from lightning_gpuprof.capture.journal_writer import JournalWriter
from lightning_gpuprof.capture.step_clock import ClosedStep, StepClock
from lightning_gpuprof.errors import GpuProfError
from lightning_gpuprof.model.journal import JOURNAL_VERSION, Footer, Header, Notice, Record
from lightning_gpuprof.model.phases import Stage
from lightning_gpuprof.model.pid_space import pid_space

FINISHED = "finished"
"""Status of a stage that came to its own end."""


def interrupted_by(error: BaseException) -> str:
    """Status of a stage that was left by an exception."""
    return f"interrupted: {type(error).__name__}"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """When ``fit`` or another stage was entered, on the run's clock and on the calendar."""

    perf_ns: int
    epoch_ns: int

    @classmethod
    def now(cls) -> Entry:
        """This moment."""
        return cls(perf_ns=time.perf_counter_ns(), epoch_ns=time.time_ns())


def stage_header(trainer: Any, stage: Stage, entry: Entry, version: str, key: str) -> Header:
    """First line of a stage's journal.

    Args:
        trainer: The trainer.
        stage: ``fit``, ``validate``, ``test`` or ``predict``.
        entry: When and how the stage was entered.
        version: Of this package.
        key: Of the run, which all its ranks know.

    Returns:
        With a new ``run_id`` at each call.
    """
    return Header(
        version=JOURNAL_VERSION,
        gpuprof=version,
        run_id=uuid.uuid4().hex[:12],
        stage=stage,
        rank=trainer.global_rank,
        world_size=trainer.world_size,
        host=socket.gethostname(),
        pid=os.getpid(),
        pid_space=pid_space(),
        start_ns=entry.perf_ns,
        epoch_ns=entry.epoch_ns,
        job=key,
    )


class StageJournal:
    """The journal of one stage, and the fence that notes failures of its parts in there.

    Args:
        wanted: The folder; one beside it is made if it holds another run, a temporary one if it cannot be written.
        key: Of the run, which all its ranks know.
        header: First line of the journal.
        clock: Its steps and segments are written.
        on_steps: Shown the steps that ended lately, in the journal's thread.
        on_written: Called in the background with the file, when something was written to it.

    Raises:
        OSError: Neither the wanted nor a temporary folder can be written.
    """

    def __init__(
        self,
        wanted: Path,
        key: str,
        header: Header,
        clock: StepClock,
        on_steps: Callable[[Sequence[ClosedStep]], None],
        on_written: Callable[[Path], None] | None = None,
    ) -> None:
        self.notices: list[Notice] = []
        """What the report is to say."""
        self.fence = Fence(self.note)
        self._clock = clock
        self.folder, file, self._problem = output_folder.create(wanted, header.rank, key)
        self.path = self.folder / output_folder.JOURNAL_NAME.format(rank=header.rank)
        try:
            self._writer = JournalWriter(
                file,
                clock,
                header=header,
                on_failure=self._writing_failed,
                on_steps=on_steps,
                on_written=None if on_written is None else partial(on_written, self.path),
            )
        except BaseException:
            file.close()
            raise

    @property
    def cpu_s(self) -> float:
        """CPU seconds that writing has used."""
        return self._writer.cpu_s

    def start(self) -> None:
        """Begin to write, in the background."""
        if self._problem:
            self.fence.report("dirpath", self._problem)
        self._writer.start()

    def post(self, record: Record) -> None:
        """Have a record written; on any thread."""
        self._writer.post(record)

    def note(self, part: str, message: str) -> None:
        """Write down what the report is to say about a part.

        Args:
            part: Name of the part.
            message: One sentence.
        """
        notice = Notice(part=part, message=message)
        self.notices.append(notice)
        self.post(notice)

    def switched_off(self, part: str, error: Exception) -> None:
        """Report that a part does nothing any more because of an error; one that has to end the run is raised again.

        Args:
            part: Name of the part.
            error: What it raised.

        Raises:
            Exception: The error, if it has to end the run.
        """
        if must_propagate(error):
            raise error
        # What we raise ourselves says all of it.
        after = "" if isinstance(error, GpuProfError) else f" after {type(error).__name__}"
        self.fence.report(part, f"switched off{after}: {error}")

    def footer(
        self, status: str, overhead: Mapping[str, float], place: str = "", *, left_collective: bool = False
    ) -> Footer:
        """The last line if the stage ended now; the last footer of a journal counts.

        Args:
            status: ``finished``, or how it was interrupted.
            overhead: Entry -> cost of the profiler.
            place: Of the exception in the user's code.
            left_collective: It did so.

        Returns:
            It ends now, after the optimizer steps completed by now, and is not written yet.
        """
        global_step = self._clock.counters()[1]
        return Footer(
            end_ns=time.perf_counter_ns(),
            status=status,
            place=place,
            left_collective=left_collective,
            overhead=dict(overhead),
            global_step=global_step,
        )

    def sync(self) -> None:
        """Wait until what was posted is in the file."""
        self._writer.sync()

    def close(self, last: Sequence[Record] = ()) -> None:
        """Have what is left and ``last`` written, and let go of the file. Safe to call twice."""
        self._writer.close(last)

    def _writing_failed(self, error: OSError) -> None:
        written = self._writer.steps_written
        self.fence.report("journal", f"writing failed ({error.strerror or error}); about {written} steps are recorded")
