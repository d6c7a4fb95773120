"""The journal's writer: off the main thread, complete, and harmless when the disk hangs or is full."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest
from sample_journals import Ticking, fail_loudly, header, run_steps, write_journal, writer_to

from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.capture import journal_writer
from lightning_gpuprof.capture.journal_file import open_journal
from lightning_gpuprof.capture.journal_writer import JournalWriter
from lightning_gpuprof.capture.step_clock import ClosedStep, StepClock
from lightning_gpuprof.model.journal import Notice, Sample


class Disk:
    """A real file that can hang, and be full."""

    def __init__(self, path: Path, room: int = 1 << 40) -> None:
        self.file = open_journal(path)
        self.room = room
        self.answers = threading.Event()
        self.answers.set()
        self.in_write = threading.Event()
        self.written_by: set[str] = set()

    def write(self, data: memoryview) -> int:
        self.written_by.add(threading.current_thread().name)
        self.in_write.set()
        self.answers.wait()
        if not self.room:
            raise OSError(28, "No space left on device")
        written = self.file.write(data[: self.room])
        self.room -= written
        return written

    def close(self) -> None:
        self.file.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rank0.jsonl"


@pytest.fixture
def hanging(path: Path) -> Iterator[Disk]:
    disk = Disk(path)
    yield disk
    disk.answers.set()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written is waited for, however busy the machine is."""
    monkeypatch.setattr(journal_writer, "DISK_TIMEOUT_S", 60.0)


def wait_until(done: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not done():
        assert time.monotonic() < give_up
        time.sleep(0.002)


@pytest.fixture
def clock() -> StepClock:
    return StepClock(now=Ticking(), start_ns=0)


@pytest.mark.parametrize("beforehand", [False, True])
def test_what_is_written_is_read_back(path: Path, beforehand: bool) -> None:
    write_journal(path, 2500, beforehand=beforehand)
    journal = read_journal(path)
    steps = journal.steps
    assert list(steps.batch) == list(range(2500))
    assert journal.dropped_lines == 0
    total = sum(column for column in steps.charged.values())
    assert (total == steps.period_ns).all()
    assert (steps.start_ns[1:] == steps.start_ns[:-1] + steps.period_ns[:-1]).all()
    assert journal.footer is not None
    assert [n.message for n in journal.notices] == ["m"]
    assert len(journal.cpu.batch) == 1


def test_the_training_thread_never_writes(path: Path) -> None:
    disk = Disk(path)
    clock = StepClock(now=Ticking())
    shown_by: set[str] = set()
    writer = writer_to(disk, clock, on_steps=lambda steps: shown_by.add(threading.current_thread().name))
    writer.start()
    run_steps(clock, 10)
    writer.sync()
    run_steps(clock, 10)
    writer.close()
    assert disk.written_by == {"gpuprof-disk"}
    assert shown_by == {"gpuprof-journal"}


def test_all_that_was_queued_before_a_sync_is_in_the_file_after_it(path: Path, clock: StepClock) -> None:
    writer = writer_to(Disk(path), clock)
    for epoch in range(1, 4):
        run_steps(clock, 100)
        writer.post(Notice(part="p", message="m"))
        writer.sync()
        journal = read_journal(path)
        assert len(journal.steps) == 100 * epoch == writer.steps_written
        assert len(journal.notices) == epoch
    writer.close()


def test_every_step_is_shown_once_and_in_order(path: Path) -> None:
    clock = StepClock(now=Ticking())
    shown: list[int] = []
    writer = writer_to(Disk(path), clock, on_steps=lambda steps: shown.extend(step.batch for step in steps))
    writer.start()
    for _ in range(5):
        run_steps(clock, 200)
        time.sleep(0.01)
    writer.close()
    assert shown == list(range(1000))


def test_who_fails_at_looking_at_steps_harms_only_himself(path: Path, clock: StepClock) -> None:
    calls: list[int] = []

    def broken(steps: Sequence[ClosedStep]) -> None:
        calls.append(len(steps))
        raise RuntimeError("planted")

    writer = writer_to(Disk(path), clock, on_steps=broken)
    for _ in range(3):
        run_steps(clock, 10)
        writer.sync()
    writer.close()
    journal = read_journal(path)
    assert len(calls) == 1
    assert len(journal.steps) == 30
    assert ["planted" in notice.message for notice in journal.notices] == [True]


def test_a_full_disk_keeps_what_is_there_is_reported_once_and_memory_stays_bounded(
    path: Path, clock: StepClock
) -> None:
    failures: list[OSError] = []
    shown: list[int] = []
    disk = Disk(path, room=6000)
    writer = writer_to(disk, clock, on_failure=failures.append, on_steps=lambda steps: shown.append(len(steps)))
    for _ in range(50):
        run_steps(clock, 100)
        writer.sync()
        assert not clock.closed
    writer.close()
    assert [failure.strerror for failure in failures] == ["No space left on device"]
    assert writer.failed
    journal = read_journal(path)
    assert 500 < len(journal.steps) == writer.steps_written < 3000
    assert journal.dropped_lines <= 1
    assert len(journal.steps) + writer.dropped_steps == 5000 == sum(shown)


def test_a_disk_that_hangs_for_long_costs_only_the_oldest_steps(path: Path, hanging: Disk, clock: StepClock) -> None:
    shown: list[int] = []
    writer = writer_to(hanging, clock, max_waiting_bytes=20_000, on_steps=lambda steps: shown.append(len(steps)))
    run_steps(clock, 100)
    writer.sync()
    hanging.answers.clear()
    hanging.in_write.clear()
    for epoch in range(100):
        clock.slot(f"made while the disk hangs {epoch}", "callbacks")
        run_steps(clock, 100)
        wait_until(lambda: not clock.closed)
    wait_until(lambda: writer.dropped_steps > 0 and sum(shown) == 10_100)
    hanging.answers.set()
    writer.sync()
    writer.close()
    journal = read_journal(path)
    assert journal.dropped_lines == 0
    assert list(journal.steps.batch[:100]) == list(range(100))
    assert journal.steps.batch[-1] == 10_099
    assert len(journal.steps) + writer.dropped_steps == 10_100
    assert [f"{writer.dropped_steps} steps" in notice.message for notice in journal.notices] == [True]


def test_a_disk_that_hangs_at_the_end_is_reported_and_left_alone(path: Path, hanging: Disk, clock: StepClock) -> None:
    failures: list[OSError] = []
    hanging.answers.clear()
    writer = writer_to(hanging, clock, on_failure=failures.append)
    run_steps(clock, 100)
    writer.start()
    wait_until(hanging.in_write.is_set)  # with all of them: nothing was written before
    writer.close(timeout_s=0.05)
    assert [type(failure) for failure in failures] == [TimeoutError]
    hanging.answers.set()
    wait_until(lambda: hanging.file.closed)
    assert len(read_journal(path).steps) == 100


def test_a_file_that_somebody_closed_is_a_failure_like_others(path: Path) -> None:
    clock = StepClock(now=Ticking())
    failures: list[OSError] = []
    disk = Disk(path)
    disk.close()
    writer = writer_to(disk, clock, on_failure=failures.append)
    run_steps(clock, 10)
    writer.close()
    assert len(failures) == 1
    assert writer.dropped_steps == 10


def test_what_others_post_is_bounded_too(path: Path, hanging: Disk, clock: StepClock) -> None:
    writer = writer_to(hanging, clock, max_waiting_bytes=10_000)
    writer.sync()
    hanging.answers.clear()
    for number in range(3000):
        writer.post(Sample(source="host", subject="process", t_ns=number, values={"rss_bytes": 1.0}))
        if number % 100 == 0:
            time.sleep(0.002)
    writer.post(Notice(part="p", message="m"))
    wait_until(lambda: writer._file.dropped_lines > 0 and not writer._posted)
    hanging.answers.set()
    writer.close()
    journal = read_journal(path)
    assert journal.samples[-1].t_ns == 2999
    assert len(journal.samples) < 2900
    assert [notice.part for notice in journal.notices] == ["p", "journal"]


def test_a_record_that_cannot_be_written_costs_only_itself(path: Path, clock: StepClock) -> None:
    writer = writer_to(Disk(path), clock)
    run_steps(clock, 3)
    writer.post(Notice(part="p", message="\udcff of a file name that is no text"))
    writer.post(Notice(part="p", message="fine"))
    writer.close()
    journal = read_journal(path)
    assert len(journal.steps) == 3
    assert [n.message for n in journal.notices][1] == "fine"
    assert "could not be written" in journal.notices[0].message


def test_steps_that_cannot_be_are_reported_and_cost_only_themselves(path: Path, clock: StepClock) -> None:
    writer = writer_to(Disk(path), clock)
    run_steps(clock, 30)
    clock.closed.append(ClosedStep(30, 0, 3, 0, 0, 0, [-3, 6], None, -1))
    clock.open_segment("teardown")
    run_steps(clock, 20)
    writer.close()
    journal = read_journal(path)
    assert len(journal.steps) == 50
    assert writer.dropped_steps == 1
    assert ["batch 30 the first" in notice.message for notice in journal.notices] == [True]


WRITES_UNTIL_KILLED = """
import sys, time
from pathlib import Path
from sample_journals import fail_loudly, header
from lightning_gpuprof.capture.journal_file import open_journal
from lightning_gpuprof.capture.journal_writer import JournalWriter
from lightning_gpuprof.capture.step_clock import StepClock

clock = StepClock()
JournalWriter(
    open_journal(Path(sys.argv[1])), clock, header=header(), on_failure=fail_loudly, flush_s=float(sys.argv[2])
).start()
forward = clock.context(clock.slot("forward", "forward"))
clock.begin_training(-1, 0)
clock.begin_epoch(0, -1)
while True:
    clock.begin_step()
    with forward:
        time.sleep(0.001)
    print(time.perf_counter_ns(), flush=True)
"""


def read_stamps(lines: IO[bytes], flush_s: float) -> list[int]:
    """When the process was at work, until there is much to lose and it has not stood still lately.

    On a machine that does not leave it alone for so long, it ends after a minute.
    """
    stamps_ns = [int(lines.readline())]
    first_s = calm_since_s = stamps_ns[0] / 1e9
    until_s = first_s + 5 * flush_s
    while len(stamps_ns) < 300 or stamps_ns[-1] / 1e9 < until_s:
        stamps_ns.append(int(lines.readline()))
        if stamps_ns[-1] - stamps_ns[-2] > 100_000_000:
            calm_since_s = stamps_ns[-1] / 1e9
        until_s = max(first_s + 5 * flush_s, min(calm_since_s + 2 * flush_s, first_s + 60))
    return stamps_ns


def test_a_killed_process_loses_no_more_than_the_time_between_two_writes(path: Path) -> None:
    flush_s = 0.3
    with subprocess.Popen(
        [sys.executable, "-c", WRITES_UNTIL_KILLED, str(path), str(flush_s)],
        stdout=subprocess.PIPE,
    ) as process:
        stamps_ns = read_stamps(process.stdout, flush_s)
        os.kill(process.pid, signal.SIGKILL)
        stamps_ns += map(int, process.stdout.read().split())
    journal = read_journal(path)
    assert journal.footer is None
    assert journal.dropped_lines <= 1
    stood_still_ns = max(later - earlier for earlier, later in itertools.pairwise(stamps_ns))
    lost_s = (stamps_ns[-1] - journal.end_ns - stood_still_ns) / 1e9
    assert lost_s < flush_s + 1.0  # the second is for a machine that is busy with other things
    assert len(journal.steps) == sum(stamp_ns <= journal.end_ns for stamp_ns in stamps_ns) > 0


def test_who_is_called_when_something_was_written_finds_it_in_the_file_and_may_fail_once(tmp_path: Path) -> None:
    path, found = tmp_path / "rank1.jsonl", []

    def look() -> None:
        found.append(path.stat().st_size)
        raise ValueError("planted")

    clock = StepClock(now=Ticking(), cpu_now=Ticking(), start_ns=0)
    writer = JournalWriter(
        open_journal(path), clock, header=header(), on_failure=fail_loudly, flush_s=0.01, on_written=look
    )
    for _ in range(2):
        writer.post(Notice(part="p", message="m"))
        writer.sync()
    writer.close()
    assert len(found) == 1
    assert found[0] > 0
    assert path.read_text().count("is not renewed after ValueError: planted") == 1
