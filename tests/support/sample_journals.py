"""Journals for tests: written by the real clock and writer, with a clock of their own."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from lightning_gpuprof.capture.journal_file import open_journal
from lightning_gpuprof.capture.journal_writer import JournalWriter
from lightning_gpuprof.capture.step_clock import ClosedStep, StepClock
from lightning_gpuprof.model.journal import JOURNAL_VERSION, Footer, Header, Notice


def header(**values: Any) -> Header:
    """The begin of a journal of the only rank of a fit, and what of it is known otherwise."""
    kept = {"version": JOURNAL_VERSION, "gpuprof": "0.0.1", "run_id": "r", "stage": "fit", "host": "h", "pid": 1}
    return Header(**{**kept, "rank": 0, "world_size": 1, "start_ns": 0, "epoch_ns": 0, **values})


class Ticking:
    """A clock that moves by a given amount at each look."""

    def __init__(self, step: int = 10) -> None:
        self.t = 0
        self.step = step

    def __call__(self) -> int:
        self.t += self.step
        return self.t


def run_steps(clock: StepClock, steps: int) -> None:
    """One more epoch of so many steps."""
    forward = clock.context(clock.slot("forward", "forward"))
    clock.begin_training(clock.counters()[0], 0)
    clock.begin_epoch(0, clock.counters()[0])
    for _ in range(steps):
        clock.begin_step()
        with forward:
            pass
    clock.end_epoch()


def fail_loudly(error: OSError) -> None:
    raise AssertionError(f"writing failed: {error}")


def write_journal(path: Path, steps: int, *, beforehand: bool = False, tick_ns: int = 10) -> None:
    """A whole journal: one epoch, a notice, a footer.

    Args:
        path: Where.
        steps: How many.
        beforehand: Start the writer before the first step.
        tick_ns: Time between two looks at the clock; a step has some.
    """
    clock = StepClock(now=Ticking(tick_ns), cpu_now=Ticking(), start_ns=0)
    writer = JournalWriter(open_journal(path), clock, header=header(), on_failure=fail_loudly, flush_s=0.01)
    if beforehand:
        writer.start()
    run_steps(clock, steps)
    writer.post(Notice(part="p", message="m"))
    clock.open_segment(None)
    writer.close([Footer(end_ns=clock._now(), status="finished", overhead={})])


def writer_to(
    disk: object,
    clock: StepClock,
    *,
    on_failure: Callable[[OSError], None] = fail_loudly,
    on_steps: Callable[[Sequence[ClosedStep]], None] | None = None,
    max_waiting_bytes: int = 1 << 25,
) -> JournalWriter:
    """A writer that writes at once to something like a file."""
    return JournalWriter(
        cast(BinaryIO, disk),
        clock,
        header=header(),
        on_failure=on_failure,
        flush_s=0.01,
        on_steps=on_steps,
        max_waiting_bytes=max_waiting_bytes,
    )
